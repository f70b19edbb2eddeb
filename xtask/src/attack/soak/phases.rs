//! The kinds of phases, and the faults of each.

use std::fmt;
use std::time::{Duration, Instant};

use anyhow::Result;
use kerf_control_plane::Program;
use serde_json::{Value, json};

use super::KEPT;
use super::run::Run;
use crate::attack::api::{self, CLAIMS, NODES, PODS, text};
use crate::attack::ending::FOREIGN;
use crate::attack::proxy::Proxy;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    /// Nothing changes and nothing fails: what the replicas cost by being there.
    Calm,
    Scaling,
    Drifting,
    Draining,
    Kills,
    ApiServer,
    Etcd,
    Stalls,
    Cuts,
    BlackHoles,
    /// After all of them.
    Rest,
}

impl Phase {
    pub(super) const FAULTS: [Self; 10] = [
        Self::Calm,
        Self::Scaling,
        Self::Drifting,
        Self::Draining,
        Self::Kills,
        Self::ApiServer,
        Self::Etcd,
        Self::Stalls,
        Self::Cuts,
        Self::BlackHoles,
    ];

    /// With which change of the workloads the pool changes as well, 0 for none; `None` where workloads do not change.
    pub(super) fn drift_every(self) -> Option<u64> {
        match self {
            Self::Calm | Self::Rest => None,
            Self::Scaling => Some(0),
            Self::Drifting => Some(5),
            _ => Some(15),
        }
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Calm => "calm",
            Self::Scaling => "scaling",
            Self::Drifting => "drifting",
            Self::Draining => "draining",
            Self::Kills => "kills",
            Self::ApiServer => "API server restarts",
            Self::Etcd => "etcd restarts",
            Self::Stalls => "stalls",
            Self::Cuts => "cuts",
            Self::BlackHoles => "black holes",
            Self::Rest => "coming to rest",
        })
    }
}

impl Run {
    /// Causes the faults of a phase until it is time; none is left when this returns. How many there were.
    pub(super) async fn cause(&mut self, phase: Phase, until: Instant) -> Result<u32> {
        let mut faults = 0;
        if let Phase::Calm | Phase::Scaling | Phase::Drifting | Phase::Rest = phase {
            self.pass(until.saturating_duration_since(Instant::now())).await?;
            return Ok(faults);
        }
        while Instant::now() < until {
            match phase {
                Phase::Calm | Phase::Scaling | Phase::Drifting | Phase::Rest => {}
                Phase::Draining => self.disturb().await?,
                Phase::Kills => self.kill().await?,
                Phase::ApiServer => self.interrupt(Program::KubeApiserver).await?,
                Phase::Etcd => self.interrupt(Program::Etcd).await?,
                Phase::Stalls => self.stall().await?,
                Phase::Cuts => self.cut().await?,
                Phase::BlackHoles => self.swallow().await?,
            }
            faults += 1;
        }
        Ok(faults)
    }

    async fn kill(&mut self) -> Result<()> {
        let leader = self.leader(None).await?;
        self.pass_between(0, 5_000).await?;
        let leads = self.random.chance(75);
        let victim = if leads { leader } else { 1 - leader };
        self.kill_replica(victim).await?;
        self.done.kills += 1;
        if leads {
            self.take_over(None).await?;
        }
        Ok(())
    }

    /// Waits for a leader that is not this one, and notes for how long.
    async fn take_over(&mut self, not: Option<usize>) -> Result<()> {
        let begin = Instant::now();
        self.leader(not).await?;
        self.done.takeovers.push(begin.elapsed().as_secs_f64());
        Ok(())
    }

    /// Takes a component away for some seconds.
    async fn interrupt(&mut self, program: Program) -> Result<()> {
        self.stage.cluster.kill(program)?;
        self.pass_between(0, 5_000).await?;
        self.stage.cluster.start_again(program).await?;
        match program {
            Program::Etcd => self.done.etcd_restarts += 1,
            _ => self.done.api_server_restarts += 1,
        }
        self.pass_between(3_000, 12_000).await
    }

    /// What is on its way to one replica or both arrives seconds later.
    async fn stall(&mut self) -> Result<()> {
        const WHOM: [&[usize]; 3] = [&[0], &[1], &[0, 1]];
        let whom = *self.random.choose(&WHOM);
        for index in whom {
            self.proxies[*index].freeze();
        }
        self.pass_between(500, 12_000).await?;
        for index in whom {
            self.proxies[*index].thaw();
        }
        self.done.stalls += 1;
        self.pass_between(500, 5_000).await
    }

