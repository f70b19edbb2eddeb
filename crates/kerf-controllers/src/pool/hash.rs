//! Moving claims to a new way of hashing, so that an upgrade does not make a fleet drift.

use std::sync::Arc;

use kerf_api::{
    NodeClaim, NodePool, ObjectExt, annotations,
    conditions::{Conditioned, DRIFTED},
    hash::HASH_VERSION,
};
use kerf_runtime::Lock;
use kube::ResourceExt;

use crate::{context::Context, error::Result};

/// Stamps the claims of a pool whose own hash is of another version. Comes before the pool gets its new hash: were it the
/// other way round and cut short, hashes of two kinds would be compared.
pub(super) async fn migrate(context: &Context, pool: &NodePool) -> Result<()> {
    if version(pool.annotations()) == Some(HASH_VERSION) {
        return Ok(());
    }
    let name = pool.name_any();
    let claims: Vec<Arc<NodeClaim>> = {
        let cluster = context.index.read();
        let claims = cluster.claims().values();
        claims.filter(|claim| claim.node_pool() == Some(&name)).cloned().collect()
    };
    for claim in &claims {
        let Some(stamped) = stamped(claim, pool) else { continue };
        let what = || format!("stamping NodeClaim {}", claim.name_any());
        context.write_claim(claim, stamped, Lock::None, what).await?;
    }
    Ok(())
}

/// The claim with the new version, and with the pool's hash unless it has drifted: then it stays drifted.
fn stamped(claim: &NodeClaim, pool: &NodePool) -> Option<NodeClaim> {
    if version(claim.annotations()) == Some(HASH_VERSION) {
        return None;
    }
    let mut stamped = claim.clone();
    let annotations = stamped.annotations_mut();
    annotations.insert(annotations::NODE_POOL_HASH_VERSION.into(), HASH_VERSION.into());
    if claim.condition(DRIFTED).is_none() {
        annotations.insert(annotations::NODE_POOL_HASH.into(), pool.hash());
    }
    Some(stamped)
}

fn version(annotations: &std::collections::BTreeMap<String, String>) -> Option<&str> {
    annotations.get(annotations::NODE_POOL_HASH_VERSION).map(String::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::Timestamp;

    fn claim(version: &str, hash: &str) -> NodeClaim {
        let mut claim = NodeClaim::default();
        let annotations = claim.annotations_mut();
        annotations.insert(annotations::NODE_POOL_HASH_VERSION.into(), version.into());
        annotations.insert(annotations::NODE_POOL_HASH.into(), hash.into());
        claim
    }

    #[test]
    fn claims_of_another_version_get_the_new_hash_unless_they_have_drifted() {
        let pool = NodePool::default();
        let hash = |claim: &NodeClaim| claim.annotations()[annotations::NODE_POOL_HASH].clone();
        assert_eq!(stamped(&claim(HASH_VERSION, "old"), &pool), None);
        let moved = stamped(&claim("v2", "old"), &pool).unwrap();
        assert_eq!((version(moved.annotations()), hash(&moved)), (Some(HASH_VERSION), pool.hash()));
        let mut drifted = claim("v2", "old");
        drifted.condition_set(Timestamp::UNIX_EPOCH).set_true(DRIFTED);
        let moved = stamped(&drifted, &pool).unwrap();
        assert_eq!(
            (version(moved.annotations()), hash(&moved)),
            (Some(HASH_VERSION), "old".into())
        );
    }
}
