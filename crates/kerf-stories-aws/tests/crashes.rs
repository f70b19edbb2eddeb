//! The operator is killed between any two of its calls to AWS, and before the answer to any of them: nothing is launched twice
//! and nothing leaks. The cloud is as slow as the real one, and what it did is not known to all its answers at once.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use kerf_api::NodeClaim;
use kerf_controllers::Settings;
use kerf_stories::World;
use kerf_stories::chapters::{
    crashes::from_one_node_to_another, disruption::drift::from_drifted_to_replaced,
    life_of_a_node::from_pending_pod_to_nothing,
};
use kerf_stories_aws::{AwsStage, EndsAt};
use kerf_testbed::{Faults, Testbed};

/// So many moments of a story are tried, evenly spread: each is a whole play, and all of them take a quarter of an hour. A long
/// run tries all: `KERF_ALL_MOMENTS=1 cargo test -p kerf-stories-aws --test crashes`.
const TRIED: u64 = 12;

fn step(moments: u64) -> usize {
    let all = std::env::var_os("KERF_ALL_MOMENTS").is_some();
    usize::try_from(if all { 1 } else { moments.div_ceil(TRIED) }).unwrap_or(1)
}

/// How often an operator asks for instances that no claim has, and some more.
const ORPHANS_ARE_GONE: Duration = Duration::from_mins(15);

/// How many instances there ever were, and how many moments the operator had with AWS.
fn play(moment: Option<u64>, story: impl AsyncFnOnce(&World)) -> (usize, u64) {
    let played = Testbed::in_virtual_time(async {
        let faults = Faults::seeded(7);
        let stage = Arc::new(AwsStage::lifelike(7));
        let gate = Arc::new(EndsAt::moment(moment, &faults));
        let world = World::of_cloud(Arc::clone(&stage) as _, 7, Settings::default());
        stage.put_next_behind(Arc::clone(&gate) as _);
        let world = world.of_a_mortal_operator(&faults);
        story(&world).await;
        let (launched, moments) = (stage.aws().instances().len(), gate.moments());
        world.pass(ORPHANS_ARE_GONE).await;
        let claims = world.list::<NodeClaim>().await;
        let instance =
            |claim: &NodeClaim| claim.provider_id().rsplit('/').next().map(str::to_owned);
        let claimed: BTreeSet<String> = claims.iter().filter_map(instance).collect();
        let alive: BTreeSet<String> = stage.aws().alive().into_iter().collect();
        assert_eq!(alive, claimed, "killed at {moment:?}: instances and those of claims");
        (launched, moments)
    });
    played.expect("a runtime can be made")
}

macro_rules! killed_at_any_moment {
    ($($name:ident: $story:ident launches $launches:literal,)+) => {
        $(#[test]
        fn $name() {
            let (launched, moments) = play(None, async |world| { let _ = $story(world).await; });
            assert_eq!(launched, $launches);
            assert!(moments >= 2 * $launches, "only {moments} moments");
            for moment in (0..moments).step_by(step(moments)) {
                let (launched, _) = play(Some(moment), async |world| { let _ = $story(world).await; });
                assert_eq!(launched, $launches, "killed at moment {moment} of {moments}");
            }
        })+
    };
}

killed_at_any_moment! {
    a_life_survives_a_crash: from_pending_pod_to_nothing launches 1,
    a_drain_survives_a_crash: from_one_node_to_another launches 2,
    drift_survives_a_crash: from_drifted_to_replaced launches 2,
}