    async fn cut(&mut self) -> Result<()> {
        self.random.choose(&self.proxies).cut();
        self.done.cuts += 1;
        self.pass_between(200, 4_000).await
    }

    /// Nothing reaches the leader or both any more, and nothing is closed. Then new connections work, and the old ones never.
    async fn swallow(&mut self) -> Result<()> {
        let leader = self.leader(None).await?;
        if self.random.chance(70) {
            self.proxies[leader].freeze();
            self.take_over(Some(leader)).await?;
            self.pass_between(0, 8_000).await?;
        } else {
            self.proxies.iter().for_each(Proxy::freeze);
            self.pass_between(10_000, 30_000).await?;
        }
        self.proxies.iter().for_each(Proxy::forget_open_connections);
        self.done.black_holes += 1;
        self.pass_between(1_000, 5_000).await
    }

    /// A user deletes a claim or a node, or drains a node.
    async fn disturb(&mut self) -> Result<()> {
        self.pass_between(1_000, 5_000).await?;
        let (Ok(nodes), Ok(claims), Ok(pods)) = (
            self.stage.api.list(NODES).await,
            self.stage.api.list(CLAIMS).await,
            self.stage.api.list(PODS).await,
        ) else {
            return Ok(());
        };
        let targets = targets(&nodes, &claims, &pods);
        if targets.is_empty() {
            return Ok(());
        }
        let (node, claim) = self.random.choose(&targets).clone();
        let api = self.stage.api.clone();
        // What fails is one disturbance less.
        match self.random.between(0, 3) {
            0 => {
                self.witness.leave_to_the_user(&claim);
                let _ = api.delete(&format!("{CLAIMS}/{claim}")).await;
            }
            1 => {
                self.witness.leave_to_the_user(&claim);
                let _ = api.delete(&format!("{NODES}/{node}")).await;
            }
            _ => {
                let unschedulable = |is: bool| json!({"spec": {"unschedulable": is}});
                let path = format!("{NODES}/{node}");
                let _ = api.patch(&path, &unschedulable(true)).await;
                for pod in pods.iter().filter(|pod| text(pod, "/spec/nodeName") == node) {
                    let name = api::name(pod);
                    let eviction = json!({
                        "apiVersion": "policy/v1", "kind": "Eviction",
                        "metadata": {"name": name, "namespace": "default"},
                    });
                    let _ = api.create(&format!("{PODS}/{name}/eviction"), &eviction).await;
                }
                self.pass(Duration::from_secs(5)).await?;
                let _ = api.patch(&path, &unschedulable(false)).await;
            }
        }
        self.done.users += 1;
        Ok(())
    }
}

/// The nodes that a user may take away, with their claims: those without pods that ask to be left alone.
fn targets(nodes: &[Value], claims: &[Value], pods: &[Value]) -> Vec<(String, String)> {
    let holds_kept = |node: &str| {
        let kept = |pod: &&Value| text(pod, "/metadata/labels/app") == KEPT;
        pods.iter().filter(kept).any(|pod| text(pod, "/spec/nodeName") == node)
    };
    let claim_of = |node: &Value| {
        let id = text(node, "/spec/providerID");
        let of_node = |claim: &&Value| !id.is_empty() && text(claim, "/status/providerID") == id;
        claims.iter().find(of_node).map(|claim| api::name(claim).to_owned())
    };
    nodes
        .iter()
        .filter(|node| api::name(node) != FOREIGN && !api::is_deleting(node))
        .filter(|node| !holds_kept(api::name(node)))
        .filter_map(|node| Some((api::name(node).to_owned(), claim_of(node)?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_leave_alone_what_asks_for_it_and_what_goes() {
        let node = |name: &str| json!({"metadata": {"name": name}, "spec": {"providerID": format!("kwok://{name}")}});
        let mut goes = node("goes");
        goes["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        let foreign = json!({"metadata": {"name": FOREIGN}});
        let claim = |name: &str, node: &str| json!({"metadata": {"name": name}, "status": {"providerID": format!("kwok://{node}")}});
        let kept = json!({"metadata": {"labels": {"app": KEPT}}, "spec": {"nodeName": "held"}});
        let other =
            json!({"metadata": {"labels": {"app": "wave-0"}}, "spec": {"nodeName": "free"}});
        let found = targets(
            &[node("free"), node("held"), goes, foreign, node("young")],
            &[claim("c1", "free"), claim("c2", "held"), claim("c3", "goes")],
            &[kept, other],
        );
        assert_eq!(found, [("free".to_owned(), "c1".to_owned())]);
    }
}
