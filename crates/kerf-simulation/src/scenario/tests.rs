//! What a scenario file may say.

use super::*;

const SMALL: &str = "length: 1h\npools: [{name: default}]\n";

fn refusal(text: &str) -> String {
    match Scenario::from_yaml(text, "x.yaml") {
        Ok(_) => "accepted".to_owned(),
        Err(error) => error.to_string(),
    }
}

#[test]
fn the_smallest_scenario_has_a_length_pools_and_workloads() {
    let scenario = Scenario::from_yaml(&format!("{SMALL}workloads: []\n"), "x.yaml").unwrap();
    assert_eq!(scenario.start.to_string(), "2026-01-01T00:00:00Z");
    assert_eq!(scenario.timing.node_ready.as_str(), "40s");
}

#[test]
fn what_is_wrong_is_told_with_its_place() {
    let types = |entry: &str| format!("{SMALL}workloads: []\ninstanceTypes: [{entry}]\n");
    let web = |rest: &str| format!("{SMALL}workloads: [{{name: web, {rest}}}]\n");
    for (text, expected) in [
        (
            "",
            "x.yaml is empty; write a scenario (docs/simulate.md has the format), or take a snapshot",
        ),
        ("# nothing but a comment\n", "x.yaml is empty; "),
        ("length: [", "x.yaml:1: it is not YAML: "),
        ("length: 1h\n", "x.yaml, at the top level: missing field `pools`"),
        ("length: soon\n", "x.yaml:1, at length: \"soon\" is not a duration"),
        (
            "length: 1h\nworkloads: []\npools:\n  - name: a\n    spec:\n      disruption:\n        consolidationSavingsTreshold: 1\n",
            "x.yaml:7, at pools[0].spec.disruption.consolidationSavingsTreshold: unknown field \
             \"spec.disruption.consolidationSavingsTreshold\"",
        ),
        (
            "length: 1h\nworkloads: []\npools:\n  - name: a\n    changes:\n      - {at: 1m, spec: {weight: 1000}}\n",
            "x.yaml:6, at pools[0].changes[0].spec.weight: spec.weight: Invalid value: 1000: ",
        ),
        (
            "length: 1h\nworkloads: []\npools: [{name: a, spec: {replicas: -5}}]\n",
            "x.yaml:3, at pools[0].spec.replicas: spec.replicas: Invalid value: -5: ",
        ),
        (
            "length: 1h\nworkloads: []\npools: [{name: a, spec: {replicas: 2000000000}}]\n",
            "x.yaml:3, at pools[0].spec.replicas: a simulation has at most 5000 nodes",
        ),
        (
            &web("replicas: 2000000000"),
            "at workloads[0].replicas: a simulation has at most 150000 pods",
        ),
        (
            &web("daily: {low: 3, high: 2000000000}"),
            "at workloads[0].daily.high: a simulation has at most",
        ),
        (
            &web("replicas: 1, steps: [{at: 1m, replicas: 2000000000}]"),
            "at workloads[0].steps: a simulation has at most",
        ),
        (
            &web("cron: {schedule: '0 * * * *', runsFor: 1m, pods: 2000000000}"),
            "at workloads[0].cron.pods: a simulation has at most",
        ),
        ("length: 1h\npools: []\nworkloads: []\n", "at pools: there is no pool"),
        (&format!("{SMALL}workloads: []\nwrkloads: []\n"), "at wrkloads: unknown field `wrkloads`"),
        (&web("replicas: 1, replica: 2"), "at workloads[0].replica: unknown field `replica`"),
        (&web("pod: {cpu: 1}"), "at workloads[0].replicas: the number of pods is missing"),
        (&web("replicas: 1, daily: {low: 1, high: 2}"), "at workloads[0].replicas: "),
        (&web("daily: {low: 3, high: 2}"), "at workloads[0].daily: low is above high"),
        (&web("replicas: 1, pod: {cpu: lots}"), "at workloads[0].pod.cpu: \"lots\""),
        (
            &web("cron: {schedule: hourly, runsFor: 1m}"),
            "at workloads[0].cron.schedule: write five fields, such as \"*/10 * * * *\"",
        ),
        (
            &web("cron: {schedule: '61 * * * *', runsFor: 1m}"),
            "at workloads[0].cron.schedule: \"61 * * * *\" is no schedule: ",
        ),
        (
            &web("cron: {schedule: '0 0 31 2 *', runsFor: 1m}"),
            "at workloads[0].cron.schedule: \"0 0 31 2 *\" never occurs",
        ),
        (
            &types("{name: a, cpu: 1, memory: 1Gi, price: -0.1}"),
            "at instanceTypes[0].price: write dollars per hour above 0",
        ),
        (
            &types("{name: a, cpu: 1, memory: 1Gi, price: 0.1, spotPrice: 0}"),
            "at instanceTypes[0].spotPrice: ",
        ),
        (&types("{name: a, cpu: 0, memory: 1Gi, price: 1}"), "at instanceTypes[0].cpu: "),
        (&types("{name: a, cpu: 1, memory: much, price: 1}"), "at instanceTypes[0].memory: "),
        (
            &types("{name: a, cpu: 1, memory: 1Gi, price: 1, zones: []}"),
            "at instanceTypes[0].zones: the list of zones is empty",
        ),
        (
            &format!("{SMALL}workloads: [{{name: a, replicas: 1}}, {{name: a, replicas: 1}}]\n"),
            "at workloads: the name a is listed twice",
        ),
        (
            &format!("{SMALL}workloads: []\nprices: [{{wander: {{percent: 900, every: 1m}}}}]\n"),
            "at prices[0].wander.percent: write a number between 0 and 100",
        ),
        (
            &format!(
                "{SMALL}workloads: []\nprices: [{{steps: [{{at: 2h, factor: 2}}, {{at: 1h, factor: 3}}]}}]\n"
            ),
            "at prices[0].steps: they are not in chronological order",
        ),
    ] {
        let told = refusal(text);
        assert!(told.contains(expected), "{text}\ntold {told}\nnot {expected}");
    }
}
