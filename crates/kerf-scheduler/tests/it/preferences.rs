//! What is given up, and in which order.

use crate::build::*;
use k8s_openapi::serde_json::json;
use kerf_model::labels::{INSTANCE_TYPE, ZONE};
use kerf_model::{Pool, Requirement};
use kerf_scheduler::{Options, Plan, PreferencePolicy, schedule};

fn ignoring() -> Options {
    Options { preferences: PreferencePolicy::Ignore, ..Options::default() }
}

fn zone(plan: &Plan) -> Option<String> {
    let claim = plan.claims.first()?;
    claim.requirements.get(ZONE).and_then(Requirement::only_value).map(str::to_owned)
}

fn zone_of(pod: PodSpec) -> Option<String> {
    let plan = plan(&cluster(vec![pool("default")], vec![pod.build()]));
    zone(&plan)
}

#[test]
fn required_terms_are_tried_in_turn() {
    let in_zone = |zone: &str| format!("{ZONE} In {zone}");
    let several = pod("web")
        .requires(&in_zone("invalid"))
        .requires(&in_zone("also-invalid"))
        .requires(&in_zone("test-zone-2"))
        .requires(&in_zone("test-zone-1"));
    assert_eq!(zone_of(several).as_deref(), Some("test-zone-2"));
    let last = pod("web").requires(&in_zone("invalid")).requires(&in_zone("also-invalid"));
    assert_eq!(zone_of(last), None, "the last term is never dropped");
}

#[test]
fn preferences_yield_from_the_heaviest_on() {
    let in_zone = |zone: &str| format!("{ZONE} In {zone}");
    let lighter = pod("web")
        .prefers(100, &in_zone("invalid"))
        .prefers(50, &in_zone("test-zone-2"))
        .prefers(1, &in_zone("test-zone-1"));
    assert_eq!(zone_of(lighter).as_deref(), Some("test-zone-2"));
    let none = pod("web").prefers(2, &in_zone("invalid")).prefers(1, &in_zone("also-invalid"));
    assert_eq!(plan(&cluster(vec![pool("default")], vec![none.build()])).claims.len(), 1);
    let conflicting =
        pod("web").requires(&in_zone("test-zone-1")).prefers(1, &in_zone("test-zone-2"));
    assert_eq!(zone_of(conflicting).as_deref(), Some("test-zone-1"));
    let excluded = pod("web")
        .requires(&format!("{ZONE} NotIn test-zone-1"))
        .prefers(1, &in_zone("test-zone-1"));
    assert!(zone_of(excluded).is_none());
    let both = pod("web")
        .prefers(1, &format!("{ZONE} In test-zone-1; {INSTANCE_TYPE} In unknown"))
        .prefers(1, &format!("{ZONE} In test-zone-3"));
    assert_eq!(zone_of(both).as_deref(), Some("test-zone-3"));
}

#[test]
fn compatible_preferences_count() {
    let pod = pod("web")
        .requires(&format!("{ZONE} In test-zone-1 test-zone-2"))
        .prefers(1, &format!("{ZONE} In test-zone-2 test-zone-3"));
    assert_eq!(zone_of(pod).as_deref(), Some("test-zone-2"));
}

#[test]
fn a_preference_against_a_requirement_is_not_met_by_a_missing_label() {
    let torn = pod("web").requires("team In red").prefers(1, "team In blue").build();
    let plan_of = |label_text: &str| {
        let snapshot = with_nodes(
            cluster(vec![], vec![std::sync::Arc::clone(&torn)]),
            vec![node("n", label_text, "")],
        );
        plan(&snapshot).placements.len()
    };
    assert_eq!(plan_of(""), 0);
    assert_eq!(plan_of("team=blue"), 0);
    assert_eq!(plan_of("team=red"), 1);
}

#[test]
fn soft_taints_are_tolerated_last() {
    let soft = Pool { taints: vec![taint("soft:PreferNoSchedule")], ..pool("default") };
    let plan_soft = plan(&cluster(vec![soft.clone()], vec![pod("web").build()]));
    assert_eq!(plan_soft.claims.len(), 1);
    let free = Pool { weight: -1, ..pool("other") };
    let plan_free = plan(&cluster(vec![soft.clone(), free.clone()], vec![pod("web").build()]));
    assert_eq!(plan_free.claims[0].pool.name, "other", "avoided while there is another");
    // The preference is dropped before the taint is tolerated.
    let picky = pod("web").prefers(1, "kubernetes.io/arch In unknown").build();
    let plan_picky = plan(&cluster(vec![soft, free], vec![picky]));
    assert_eq!(plan_picky.claims[0].pool.name, "other");
}

#[test]
fn soft_spread_yields() {
    let soft = json!({"whenUnsatisfiable": "ScheduleAnyway"});
    let template = pod("web").labels("app=web").spread_with(ZONE, 1, "app=web", &soft);
    let one =
        Pool { requirements: requirements(&format!("{ZONE} In test-zone-1")), ..pool("default") };
    let elsewhere = node("n", &format!("{ZONE}=test-zone-2"), "cpu=0 pods=0");
    let plan = plan(&with_nodes(cluster(vec![one], replicas(4, &template)), vec![elsewhere]));
    assert!(plan.failures.is_empty());
}

#[test]
fn ignored_preferences_leave_no_trace() {
    let check = |pod: PodSpec| {
        let pools = vec![Pool { instance_types: many_types(20), ..crate::build::pool("default") }];
        let plan = schedule(&cluster(pools, replicas(4, &pod)), &ignoring());
        assert_eq!((plan.claims.len(), plan.failures.len()), (1, 0));
        assert!(!plan.claims[0].requirements.has(ZONE));
    };
    let web = || pod("web").labels("app=web");
    check(web().prefers(1, &format!("{ZONE} In test-zone-1")));
    let soft = || json!({"whenUnsatisfiable": "ScheduleAnyway"});
    check(web().spread_with(ZONE, 1, "app=web", &soft()));
    check(web().spread_with(HOSTNAME, 1, "app=web", &soft()));
    check(web().prefers_pods("podAntiAffinity", 1, HOSTNAME, "app=web"));
    check(web().prefers_pods("podAffinity", 1, ZONE, "app=nobody"));
    // Required alternatives are still tried in turn.
    let terms =
        web().requires(&format!("{ZONE} In invalid")).requires(&format!("{ZONE} In test-zone-2"));
    let plan = schedule(&cluster(vec![pool("default")], vec![terms.build()]), &ignoring());
    assert_eq!(zone(&plan).as_deref(), Some("test-zone-2"));
}

#[test]
fn a_preference_does_not_narrow_where_pods_are_counted() {
    let template = pod("web")
        .labels("app=web")
        .requests("cpu=1")
        .spread(ZONE, 1, "app=web")
        .prefers(1, &format!("{ZONE} In test-zone-1"));
    let pools = vec![Pool { instance_types: many_types(20), ..pool("default") }];
    let plan = plan(&cluster(pools, replicas(3, &template)));
    assert_eq!(spread_of(&plan, ZONE), [1, 1, 1]);
}
