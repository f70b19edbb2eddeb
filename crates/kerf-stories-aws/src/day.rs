//! A day in an account in which everything goes wrong that can: capacity runs out by type and zone, calls are refused, throttled
//! or lose their answers, spot instances are taken, reservations end, machines break, subnets fill, and the operator is killed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kerf_api::{NodeClaim, NodePool, labels};
use kerf_aws_wire::ec2;
use kerf_controllers::Settings;
use kerf_fake_aws::{Depth, FaultRates, Life, Market, PoolSelector, Reservation};
use kerf_stories::chapters::static_capacity::most_claims_at_once;
use kerf_stories::{Stage, World, build};
use kerf_testbed::{Fault, Matching, Random, Testbed, Verb, WatchCut};
use kube::ResourceExt;
use serde_json::{Value, json};

use crate::AwsStage;

/// How a day went.
#[derive(Clone, Copy, Debug, Default)]
pub struct Day {
    /// How many nodes the pool may have.
    pub limit: usize,
    /// The most claims that there were at any instant.
    pub peak: usize,
    pub launched: usize,
    /// Calls to AWS, and how many of them were refused or not answered.
    pub calls: u32,
    pub refused: u32,
    pub crashes: u32,
    /// Instances that went without being asked to.
    pub lost: usize,
    pub launch_templates: usize,
}

const ZONES: [&str; 4] = ["us-west-2a", "us-west-2b", "us-west-2c", "us-west-2d"];
const FAMILIES: [&str; 3] = ["c-*", "s-*", "m-*"];
const CLAIM_UID: &str = "karpenter.sh/nodeclaim-uid";

/// Lives so many hours of the day of this seed. Panics if an instance leaks, a claim gets two, the pool exceeds its limit, or a pod has no node
/// hours after all has become well.
pub fn day(seed: u64, hours: u64) -> Day {
    let lived = Testbed::in_virtual_time(async {
        let mut random = Random::seeded(seed);
        let stage = Arc::new(AwsStage::stormy(seed));
        let world = World::with_cloud(Arc::clone(&stage) as _, seed, Settings::default()).await;
        let mut stormy = Stormy { world, stage, day: Day::default(), workloads: Vec::new() };
        stormy.begin(&mut random).await;
        for _ in 0..hours {
            stormy.hour(&mut random).await;
        }
        stormy.end(&mut random).await
    });
    lived.unwrap_or_else(|error| panic!("a runtime cannot be made: {error}"))
}

struct Stormy {
    world: World,
    stage: Arc<AwsStage>,
    day: Day,
    workloads: Vec<Deployment>,
}

fn choose<'a, T>(random: &mut Random, all: &'a [T]) -> Option<&'a T> {
    let below = u64::try_from(all.len()).unwrap_or_default();
    all.get(usize::try_from(random.below(below.max(1))).unwrap_or_default())
}

