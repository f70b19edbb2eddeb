//! The end of an instance, asked for by the claim's own finalizer and by the end of its node alike.

use kerf_api::{
    NodeClaim,
    conditions::{Conditioned, INSTANCE_TERMINATING},
};
use kerf_provider::ProviderError;
use kube::ResourceExt;

use crate::{
    context::Context,
    error::{Error, Result},
};

/// Where an instance is after it was asked to go.
pub(crate) enum Ending {
    /// Ask again later.
    UnderWay,
    /// Nothing of it is left; the claim says that it was asked to go, if there was one.
    Over(Box<NodeClaim>),
}

/// Asks the cloud to terminate the claim's instance and notes on the claim that it did.
pub(crate) async fn terminate(context: &Context, claim: &NodeClaim) -> Result<Ending> {
    let gone = match context.provider.delete(claim).await {
        Ok(()) => false,
        Err(ProviderError::NotFound(_)) => true,
        Err(source) => {
            let what = format!("terminating the instance of NodeClaim {}", claim.name_any());
            return Err(Error::Provider { what, source });
        }
    };
    // Of a claim that never had an instance there is nothing to tell.
    if gone && claim.status.as_ref().is_none_or(|status| status.provider_id.is_empty()) {
        return Ok(Ending::Over(Box::new(claim.clone())));
    }
    let mut changed = claim.clone();
    changed.condition_set(context.now()).set_true(INSTANCE_TERMINATING);
    let claim = context.write_status(claim, changed).await?;
    Ok(if gone { Ending::Over(Box::new(claim)) } else { Ending::UnderWay })
}
