//! A snapshot of a cluster on EC2, played with the types of the AWS provider's catalogue.

use kerf_provider::{FlagValues, Provider};
use kerf_provider_aws::Aws;
use kerf_simulation::{BASELINE, Cloud, Policy, Scenario, compare};

const SNAPSHOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/aws/cluster.json");

#[test]
fn a_cluster_on_ec2_is_consolidated_to_ec2_types() {
    let mut scenario = Scenario::from_file(SNAPSHOT.as_ref()).unwrap();
    scenario.cloud = Cloud::new(&Aws, Aws.catalogue(&FlagValues::default()).unwrap());
    scenario.length = "20m".parse().unwrap();
    let names = [BASELINE, "parity"].map(str::to_owned);
    let policies = Policy::named(&names, &[]).unwrap();
    let compared = compare(&scenario, &policies, 1, |_| {}).unwrap();
    let [kept, moved] = &compared.policies[..] else { panic!("{compared:?}") };
    // 6 m5.2xlarge at 0.384, 2 c6i.4xlarge at 0.68 and 2 r6i.xlarge at 0.252.
    assert_eq!((kept.peak_price_per_hour, kept.launched), (4.168, 0), "{kept:?}");
    assert!(moved.evictions > 0 && moved.terminated > 0 && moved.cost < kept.cost, "{moved:?}");
    assert_eq!((kept.pending_at_end, moved.pending_at_end), (0, 0));
    assert!(
        !compared.notes.iter().any(|note| note.contains("not known (")),
        "{:?}",
        compared.notes
    );
}

#[test]
fn a_scenario_without_node_classes_gets_the_types_of_the_cloud() {
    let yaml =
        "length: 10m\npools: [{name: p}]\nworkloads: [{name: web, replicas: 3, pod: {cpu: 1}}]\n";
    let mut scenario = Scenario::from_yaml(yaml, "x.yaml").unwrap();
    scenario.cloud = Cloud::new(&Aws, Aws.catalogue(&FlagValues::default()).unwrap());
    let policies = Policy::named(&["parity".to_owned()], &[]).unwrap();
    let compared = compare(&scenario, &policies, 1, |_| {}).unwrap();
    let summary = &compared.policies[0];
    assert_eq!((summary.pods_started, summary.pending_at_end), (3, 0), "{summary:?}");
    assert!(summary.launched > 0 && summary.cost > 0.0, "{summary:?}");
}
