//! From claim to instance.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use kerf_api::{
    NodeClaim, NotReady,
    conditions::{Conditioned, LAUNCHED},
    labels,
};
use kerf_cluster::pods;
use kerf_provider::{Launched, ProviderError};
use kerf_runtime::events::{Notice, Severity};
use kube::ResourceExt;
use tokio::time::Instant;
use tracing::{info, warn};

use super::{
    Step, is_settled,
    launch_failure::{Verdict, When, verdict},
};
use crate::{
    context::Context,
    error::{Error, Result},
    metrics::Cause,
};

/// Error texts go into conditions, where pages of them do not help: 300 bytes and the dots, as Karpenter's.
const LONGEST_CONDITION: usize = 303;
/// The same for events: what `events.k8s.io` takes.
const LONGEST_EVENT: usize = 1024;

/// What the launches of this process leave to each other.
#[derive(Debug, Default)]
pub(super) struct Launches {
    /// What was launched and not yet read off a claim, by the claim's UID. When the note on the claim cannot be written
    /// (another process changed the claim, the API server was away), the cloud is not asked again: an answer costs a call, and
    /// clouds that do not know a claim by its name would launch a second instance.
    unnoted: Mutex<HashMap<String, Launched>>,
    /// By the claim's UID: it is not asked for before this time, and why. Its own condition is a change that brings the claim
    /// back at once.
    postponed: Mutex<HashMap<String, (Instant, ProviderError)>>,
    /// The cloud answers no launches before this time, and what it said.
    throttled: Mutex<Option<(Instant, String)>>,
}

impl Launches {
    pub(super) async fn launch(&self, context: &Context, claim: &mut NodeClaim) -> Result<Step> {
        if is_settled(claim, LAUNCHED, context.now()) {
            self.forget(claim);
            return Ok(Step::Next);
        }
        let launched = match self.of(claim) {
            Some(launched) => Ok(launched),
            None => self.ask(context, claim).await,
        };
        match launched {
            Ok(launched) => {
                self.remember(claim, &launched);
                note(context, claim, launched);
                Ok(Step::Next)
            }
            Err(error) => fail(context, claim, error).await,
        }
    }

    async fn ask(&self, context: &Context, claim: &NodeClaim) -> Result<Launched, ProviderError> {
        let class = context.node_class_for_sure(&claim.spec.node_class_ref).await?;
        // What is being deleted or was never looked at is the provider's own affair.
        if let Err(why @ (NotReady::Refused { .. } | NotReady::NotReconciled { .. })) =
            class.readiness()
        {
            let reference = &class.reference;
            let message = format!("{} {}: {why}", reference.kind, reference.name);
            return Err(ProviderError::NodeClassNotReady(message));
        }
        let uid = claim.uid().unwrap_or_default();
        if let Some(why) = self.why_not_now(&uid) {
            return Err(why);
        }
        let launched = match context.overlaid_types(claim).await? {
            Some(types) => context.provider.create_overlaid(claim, &class, types).await,
            None => context.provider.create(claim, &class).await,
        };
        if let Err(error) = &launched {
            self.postpone(uid, error);
        }
        launched
    }

    /// Why the cloud is not asked now to launch the claim, if so.
    fn why_not_now(&self, uid: &str) -> Option<ProviderError> {
        let now = Instant::now();
        if let Some((until, message)) = &*lock(&self.throttled)
            && *until > now
        {
            let retry_after = until.duration_since(now);
            return Some(ProviderError::Throttled { retry_after, message: message.clone() });
        }
        let postponed = lock(&self.postponed);
        postponed.get(uid).filter(|(until, _)| *until > now).map(|(_, why)| why.clone())
    }

    fn postpone(&self, uid: String, error: &ProviderError) {
        let Verdict::TryAgain { when, .. } = verdict(error) else { return };
        match when {
            When::Backoff => {}
            When::After(after) => {
                lock(&self.postponed).insert(uid, (Instant::now() + after, error.clone()));
            }
            When::AllAfter(after) => {
                warn!(%error, retry_in = ?after, "all launches wait, because the cloud limits calls");
                let message = match error {
                    ProviderError::Throttled { message, .. } => message.clone(),
                    other => other.to_string(),
                };
                *lock(&self.throttled) = Some((Instant::now() + after, message));
            }
        }
    }

    pub(super) fn forget(&self, claim: &NodeClaim) {
        let uid = claim.metadata.uid.as_deref().unwrap_or_default();
        lock(&self.unnoted).remove(uid);
        lock(&self.postponed).remove(uid);
    }

    fn of(&self, claim: &NodeClaim) -> Option<Launched> {
        lock(&self.unnoted).get(claim.metadata.uid.as_deref()?).cloned()
    }

