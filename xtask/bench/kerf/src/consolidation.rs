//! Looking at every node of a cluster.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use jiff::Timestamp;
use kerf_api::{Budget, ConsolidationPolicy};
use kerf_disruption::{Memory, Method, Settings, pass};
use kerf_model::Snapshot;
use kerf_model::churn::{ChurnControls, Fraction, SavingsThreshold};
use kerf_model::disruption::{NodeDisruption, PodDisruption, PoolDisruption};
use serde_json::json;
use stats_alloc::Region;

use crate::{ALLOCATOR, cpu_seconds, peak_mib};

/// Each pass begins with no memory of the one before, and looks at all nodes.
///
/// Where several nodes can go together that is found first, and would end the pass: then it is told that this came to
/// nothing, and looks at nodes one by one. Otherwise the search for several is part of what is measured.
pub(crate) fn look(snapshot: Snapshot, runs: usize) -> Result<()> {
    let snapshot = quiet(snapshot)?;
    let settings =
        Settings { looks_per_pass: usize::MAX, spot_to_spot: true, ..Settings::default() };
    let together = pass(&snapshot, &settings, &mut Memory::default()).commands.pop();
    for _ in 0..runs {
        let mut memory = Memory::default();
        if let Some(together) = together.as_ref().filter(|it| it.method == Method::MultiNode) {
            memory.reject(together);
        }
        let region = Region::new(ALLOCATOR);
        let (start, cpu_start) = (Instant::now(), cpu_seconds());
        let found = pass(black_box(&snapshot), &settings, &mut memory);
        let seconds = start.elapsed().as_secs_f64();
        let outcome = json!({
            // All of it is looking: the snapshot is all that is prepared.
            "setup_seconds": 0.0,
            "seconds": seconds,
            "cpu_seconds": cpu_seconds() - cpu_start,
            "candidates": found.eligible.get(&Method::SingleNode).copied().unwrap_or_default(),
            "commands": found.commands.len(),
            "allocated_mib": region.change().bytes_allocated as f64 / f64::from(1 << 20),
            "peak_mib": peak_mib()?,
        });
        println!("{outcome}");
    }
    Ok(())
}

/// Nodes that have been quiet for an hour, in a pool where everything may go that is not needed, as upstream has it.
fn quiet(mut snapshot: Snapshot) -> Result<Snapshot> {
    let now: Timestamp = "2026-01-01T12:00:00Z".parse()?;
    let pool = snapshot.pools.values_mut().next().context("the problem has no pool")?;
    Arc::make_mut(pool).disruption = PoolDisruption {
        policy: ConsolidationPolicy::WhenEmptyOrUnderutilized,
        consolidate_after: Duration::ZERO.into(),
        budgets: vec![Budget {
            nodes: "100%".to_owned(),
            schedule: None,
            duration: None,
            reasons: None,
        }],
        controls: ChurnControls {
            utilization_threshold: Fraction::ONE,
            savings_threshold: SavingsThreshold::OFF,
            ..ChurnControls::default()
        },
    };
    let hour_ago = now - Duration::from_hours(1);
    for node in &mut snapshot.nodes {
        let node = Arc::make_mut(node);
        node.disruption = NodeDisruption {
            provider_id: format!("fake:///{}", node.name),
            ready: true,
            consolidatable: true,
            created: Some(hour_ago),
            initialized_at: Some(hour_ago),
            ..NodeDisruption::default()
        };
        for pod in &mut node.pods {
            Arc::make_mut(pod).disruption = PodDisruption::movable();
        }
    }
    Ok(Snapshot { now, ..snapshot })
}
