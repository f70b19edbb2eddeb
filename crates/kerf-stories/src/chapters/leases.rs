//! Two operators and one lease: whoever loses it stops, the other one takes over, and nothing is done twice.

use std::time::Duration;

use jiff::SignedDuration;
use k8s_openapi::api::{coordination::v1::Lease, core::v1::Pod};
use kerf_api::{
    NodeClaim,
    conditions::{Conditioned, LAUNCHED},
};
use kerf_controllers::Settings;
use kerf_runtime::{
    election::{Lost, Timing},
    leadership::Ended,
};
use kerf_testbed::{Fault, Faults, Matching, Write};
use kube::ResourceExt;
use serde_json::json;
use tokio::time::Instant;

use super::{all_run, launching::gone, no_node, one_ready_node, with_pool};
use crate::{Contender, World, build, contender::LEASE};

/// The node of a launched instance takes longer to appear than a lease to change hands.
const SLOW_LAUNCH: &str = "45s";

/// Nothing gets through to the lease any more, and everything else does.
pub async fn a_lease_that_cannot_be_renewed_ends_its_holder_before_the_next_begins() {
    let world = world();
    let [mut first, _second] = contenders(&world).await;
    launch_slowly(&world).await;
    first.faults.at_rate(1.0, Matching::any().resource("leases"), Fault::InternalError);
    let (cut, end) = (Instant::now(), first.ended().await);
    assert!(matches!(end.why, Err(Ended::Lost(Lost::NotRenewed { .. }))), "{:?}", end.why);
    let Timing { lease, renew_deadline, .. } = Timing::default();
    assert!(end.at - cut <= renew_deadline, "it went on for {:?}", end.at - cut);
    let left = held_by("first")(&world).await.unwrap_or_else(|taken| panic!("{taken}"));
    let renewed = left.spec.and_then(|spec| spec.renew_time).map(|time| time.0);
    world.until("the other leads", held_by("second")).await;
    let waited = renewed.map(|renewed| world.now().duration_since(renewed));
    assert!(waited >= SignedDuration::try_from(lease).ok(), "it took the lease after {waited:?}");
    goes_on(&world).await;
    assert_eq!(first.faults.calls(), end.calls, "it acted after its end");
}

/// Somebody gives the lease to the other operator while its holder is at work.
pub async fn a_lease_that_is_taken_ends_its_holder_at_once() {
    let world = world();
    let [mut first, _second] = contenders(&world).await;
    launch_slowly(&world).await;
    let lease = world.until("the first leads", held_by("first")).await;
    world.patch(&lease, json!({"spec": {"holderIdentity": "second"}})).await;
    let (taken, end) = (Instant::now(), first.ended().await);
    let holder = match &end.why {
        Err(Ended::Lost(Lost::Taken { holder, .. })) => holder,
        other => panic!("{other:?}"),
    };
    assert_eq!(holder, "second");
    let waited = end.at - taken;
    assert!(waited <= Timing::default().retry, "noticed after {waited:?}");
    goes_on(&world).await;
    assert_eq!(first.faults.calls(), end.calls, "it acted after its end");
    world.until("the other leads", held_by("second")).await;
}

/// The machine of the leader is suspended while it is about to launch a node, for longer than the lease lasts: another
/// leads when it wakes up. No timer of its own has run, and the next look at the lease is up to two seconds away; it
/// writes nothing all the same, and ends.
pub async fn a_leader_that_was_suspended_writes_nothing_afterwards(suspended_after: Duration) {
    let world = world();
    let [mut first, _second] = contenders(&world).await;
    with_pool(&world, &json!({})).await;
    world.create(build::pod("a", &json!({}))).await;
    world.pass(suspended_after).await;
    first.clock.suspend(Duration::from_secs(40));
    let lease = held_by("first")(&world).await.unwrap_or_else(|taken| panic!("{taken}"));
    world.patch(&lease, json!({"spec": {"holderIdentity": "second"}})).await;
    let written = first.faults.writes();
    let end = first.ended().await;
    assert!(matches!(end.why, Err(Ended::Lost(_) | Ended::Fenced(_))), "{:?}", end.why);
    goes_on(&world).await;
    assert_eq!(first.faults.writes(), written, "it wrote after another had taken over");
}

/// An operator that is asked to stop gives the lease back, and the next need not wait for it to run out.
pub async fn a_lease_that_is_given_back_is_taken_at_once() {
    let world = world();
    let [mut first, _second] = contenders(&world).await;
    launch_slowly(&world).await;
    let end = first.stop().await;
    assert!(end.why.is_ok(), "{:?}", end.why);
    world.until("the other leads", held_by("second")).await;
    let waited = end.at.elapsed();
    assert!(waited < Timing::default().retry, "the lease lay about for {waited:?}");
    goes_on(&world).await;
    assert_eq!(first.faults.calls(), end.calls, "it acted after its end");
}

