//! Moving claims to a new hash version, so that an upgrade does not make all nodes drift.

use std::sync::Arc;

use kerf_api::{NodeClaim, NodePool, ObjectExt, hash::NODE_POOL};
use kerf_runtime::Lock;
use kube::ResourceExt;

use crate::{context::Context, error::Result};

/// Stamps the claims of a pool whose own hash is of another version. Comes before the pool gets its new hash: were it the
/// other way round and cut short, hashes of two kinds would be compared.
pub(super) async fn migrate(context: &Context, pool: &NodePool) -> Result<()> {
    if NODE_POOL.is_current(pool.annotations()) {
        return Ok(());
    }
    let (name, hash) = (pool.name_any(), pool.hash());
    let claims: Vec<Arc<NodeClaim>> = {
        let cluster = context.index.read();
        let claims = cluster.claims().values();
        claims.filter(|claim| claim.node_pool() == Some(&name)).cloned().collect()
    };
    for claim in &claims {
        let Some(stamped) = NODE_POOL.restamped(claim, &hash) else { continue };
        let what = || format!("stamping NodeClaim {}", claim.name_any());
        context.write_claim(claim, stamped, Lock::None, what).await?;
    }
    Ok(())
}
