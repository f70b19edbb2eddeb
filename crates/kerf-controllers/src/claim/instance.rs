//! The instance of a claim: whose it is, and its termination, which both the claim's finalizer and the node's ask for.

use std::fmt;

use k8s_openapi::api::core::v1::Node;
use kerf_api::{
    NodeClaim,
    conditions::{Conditioned, INSTANCE_TERMINATING},
};
use kerf_cluster::Cluster;
use kerf_provider::ProviderError;
use kube::ResourceExt;
use tracing::warn;

use crate::{
    context::Context,
    error::{Error, Result},
};

/// The claim that an instance was launched for. Users can write any provider id into the status of a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    ThisClaim,
    Another(Launcher),
}

/// Another claim, by its name if it is here and by its uid if not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Launcher {
    Named(String),
    WithUid(String),
}

impl fmt::Display for Launcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Named(name) => write!(f, "NodeClaim {name}"),
            Self::WithUid(uid) => write!(f, "a NodeClaim with the uid {uid}"),
        }
    }
}

/// Asks the provider whose the claim's instance is. One that is gone is as good as the claim's own.
pub(crate) async fn owner(context: &Context, claim: &NodeClaim) -> Result<Owner> {
    let provider_id = claim.provider_id();
    if provider_id.is_empty() {
        return Ok(Owner::ThisClaim);
    }
    match context.provider.get(provider_id).await {
        Ok(instance) => Ok(launched_for(claim, instance.claim_uid, &context.index.read())),
        Err(ProviderError::NotFound(_)) => Ok(Owner::ThisClaim),
        Err(source) => {
            let what = format!("looking for the instance {provider_id}");
            Err(Error::Provider { what, source })
        }
    }
}

/// What the provider wrote down decides. Where it wrote nothing, the oldest claim had the instance first.
fn launched_for(claim: &NodeClaim, written: Option<String>, cluster: &Cluster) -> Owner {
    let Some(uid) = written else {
        let age = |one: &NodeClaim| (one.metadata.creation_timestamp.clone(), one.name_any());
        let rivals = cluster.claims_of(claim.provider_id());
        let first = rivals.map(|rival| age(rival)).min().filter(|first| *first < age(claim));
        return first.map_or(Owner::ThisClaim, |(_, name)| Owner::Another(Launcher::Named(name)));
    };
    if claim.metadata.uid.as_ref() == Some(&uid) {
        return Owner::ThisClaim;
    }
    let here = cluster.claims().values().find(|one| one.metadata.uid.as_ref() == Some(&uid));
    let launcher = here.map(|one| Launcher::Named(one.name_any()));
    Owner::Another(launcher.unwrap_or(Launcher::WithUid(uid)))
}

/// Whether something else says that the node is not the claim's: another claim owns it, or has the same instance.
pub(crate) fn is_in_doubt(cluster: &Cluster, claim: &NodeClaim, node: &Node) -> bool {
    is_owned_by_another(node, claim) || cluster.claims_of(claim.provider_id()).nth(1).is_some()
}

/// Whether another claim registered the node.
pub(crate) fn is_owned_by_another(node: &Node, claim: &NodeClaim) -> bool {
    let owners = node.owner_references().iter().filter(|owner| owner.kind == "NodeClaim");
    let mut uids = owners.map(|owner| &owner.uid).peekable();
    uids.peek().is_some() && !uids.any(|uid| Some(uid) == claim.metadata.uid.as_ref())
}

/// Where an instance is after it was asked to go.
pub(crate) enum Ending {
    /// Ask again later.
    UnderWay,
    /// Nothing of it is left; the claim says that it was asked to go, if there was one.
    Over(Box<NodeClaim>),
}