/// Renew times that are minutes old or ahead, many times the length of a lease, are no reason to take a lease or to leave
/// it, and an operator whose clock is wrong goes on with what another one began. More than the five minutes that a launch
/// may take would matter: the age of a claim is told by the clock of the API server and judged by that of the operator.
pub async fn clocks_that_are_minutes_apart_do_not_matter(first: i64, second: i64) {
    let world = world();
    let skewed = |identity: &str, minutes: i64| {
        world.contend(identity, SignedDuration::from_mins(minutes), Faults::seeded(7))
    };
    let mut first = skewed("first", first);
    world.until("the first leads", held_by("first")).await;
    let mut second = skewed("second", second);
    with_pool(&world, &json!({})).await;
    world.create(build::pod("a", &json!({}))).await;
    world.until("the pod runs", async |world: &World| all_run(world, 1).await).await;
    world.pass(Duration::from_mins(10)).await;
    let lease = held_by("first")(&world).await.unwrap_or_else(|taken| panic!("{taken}"));
    let transitions = lease.spec.and_then(|spec| spec.lease_transitions);
    assert_eq!(transitions, Some(0), "the lease went to and fro");
    first.faults.at_rate(1.0, Matching::any().resource("leases"), Fault::InternalError);
    let end = first.ended().await;
    world.until("the other leads", held_by("second")).await;
    goes_on(&world).await;
    assert_eq!(first.faults.calls(), end.calls, "it acted after its end");
    assert!(second.stop().await.why.is_ok());
}

/// From a certain call on, the first operator hears nothing more from the API server. A second one takes over, and the node's
/// life goes on to its end. Returns how many calls the first one made.
pub async fn a_life_in_which_the_leader_is_cut_off(from: Option<u64>, cut: Fault) -> u64 {
    let world = world();
    let faults = Faults::seeded(7);
    if let Some(from) = from {
        faults.from_call(from, Matching::any(), cut);
    }
    let first = world.contend("first", SignedDuration::ZERO, faults);
    let _second = world.contend("second", SignedDuration::ZERO, Faults::seeded(7));
    with_pool(&world, &json!({})).await;
    world.create(build::pod("a", &json!({}))).await;
    goes_on(&world).await;
    first.faults.calls()
}

fn world() -> World {
    World::without_operators(7, Settings::default())
}

/// Two operators, of which the first leads.
async fn contenders(world: &World) -> [Contender; 2] {
    let start = |identity| world.contend(identity, SignedDuration::ZERO, Faults::seeded(7));
    let first = start("first");
    world.until("the first leads", held_by("first")).await;
    [first, start("second")]
}

/// A pod waits for a node that takes longer to appear than a lease to change hands.
async fn launch_slowly(world: &World) {
    let slow = json!({"nodeRegistrationDelay": SLOW_LAUNCH});
    world.create(build::node_class("default", &slow)).await;
    world.create(build::pool("default", &json!({}))).await;
    world.create(build::pod("a", &json!({}))).await;
    world
        .until("a claim is launched", async |world: &World| {
            let claim = world.only::<NodeClaim>().await?;
            if claim.is_true(LAUNCHED) { Ok(()) } else { Err("not launched".into()) }
        })
        .await;
}

/// The one node comes, runs its pod, and goes when its claim is deleted. Nothing was launched twice on the way.
async fn goes_on(world: &World) {
    world.until("the pod runs", async |world: &World| all_run(world, 1).await).await;
    let (claim, _) = world.until("the node is ready", one_ready_node).await;
    // A pod that is drained may be planned for elsewhere before it is evicted.
    let pod = world.until("there is the pod", World::only::<Pod>).await;
    world.delete(&pod).await;
    world.until("the pod is gone", gone(&pod)).await;
    world.delete(&claim).await;
    world.until("everything is gone", no_node).await;
    let log = world.event_log();
    for resource in ["nodeclaims.karpenter.sh", "nodes"] {
        let writes = log.entries().iter().filter(|entry| &*entry.resource == resource);
        let created = writes.filter(|entry| entry.what == Write::Created).count();
        assert_eq!(created, 1, "{resource}:\n{log}");
    }
}

/// The lease, if that one holds it.
fn held_by(identity: &str) -> impl AsyncFn(&World) -> Result<Lease, String> {
    async move |world: &World| {
        let leases = world.list::<Lease>().await;
        let lease = leases.into_iter().find(|lease| lease.name_any() == LEASE);
        let lease = lease.ok_or("there is no lease")?;
        let holder = lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref());
        if holder == Some(identity) { Ok(lease) } else { Err(format!("{holder:?} holds it")) }
    }
}