impl Stormy {
    async fn begin(&mut self, random: &mut Random) {
        let aws = self.stage.aws();
        for (number, hours) in [(1, 5), (2, 15)] {
            let zone = choose(random, &ZONES).copied().unwrap_or_default();
            let id = format!("cr-0000000000000000{number}");
            let mut reservation = Reservation::new(&id, "c-4x-amd64-linux", zone, 2);
            reservation.end = Some(aws.clock().now() + SignedDuration::from_hours(hours));
            let tag = ("karpenter.sh/discovery".to_owned(), "test".to_owned());
            reservation.tags = BTreeMap::from([tag]);
            aws.add_reservation(reservation);
        }
        let limit = 6 + random.below(8);
        self.day.limit = usize::try_from(limit).unwrap_or_default();
        let class = self.world.create(build::node_class("default", &json!({}))).await;
        let reservations = json!([{"tags": {"karpenter.sh/discovery": "test"}}]);
        let spec = json!({"spec": {"capacityReservationSelectorTerms": reservations}});
        self.world.patch(&class, spec).await;
        let is_in =
            |key: &str, values: &[&str]| json!({"key": key, "operator": "In", "values": values});
        let changes = json!({
            "limits": {"nodes": limit.to_string()},
            "disruption": {"consolidateAfter": "5m", "budgets": [{"nodes": "100%"}]},
            "template": {"spec": {
                "expireAfter": "11h",
                "requirements": [
                    is_in(labels::OS, &["linux"]),
                    is_in(labels::ARCH, &["amd64", "arm64"]),
                    is_in(labels::CAPACITY_TYPE, &["reserved", "spot", "on-demand"]),
                ],
            }},
        });
        self.world.create::<NodePool>(build::pool("default", &changes)).await;
        // Each pod of one of them has a machine of its own: the ports clash.
        let port = json!({"containers": [{
            "name": "main", "image": "main", "ports": [{"containerPort": 80, "hostPort": 80}],
            "resources": {"requests": {"cpu": "1"}},
        }]});
        for (name, pod) in [("alone", port), ("together", json!({}))] {
            self.workloads.push(self.world.create(build::deployment(name, 0, &pod)).await);
        }
        self.disturb();
        self.scale(random).await;
    }

    /// What goes wrong all day long.
    fn disturb(&self) {
        let second = Duration::from_secs(1);
        let faults = self.world.faults();
        faults.at_rate(0.02, Matching::writes(), Fault::Conflict);
        faults.at_rate(0.01, Matching::any(), Fault::InternalError);
        faults.at_rate(0.02, Matching::writes(), Fault::TimeoutAfter(5 * second));
        let watches = || Matching::any().verb(Verb::Watch);
        faults.at_rate(0.3, watches(), Fault::WatchDelay(2 * second));
        faults.at_rate(0.1, watches(), Fault::Watch(WatchCut::Expired(600 * second)));
        self.stage.aws().set_fault_rates(FaultRates {
            internal: 0.02,
            unavailable: 0.02,
            no_answer: 0.01,
            lost_answer: 0.02,
        });
    }

    /// One thing after the other; often the next comes while the last is not over.
    async fn hour(&mut self, random: &mut Random) {
        for _ in 0..2 {
            self.blow(random).await;
            let most = if random.chance(0.5) { 10_000 } else { 1_800_000 };
            self.world.pass(Duration::from_millis(random.below(most))).await;
        }
        self.scale(random).await;
        self.world.pass(Duration::from_millis(random.below(1_800_000))).await;
        self.no_claim_has_two();
    }

    async fn blow(&mut self, random: &mut Random) {
        let aws = self.stage.aws().clone();
        let zone = choose(random, &ZONES).copied().unwrap_or_default();
        let alive = aws.alive();
        match random.below(10) {
            0 | 1 => {
                let family = choose(random, &FAMILIES).copied().unwrap_or_default();
                let mut pools = PoolSelector::instance_type(family);
                if random.chance(0.5) {
                    pools = pools.within(zone);
                }
                if random.chance(0.5) {
                    pools = pools.on(Market::Spot);
                }
                let one_back_every = random.chance(0.5).then(|| Duration::from_mins(20));
                let instances = u32::try_from(random.below(3)).unwrap_or_default();
                aws.set_pools(pools, Depth::Limited { instances, one_back_every });
            }
            2 => aws.set_pools(PoolSelector::all(), Depth::Endless),
            3 => {
                if let Some(id) = choose(random, &alive) {
                    self.day.lost += 1;
                    aws.fail_instance(id);
                }
            }
            4 | 5 => self.interrupt(random),
            6 => {
                let free = if random.chance(0.5) { 0 } else { crate::stage::ADDRESSES };
                for subnet in aws.subnets_of(zone) {
                    aws.set_free_addresses(&subnet, free);
                }
            }
            7 => {
                aws.deny("ec2:CreateFleet");
                self.world.pass(Duration::from_millis(random.below(600_000))).await;
                aws.allow("ec2:CreateFleet");
            }
            _ => {
                self.day.crashes += 1;
                self.world.kill_operator();
                self.world.pass(Duration::from_millis(random.below(60_000))).await;
                self.world.start_operator().await;
            }
        }
    }

