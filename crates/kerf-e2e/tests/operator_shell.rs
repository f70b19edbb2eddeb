//! `kerf run` as a process on a real API server: who leads, and who takes over when.

use std::process::Command;

use jiff::SignedDuration;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use kerf_control_plane::Profile;
use kerf_e2e::{
    install,
    operator::{Operator, kerf},
    start,
};
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::json;

const LEASE: &str = "karpenter-leader-election";

#[tokio::test]
async fn without_custom_resources_it_says_how_to_install_them() {
    let cluster = start(Profile::ApiOnly).await;
    let mut operator = Operator::start(&cluster);
    let error = operator.line(|line| line["level"] == "ERROR");
    assert_eq!(
        error["message"],
        "the cluster does not have the custom resources nodepools.karpenter.sh (v1), \
         nodeclaims.karpenter.sh (v1), kwoknodeclasses.karpenter.kwok.sh (v1alpha1); \
         install them with: kerf crds | kubectl apply -f -"
    );
    assert_eq!(operator.exit_code(), Some(1));

    let crds = Command::new(kerf()).arg("crds").output().unwrap().stdout;
    install(&cluster, &String::from_utf8(crds).unwrap()).await;
    let mut operator = Operator::start(&cluster);
    operator.message("caches are synced");
    operator.signal("TERM");
    assert_eq!(operator.exit_code(), Some(0));
}

#[tokio::test]
async fn of_several_operators_one_leads_and_another_takes_over() {
    let cluster = start(Profile::ApiOnly).await;
    install(&cluster, &kerf_api::crds_yaml(kerf_provider_kwok::crds()).unwrap()).await;
    let leases: Api<Lease> = Api::namespaced(cluster.client(), "default");
    let spec = async || leases.get(LEASE).await.unwrap().spec.unwrap();

    let mut first = Operator::start(&cluster);
    let first_name = first.leading();
    first.message("starting controllers");
    first.ready().unwrap();
    let mut second = Operator::start(&cluster);
    let standing_by = second.message("standing by");
    assert_eq!(standing_by["holder"], first_name);
    second.message("caches are synced");
    second.ready().unwrap();
    assert!(first.metric("leader_election_master_status").ends_with(" 1"));
    assert!(second.metric("leader_election_master_status").ends_with(" 0"));
    let at_first = spec().await;
    assert_eq!(at_first.holder_identity.as_deref(), Some(first_name.as_str()));
    assert_eq!(at_first.lease_transitions, Some(0));

    // Killed: the lease has to run out first. All processes share one clock here, so that the times in
    // the lease can be compared.
    first.signal("KILL");
    assert_eq!(first.exit_code(), None);
    let last_renewed = spec().await.renew_time.unwrap().0;
    let second_name = second.leading();
    second.message("starting controllers");
    let taken = spec().await;
    assert_eq!(taken.holder_identity.as_deref(), Some(second_name.as_str()));
    assert_eq!(taken.lease_transitions, Some(1));
    let gap = taken.acquire_time.unwrap().0.duration_since(last_renewed);
    assert!(gap >= SignedDuration::from_secs(15), "{gap:?}");

    // Asked to stop: at the next look.
    let mut third = Operator::start(&cluster);
    third.message("standing by");
    second.signal("TERM");
    second.message("released the lease");
    assert_eq!(second.exit_code(), Some(0));
    let third_name = third.leading();
    let LeaseSpec { holder_identity, lease_transitions, .. } = spec().await;
    assert_eq!(holder_identity.as_deref(), Some(third_name.as_str()));
    assert_eq!(lease_transitions, Some(2));

    // Robbed: it stops by itself.
    let theft = json!({"spec": {"holderIdentity": "a thief"}});
    leases.patch(LEASE, &PatchParams::default(), &Patch::Merge(theft)).await.unwrap();
    let error = third.line(|line| line["level"] == "ERROR");
    assert_eq!(error["message"], "lost the lease karpenter-leader-election to a thief");
    assert_eq!(third.exit_code(), Some(1));
}
