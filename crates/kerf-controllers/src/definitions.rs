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

/// How old an answer may be where nothing new begins. A drain looks every second and may hang for days, and each answer costs a
/// request per API group.
const GOOD_FOR: Duration = Duration::from_secs(10);
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

#[cfg(test)]
mod tests {
    use super::*;
    use http::{Request, Response};
    use kube::client::Body;
    use serde_json::json;
    use std::sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    };
    use tower::service_fn;

    /// An API server that serves NodePools, and counts how often it is asked what it serves.
    fn server() -> (Client, Arc<AtomicU32>) {
        let asked = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&asked);
        let service = service_fn(move |_: Request<Body>| {
            counted.fetch_add(1, Ordering::Relaxed);
            async move {
                let list = json!({
                    "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "karpenter.sh/v1",
                    "resources": [{
                        "name": "nodepools", "singularName": "", "namespaced": false, "kind": "NodePool",
                        "verbs": ["create"],
                    }],
                });
                Response::builder().body(Body::from(list.to_string().into_bytes()))
            }
        });
        (Client::new(service, "default"), asked)
    }

    #[tokio::test(start_paused = true)]
    async fn a_drain_that_goes_on_does_not_ask_at_each_look_and_one_that_begins_does() {
        let (client, asked) = server();
        let crds = vec![Crd::of::<NodePool>()];
        let definitions = Definitions { client, crds, last: Mutex::new(None) };
        let start = Instant::now();
        let times = async |step: Step| {
            assert!(definitions.stay(step).await.unwrap());
            asked.load(Ordering::Relaxed)
        };
        for (second, step, expected) in [
            (0, Step::First, 1),
            (1, Step::Next, 1),
            (9, Step::Next, 1),
            (11, Step::Next, 2),
            (12, Step::First, 3),
            (13, Step::Next, 3),
            (14, Step::First, 4),
        ] {
            tokio::time::sleep_until(start + Duration::from_secs(second)).await;
            assert_eq!(times(step).await, expected, "{second} {step:?}");
        }
    }
}