    /// Some of the spot instances are taken, at once.
    fn interrupt(&mut self, random: &mut Random) {
        let aws = self.stage.aws();
        let is_spot = |one: &ec2::Instance| one.instance_lifecycle.as_deref() == Some("spot");
        let alive: BTreeSet<_> = aws.alive().into_iter().collect();
        let spot = aws.instances().into_iter().filter(is_spot).filter_map(|one| one.instance_id);
        for id in spot.filter(|id| alive.contains(id)) {
            if random.chance(0.5) {
                self.day.lost += 1;
                aws.interrupt_spot(&id);
            }
        }
    }

    /// Never more pods than nodes are allowed: then there is room for all of them, however they are spread.
    async fn scale(&self, random: &mut Random) {
        let half = u64::try_from(self.day.limit / 2).unwrap_or_default();
        for workload in &self.workloads {
            let replicas = i32::try_from(random.below(half + 1)).unwrap_or_default();
            self.world.patch(workload, json!({"spec": {"replicas": replicas}})).await;
        }
    }

    async fn end(mut self, random: &mut Random) -> Day {
        let aws = self.stage.aws().clone();
        self.world.faults().clear();
        aws.set_fault_rates(FaultRates::default());
        aws.set_pools(PoolSelector::all(), Depth::Endless);
        for subnet in ZONES.iter().flat_map(|zone| aws.subnets_of(zone)) {
            aws.set_free_addresses(&subnet, crate::stage::ADDRESSES);
        }
        self.scale(random).await;
        self.eventually("all pods run", async |it| it.all_run().await).await;
        self.eventually("instances and claims match one to one", async |it| it.all_match().await)
            .await;
        self.no_claim_has_two();
        for workload in &self.workloads {
            self.world.delete(workload).await;
        }
        let gone = json!({"spec": {"disruption": {"consolidateAfter": "0s"}}});
        for pool in self.world.list::<NodePool>().await {
            self.world.patch(&pool, gone.clone()).await;
        }
        self.eventually("the account is empty", async |it| it.nothing_left().await).await;
        let log = self.world.event_log();
        let calls = aws.calls();
        self.day.peak = most_claims_at_once(&log);
        self.day.launched = aws.instances().len();
        self.day.calls = calls.values().map(|count| count.made).sum();
        self.day.refused = calls.values().flat_map(|count| count.refused.values()).sum();
        self.day.launch_templates = aws.launch_template_count();
        let Day { limit, peak, .. } = self.day;
        assert!(peak <= limit, "{peak} nodes at once, and the limit is {limit}:\n{log}");
        self.day
    }

    /// What AWS does is no write to the API server, so this looks again and again.
    async fn eventually(&self, what: &str, ask: impl AsyncFn(&Self) -> Result<(), String>) {
        let mut last = String::new();
        for _ in 0..720 {
            match ask(self).await {
                Ok(()) => return,
                Err(why) => last = why,
            }
            self.world.pass(Duration::from_secs(20)).await;
        }
        let picture = match self.world.stage() {
            Stage::Testbed { testbed, .. } => testbed.dump(),
            Stage::Real(_) | Stage::Shared(_) => String::new(),
        };
        panic!("waited four hours in vain until {what}: {last}\n{picture}");
    }

    async fn all_run(&self) -> Result<(), String> {
        let pods = self.world.list::<Pod>().await;
        let wanted: i32 = {
            let workloads = self.world.list::<Deployment>().await;
            workloads.iter().filter_map(|one| one.spec.as_ref()?.replicas).sum()
        };
        let runs = |pod: &&Pod| {
            pod.metadata.deletion_timestamp.is_none()
                && pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running")
        };
        let running = pods.iter().filter(runs).count();
        if running == usize::try_from(wanted).unwrap_or_default() && running == pods.len() {
            Ok(())
        } else {
            Err(format!("{running} of {} pods run, {wanted} are wanted", pods.len()))
        }
    }

