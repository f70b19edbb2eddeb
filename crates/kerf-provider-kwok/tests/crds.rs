//! The CRDs have all the rules that they should have.

use kerf_api::crds_without_provider;
use kerf_provider_kwok::crds;

/// One of the numbers changes whenever a rule is lost: 18, 9 and 7 are Karpenter's, the other ones the
/// KWOK provider's, and 2 those of CapacityBuffers.
#[test]
fn every_rule_is_there() {
    let rules = |crds: Vec<_>| -> Vec<usize> {
        let yaml = |crd| serde_saphyr::to_string(&crd).unwrap();
        crds.into_iter().map(|crd| yaml(crd).matches("- message: ").count()).collect()
    };
    assert_eq!(rules(crds()), [18 + 1, 9 + 1, 7, 0, 2]);
    assert_eq!(rules(crds_without_provider()), [18, 9, 7]);
}
