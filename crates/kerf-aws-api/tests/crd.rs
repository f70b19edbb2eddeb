//! The CRD of EC2NodeClass as a whole; what it accepts and refuses is shown by `kerf-e2e`'s `api_rules`.

use kerf_api::crd;
use kerf_aws_api::additions;

/// One of the numbers changes whenever a rule is lost: 18, 9 and 7 are the core's, the others those of AWS.
#[test]
fn every_rule_is_there() {
    let crds = crd::crds(&[additions()]).into_iter();
    let texts = crds.map(|crd| serde_saphyr::to_string(&crd).unwrap());
    let rules: Vec<usize> = texts.map(|yaml| yaml.matches("- message: ").count()).collect();
    assert_eq!(rules, [18 + 2, 9 + 1, 7, 54, 2]);
}