    async fn all_match(&self) -> Result<(), String> {
        let alive: BTreeSet<String> = self.stage.aws().alive().into_iter().collect();
        let claims = self.world.list::<NodeClaim>().await;
        let instance = |claim: &NodeClaim| {
            claim.provider_id().rsplit('/').next().unwrap_or_default().to_owned()
        };
        let claimed: BTreeSet<String> = claims.iter().map(instance).collect();
        if alive == claimed && claimed.len() == claims.len() {
            Ok(())
        } else {
            Err(format!("alive {alive:?}, claimed {claimed:?} by {} claims", claims.len()))
        }
    }

    async fn nothing_left(&self) -> Result<(), String> {
        let claims: Vec<_> =
            self.world.list::<NodeClaim>().await.iter().map(ResourceExt::name_any).collect();
        let alive = self.stage.aws().alive();
        if claims.is_empty() && alive.is_empty() {
            Ok(())
        } else {
            Err(format!("claims {claims:?}, instances {alive:?}"))
        }
    }

    /// Instances are remembered for longer than the day has hours.
    fn no_claim_has_two(&self) {
        let twice = two_at_once(self.stage.aws().lives());
        assert!(twice.is_empty(), "claims with several instances at once: {twice:?}");
    }
}

/// Instances that were launched for a claim while another of it lived. One after the other is no fault: an instance may end by itself
/// before the answer to its launch has arrived.
fn two_at_once(mut lives: Vec<Life>) -> Vec<(Life, Life)> {
    lives.sort_by_key(|life| life.launched);
    let mut latest: BTreeMap<String, Life> = BTreeMap::new();
    let mut found = Vec::new();
    for life in lives {
        let claim = life.tags.get(CLAIM_UID).cloned().unwrap_or_default();
        let Some(before) = latest.remove(&claim) else {
            latest.insert(claim, life);
            continue;
        };
        if before.ended.is_none_or(|ended| life.launched < ended) {
            found.push((before.clone(), life.clone()));
        }
        // The one that lives longer is what the next has to be compared with.
        let outlives =
            before.ended.is_none() || (life.ended.is_some() && life.ended < before.ended);
        latest.insert(claim, if outlives { before } else { life });
    }
    found
}

/// For `-o json`.
impl Day {
    pub fn to_json(self) -> Value {
        json!({
            "limit": self.limit, "peak": self.peak, "launched": self.launched, "calls": self.calls,
            "refused": self.refused, "crashes": self.crashes, "lost": self.lost,
            "launchTemplates": self.launch_templates,
        })
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    #[test]
    fn instances_of_a_claim_may_follow_each_other_but_not_overlap() {
        let life = |claim: &str, launched: i64, ended: Option<i64>| Life {
            id: format!("{claim}{launched}"),
            tags: BTreeMap::from([(CLAIM_UID.to_owned(), claim.to_owned())]),
            launched: Timestamp::constant(launched, 0),
            ended: ended.map(|at| Timestamp::constant(at, 0)),
        };
        let check = |lives: &[Life], overlapping: usize| {
            assert_eq!(two_at_once(lives.to_vec()).len(), overlapping, "{lives:?}");
        };
        check(&[life("a", 0, None), life("b", 0, None)], 0);
        check(&[life("a", 0, Some(5)), life("a", 5, None)], 0);
        check(&[life("a", 5, None), life("a", 0, Some(5))], 0);
        check(&[life("a", 0, None), life("a", 5, None)], 1);
        check(&[life("a", 0, Some(6)), life("a", 5, None)], 1);
        // The first still lives when the third comes.
        check(&[life("a", 0, Some(9)), life("a", 2, Some(4)), life("a", 6, None)], 2);
    }
}