/// Asks the cloud to terminate the claim's instance and notes on the claim that it did. The instance of another claim stays.
pub(crate) async fn terminate(context: &Context, claim: &NodeClaim) -> Result<Ending> {
    if !context.index.read().is_readable(&claim.name_any()) {
        return Err(Error::LeftAlone { claim: claim.name_any() });
    }
    if let Owner::Another(launcher) = owner(context, claim).await? {
        warn!(
            claim = claim.name_any(), provider_id = claim.provider_id(), %launcher,
            "leaving the instance alone, it was launched for another nodeclaim"
        );
        return Ok(Ending::Over(Box::new(claim.clone())));
    }
    let gone = match context.provider.delete(claim).await {
        Ok(()) => false,
        Err(ProviderError::NotFound(_)) => true,
        Err(source) => {
            let what = format!("terminating the instance of NodeClaim {}", claim.name_any());
            return Err(Error::Provider { what, source });
        }
    };
    // Of a claim that never had an instance there is nothing to tell.
    if gone && claim.provider_id().is_empty() {
        return Ok(Ending::Over(Box::new(claim.clone())));
    }
    let mut changed = claim.clone();
    changed.condition_set(context.now()).set_true(INSTANCE_TERMINATING);
    let claim = context.write_status(claim, changed).await?;
    Ok(if gone { Ending::Over(Box::new(claim)) } else { Ending::UnderWay })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn claim(name: &str, created: &str) -> NodeClaim {
        serde_json::from_value(json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
            "metadata": {"name": name, "uid": format!("uid-{name}"), "creationTimestamp": created},
            "spec": {"requirements": [], "nodeClassRef": {"group": "g", "kind": "k", "name": "n"}},
            "status": {"providerID": "shared"},
        }))
        .unwrap()
    }

    #[test]
    fn an_instance_belongs_to_the_claim_that_it_was_launched_for() {
        let (first, second) =
            (claim("z", "2026-01-01T00:00:00Z"), claim("a", "2026-01-02T00:00:00Z"));
        let mut cluster = Cluster::default();
        cluster.apply(first.clone());
        cluster.apply(second.clone());
        let named = |name: &str| Owner::Another(Launcher::Named(name.to_owned()));
        let unknown = || Owner::Another(Launcher::WithUid("uid-x".to_owned()));
        for (claim, written, owner) in [
            (&first, Some("uid-z"), Owner::ThisClaim),
            (&second, Some("uid-z"), named("z")),
            (&first, Some("uid-a"), named("a")),
            (&first, Some("uid-x"), unknown()),
            (&first, None, Owner::ThisClaim),
            (&second, None, named("z")),
        ] {
            let got = launched_for(claim, written.map(str::to_owned), &cluster);
            assert_eq!(got, owner, "{} {written:?}", claim.name_any());
        }
    }

    #[test]
    fn a_node_that_another_claim_registered_is_in_doubt() {
        let node = |owners: &[(&str, &str)]| -> Node {
            let owners = owners.iter().map(
                |(kind, uid)| json!({"apiVersion": "v", "kind": kind, "name": "x", "uid": uid}),
            );
            let owners: Vec<_> = owners.collect();
            serde_json::from_value(json!({"metadata": {"name": "n", "ownerReferences": owners}}))
                .unwrap()
        };
        let claim = claim("a", "2026-01-01T00:00:00Z");
        let mut cluster = Cluster::default();
        cluster.apply(claim.clone());
        for (owners, expected) in [
            (&[][..], false),
            (&[("NodeClaim", "uid-a")], false),
            (&[("NodeClaim", "uid-b"), ("NodeClaim", "uid-a")], false),
            (&[("StateNode", "uid-b")], false),
            (&[("NodeClaim", "uid-b")], true),
        ] {
            assert_eq!(is_in_doubt(&cluster, &claim, &node(owners)), expected, "{owners:?}");
        }
        cluster.apply(self::claim("b", "2026-01-01T00:00:00Z"));
        assert!(is_in_doubt(&cluster, &claim, &node(&[])), "two claims have it");
    }
}
