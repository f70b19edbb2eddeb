//! Whether the CRDs that Kerf needs are there and not being deleted.
//!
//! When a `CustomResourceDefinition` is deleted, the API server deletes all its objects, and then what they own.
//! That must not cost a cluster all its machines, so nothing is terminated while a definition is missing or on its
//! way out.

use std::time::Duration;

use kerf_api::{NodeClaim, NodePool};
use kerf_provider::CloudProvider;
use kerf_runtime::crds::{self, Crd};
use kube::Client;
use tokio::{sync::Mutex, time::Instant};
use tracing::warn;

use crate::error::{Result, Tried};

/// How old an answer may be where nothing new begins.
const GOOD_FOR: Duration = Duration::from_secs(1);
/// How long to wait before the next look at something that was not terminated.
pub(crate) const LOOK_AGAIN: Duration = Duration::from_secs(10);
const SAY_AGAIN: Duration = Duration::from_mins(5);

/// What the operator works on; nothing works without it.
pub fn required(provider: &dyn CloudProvider) -> Vec<Crd> {
    let of_provider = provider.facts().node_classes.iter().map(|class| Crd {
        group: class.group.clone(),
        version: class.version.clone(),
        plural: class.plural.clone(),
    });
    [Crd::of::<NodePool>(), Crd::of::<NodeClaim>()].into_iter().chain(of_provider).collect()
}

/// What is about to happen to a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Its end begins. The answer has to be newer than the wish.
    First,
    /// Its end goes on.
    Next,
}

pub(crate) struct Definitions {
    client: Client,
    crds: Vec<Crd>,
    last: Mutex<Option<Answer>>,
}

#[derive(Clone, Copy)]
struct Answer {
    asked: Instant,
    stay: bool,
    said: Option<Instant>,
}

impl Definitions {
    pub(crate) fn new(client: Client, provider: &dyn CloudProvider) -> Self {
        Self { client, crds: required(provider), last: Mutex::new(None) }
    }

    /// Whether all of them are served and stay. Many may ask at once, and share one answer.
    pub(crate) async fn stay(&self, step: Step) -> Result<bool> {
        let wished = Instant::now();
        let mut last = self.last.lock().await;
        let good_for = if step == Step::First { Duration::ZERO } else { GOOD_FOR };
        if let Some(answer) = last.filter(|last| last.asked + good_for >= wished) {
            return Ok(answer.stay);
        }
        let asked = Instant::now();
        let going = crds::going(&self.client, &self.crds).await;
        let going = going.tried(|| "asking which custom resources there are".into())?;
        let mut said = last.and_then(|last| last.said);
        if going.is_empty() {
            said = None;
        } else if said.is_none_or(|at| asked >= at + SAY_AGAIN) {
            let names: Vec<_> = going.iter().map(Crd::to_string).collect();
            warn!(
                definitions = names.join(", "),
                "nothing is terminated: CustomResourceDefinitions are missing or being deleted; apply them with: \
                 kerf crds | kubectl apply -f -"
            );
            said = Some(asked);
        }
        *last = Some(Answer { asked, stay: going.is_empty(), said });
        Ok(going.is_empty())
    }
}
