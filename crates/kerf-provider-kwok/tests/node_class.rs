//! What a KWOKNodeClass may leave out.
#![allow(clippy::unwrap_used, reason = "tests")]

use jiff::Timestamp;
use kerf_api::conditions::{Conditioned, READY, Status};
use kerf_provider_kwok::KwokNodeClass;
use serde_json::json;

#[test]
fn a_kwok_node_class_needs_no_spec() {
    let class: KwokNodeClass = serde_json::from_value(json!({
        "apiVersion": "karpenter.kwok.sh/v1alpha1",
        "kind": "KWOKNodeClass",
        "metadata": { "name": "default" },
    }))
    .unwrap();
    assert_eq!(class.spec.node_registration_delay, None);
    let delayed: KwokNodeClass = serde_json::from_value(json!({
        "metadata": { "name": "default" },
        "spec": { "nodeRegistrationDelay": "5s" },
    }))
    .unwrap();
    assert_eq!(
        serde_json::to_value(delayed.spec).unwrap(),
        json!({ "nodeRegistrationDelay": "5s" })
    );
}

#[test]
fn is_ready_without_dependents_once_something_is_set() {
    let mut class = KwokNodeClass::default();
    class.condition_set(Timestamp::UNIX_EPOCH);
    assert_eq!(class.condition_status(READY), Status::Unknown);
    class.condition_set(Timestamp::UNIX_EPOCH).set_true("Other");
    assert_eq!(class.condition_status(READY), Status::True);
}
