//! The search for cheaper machines, seen from outside.

use std::sync::Arc;

use crate::build::*;
use kerf_model::labels::{CAPACITY_TYPE, ON_DEMAND, SPOT, ZONE};
use kerf_model::{InstanceType, Pool, Snapshot};
use kerf_scheduler::{Options, PACKING, Plan, schedule_cheaply};

fn today(snapshot: &Snapshot) -> Plan {
    schedule_cheaply(snapshot, &Options::default())
}

fn packed(snapshot: &Snapshot) -> Plan {
    schedule_cheaply(snapshot, &Options { packing: PACKING, ..Options::default() })
}

fn priced(name: &str, cpu: u32, price: f64) -> Arc<InstanceType> {
    let capacity = format!("cpu={cpu} memory={}Gi pods=110", 4 * cpu);
    TypeSpec { price: Some(price), ..instance_type(name, &capacity) }.build()
}

/// Per core the small machine costs a fifth less.
fn small_is_cheap() -> Pool {
    let instance_types = vec![priced("small", 4, 1.0), priced("large", 64, 20.0)];
    Pool { instance_types, ..pool("default") }
}

#[test]
fn the_size_with_the_best_price_is_bought() {
    let snapshot = cluster(vec![small_is_cheap()], replicas(32, &pod("web").requests("cpu=1900m")));
    assert_eq!(cheapest_types(&today(&snapshot)), ["large"]);
    assert_eq!(cheapest_types(&packed(&snapshot)), vec!["small"; 16]);
}

#[test]
fn leftovers_go_to_room_that_is_paid_for() {
    let large = pod("large").requests("cpu=1900m");
    // Room for two of them beside a pod that is there already, and for what is left then.
    let nodes = || vec![node("first", "", "cpu=4"), node("second", "", "cpu=2")];
    let on_nodes = |plan: &Plan| -> Vec<(String, usize)> {
        let each = plan.placements.iter();
        each.map(|placement| (placement.node.name.clone(), placement.pods.len())).collect()
    };
    for (larges, smalls, expect, machines) in [
        // All of the nodes' room is used before anything is bought.
        (33, 0, vec![("first", 2), ("second", 1)], 15),
        (33, 3, vec![("first", 4), ("second", 2)], 15),
        // Not even a machine that would be bought anyway gets what a node has room for.
        (32, 2, vec![("first", 4), ("second", 1)], 15),
        (0, 3, vec![("first", 3)], 0),
    ] {
        let mut pods = replicas(larges, &large);
        pods.extend(replicas(smalls, &pod("small").requests("cpu=100m")));
        let snapshot = with_nodes(cluster(vec![small_is_cheap()], pods), nodes());
        let plan = packed(&snapshot);
        let expect: Vec<_> =
            expect.into_iter().map(|(name, pods)| (name.to_owned(), pods)).collect();
        assert_eq!(on_nodes(&plan), expect, "{larges} and {smalls}");
        assert_eq!(on_nodes(&plan), on_nodes(&today(&snapshot)), "{larges} and {smalls}");
        assert_eq!(plan.claims.len(), machines, "{larges} and {smalls}");
        assert!(plan.failures.is_empty());
    }
}

#[test]
fn a_machine_may_be_any_type_that_holds_its_pods() {
    let mut instance_types = vec![priced("bargain", 4, 0.5), priced("large", 64, 20.0)];
    for (at, cores) in [4, 4, 5, 6, 8, 16].into_iter().enumerate() {
        instance_types.push(priced(&format!("other-{at}"), cores, 1.0 + f64::from(cores)));
    }
    let choice = instance_types.len();
    for terms in [SPOT, ON_DEMAND] {
        let requirements = requirements(&format!("{CAPACITY_TYPE} In {terms}"));
        let pool = Pool { instance_types: instance_types.clone(), requirements, ..pool("default") };
        let pods = replicas(32, &pod("web").requests("cpu=1900m"));
        let snapshot = cluster(vec![pool], pods);
        let plan = packed(&snapshot);
        assert_eq!(cheapest_types(&plan), vec!["bargain"; 16]);
        for claim in &plan.claims {
            assert_eq!(claim.instance_types.len(), choice, "{terms}");
        }
        let least = today(&snapshot).claims.iter().map(|claim| claim.instance_types.len()).min();
        assert!(least < Some(choice), "there was less to choose from: {least:?}");
    }
}

#[test]
fn pods_that_may_go_anywhere_are_not_kept_to_a_zone() {
    let spread = pod("spread").labels("app=a").requests("cpu=1950m").spread(ZONE, 1, "app=a");
    let mut pods = replicas(6, &spread);
    pods.extend(replicas(30, &pod("anywhere").requests("cpu=1900m")));
    let plan = packed(&cluster(vec![small_is_cheap()], pods));
    assert_eq!(cheapest_types(&plan), vec!["small"; 18]);
    let mut open = 0;
    for claim in &plan.claims {
        let is_spread = claim.pods.iter().any(|pod| pod.name.starts_with("spread"));
        let zones = claim.requirements.get(ZONE).and_then(kerf_model::Requirement::only_value);
        assert_eq!(zones.is_some(), is_spread, "{}", claim.requirements);
        open += usize::from(!is_spread);
    }
    assert!(open >= 12, "{open} claims may be in any zone");
}

/// Starting a machine is worth a cent per hour.
#[test]
fn a_machine_more_has_to_save_something() {
    for (price_of_small, expect) in
        [(0.51, vec!["large"]), (0.499, vec!["large"]), (0.49, vec!["small", "small"])]
    {
        let instance_types = vec![priced("small", 2, price_of_small), priced("large", 4, 1.0)];
        let pool = Pool { instance_types, ..pool("default") };
        let pods = replicas(2, &pod("web").requests("cpu=1900m"));
        assert_eq!(cheapest_types(&packed(&cluster(vec![pool], pods))), expect, "{price_of_small}");
    }
}

#[test]
fn virtual_pods_do_not_choose_machines() {
    let of_buffer = |pod: Arc<kerf_model::Pod>| {
        Arc::new(kerf_model::Pod { buffer: Some("b".into()), ..(*pod).clone() })
    };
    let mut snapshot = cluster(vec![small_is_cheap()], vec![]);
    let pods = replicas(32, &pod("web").requests("cpu=1900m"));
    snapshot.virtual_pods = pods.into_iter().map(of_buffer).collect();
    assert_eq!(cheapest_types(&packed(&snapshot)), ["large"]);
}