    fn remember(&self, claim: &NodeClaim, launched: &Launched) {
        if let Some(uid) = claim.uid() {
            lock(&self.unnoted).insert(uid, launched.clone());
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Notes on the claim what was launched for it.
fn note(context: &Context, claim: &mut NodeClaim, launched: Launched) {
    take_over(claim, launched);
    claim.condition_set(context.now()).set_true(LAUNCHED);
    if claim.labels().contains_key(labels::NODE_POOL) && context.prices.of(claim).is_none() {
        context.metrics.price_unknown(claim);
    }
}

/// Notes on the claim why it was not launched, or gives it up.
async fn fail(context: &Context, claim: &mut NodeClaim, error: ProviderError) -> Result<Step> {
    let text = error.to_string();
    let tell = |claim: &NodeClaim, reason: &'static str| {
        let message = format!("NodeClaim {} event: {text}", claim.name_any());
        let message = shortened(&message, LONGEST_EVENT);
        context.recorder.record(Notice::about(claim, Severity::Warning, reason, message));
    };
    match verdict(&error) {
        Verdict::GiveUp { cause, event } => {
            if let Some(reason) = event {
                tell(claim, reason);
                tell_pods(context, claim, reason, &text);
            }
            give_up(context, claim, &error, cause).await
        }
        Verdict::TryAgain { reason, message, when, event } => {
            if let Some(reason) = event {
                tell(claim, reason);
            }
            let message = shortened(message.unwrap_or(&text), LONGEST_CONDITION);
            claim.condition_set(context.now()).set_unknown_because(LAUNCHED, reason, &message);
            match when {
                When::After(after) | When::AllAfter(after) => Ok(Step::Again(after)),
                When::Backoff => {
                    let what = format!("launching NodeClaim {}", claim.name_any());
                    Err(Error::Provider { what, source: error })
                }
            }
        }
    }
}

/// Who looks at a pod that waits learns here why its node does not come.
fn tell_pods(context: &Context, claim: &NodeClaim, reason: &'static str, error: &str) {
    let name = claim.name_any();
    let message = format!("NodeClaim {name} nominated for this pod failed to launch: {error}");
    let message = shortened(&message, LONGEST_EVENT);
    let cluster = context.index.read();
    let promised = context.promises.of(&name);
    let promised = promised.iter().filter_map(|pod| cluster.pods().get(pod));
    for pod in promised.filter(|pod| !pods::is_scheduled(pod) && pods::is_active(pod)) {
        let notice = Notice::of(pod.object_ref(), Severity::Warning, reason, message.clone());
        context.recorder.record(notice.sparingly());
    }
}

/// Says what was bought, once the claim says it too: a note that could not be written is tried again.
pub(super) fn log(context: &Context, claim: &NodeClaim) {
    let label = |key: &str| claim.labels().get(key).map(String::as_str);
    info!(
        claim = claim.name_any(),
        provider_id = claim.provider_id(),
        pool = label(labels::NODE_POOL),
        instance_type = label(labels::INSTANCE_TYPE),
        zone = label(labels::ZONE),
        capacity_type = label(labels::CAPACITY_TYPE),
        price = context.prices.of(claim).map(tracing::field::display),
        pods = context.promises.count(&claim.name_any()),
        "launched nodeclaim"
    );
}

/// Deletes a claim that cannot be launched as it stands; its pods are planned anew.
async fn give_up(
    context: &Context,
    claim: &NodeClaim,
    error: &ProviderError,
    cause: Cause,
) -> Result<Step> {
    warn!(claim = claim.name_any(), %error, "giving up nodeclaim");
    context.disrupt(claim, cause).await?;
    Ok(Step::Deleted)
}

/// The claim's own labels win over the provider's, because pods were planned by them; for annotations the provider wins.
fn take_over(claim: &mut NodeClaim, launched: Launched) {
    let labels = claim.labels_mut();
    for (key, value) in launched.labels {
        labels.entry(key).or_insert(value);
    }
    claim.annotations_mut().extend(launched.annotations);
    let status = claim.status.get_or_insert_default();
    status.provider_id = launched.provider_id;
    status.image_id = launched.image_id;
    status.capacity = launched.capacity;
    status.allocatable = launched.allocatable;
}

/// Cut to so many bytes, between characters; that it was cut shows.
fn shortened(message: &str, longest: usize) -> String {
    const CUT: &str = "...";
    if message.len() <= longest {
        return message.to_owned();
    }
    let room = longest.saturating_sub(CUT.len());
    let end = (0..=room).rev().find(|end| message.is_char_boundary(*end)).unwrap_or(0);
    format!("{}{CUT}", &message[..end])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
    }

    #[test]
    fn labels_of_the_claim_win_and_annotations_of_the_provider_win() {
        let mut claim = NodeClaim::default();
        *claim.labels_mut() = map(&[("zone", "a"), ("team", "x")]);
        *claim.annotations_mut() = map(&[("hash", "1")]);
        let launched = Launched {
            provider_id: "p".into(),
            labels: map(&[("zone", "b"), ("type", "t")]),
            annotations: map(&[("hash", "2")]),
            ..Launched::default()
        };
        take_over(&mut claim, launched);
        assert_eq!(*claim.labels(), map(&[("zone", "a"), ("team", "x"), ("type", "t")]));
        assert_eq!(*claim.annotations(), map(&[("hash", "2")]));
        assert_eq!(claim.status.unwrap().provider_id, "p");
    }

    #[test]
    fn long_messages_are_cut_between_characters() {
        for (message, expected) in [
            ("short".to_owned(), "short".to_owned()),
            ("x".repeat(10), "x".repeat(10)),
            ("x".repeat(11), format!("{}...", "x".repeat(7))),
            ("é".repeat(6), format!("{}...", "é".repeat(3))),
            (format!("x{}", "é".repeat(5)), format!("x{}...", "é".repeat(3))),
        ] {
            assert_eq!(shortened(&message, 10), expected);
        }
    }
}
