//! Whether the API server serves the resources that the operator works on.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    fmt,
    time::Duration,
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::APIResource;
use kube::{Client, Resource};
use tokio::time::Instant;
use tracing::{info, warn};

mod fields;

pub use fields::missing_fields;

/// A kind of resource that has to be there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Crd {
    pub group: String,
    pub version: String,
    pub plural: String,
}

impl Crd {
    pub fn of<K: Resource<DynamicType = ()>>() -> Self {
        Self {
            group: K::group(&()).into_owned(),
            version: K::version(&()).into_owned(),
            plural: K::plural(&()).into_owned(),
        }
    }
}

impl fmt::Display for Crd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{} ({})", self.plural, self.group, self.version)
    }
}

/// The server answers, and these are not among what it serves.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the cluster does not have the custom resource{} {}", plural(&self.0), list(&self.0))]
pub struct Missing(pub Vec<Crd>);

fn plural(crds: &[Crd]) -> &'static str {
    if crds.len() == 1 { "" } else { "s" }
}

fn list(crds: &[Crd]) -> String {
    crds.iter().map(Crd::to_string).collect::<Vec<_>>().join(", ")
}

const FIRST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// For how long definitions may have been accepted and not be served yet.
const PATIENCE: Duration = Duration::from_secs(5);
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// Asks the server, as often as it takes to get an answer, whether it serves `crds`.
///
/// A server that is down, or does not let us in (yet: role bindings may come after the deployment), is
/// asked again. A server without the resources is given a few seconds, because it serves a resource a moment after its
/// definition was accepted, and the two are often applied together; then someone has to install them.
pub async fn await_all(client: &Client, url: &str, crds: &[Crd]) -> Result<(), Missing> {
    let mut wait = FIRST_WAIT;
    let mut first_missed: Option<Instant> = None;
    loop {
        match missing(client, crds).await {
            Ok(missing) if missing.is_empty() => {
                info!(url, "connected to the API server");
                return Ok(());
            }
            Ok(missing) => {
                if first_missed.get_or_insert_with(Instant::now).elapsed() >= PATIENCE {
                    return Err(Missing(missing));
                }
                tokio::time::sleep(LOOK_AGAIN).await;
                continue;
            }
            Err(error) => {
                let error = root_cause(&error);
                warn!(url, error, retry_in = ?wait, "cannot reach the API server");
            }
        }
        tokio::time::sleep(wait).await;
        wait = (wait * 2).min(LONGEST_WAIT);
    }
}

/// Those of `crds` that the server does not serve.
async fn missing(client: &Client, crds: &[Crd]) -> Result<Vec<Crd>, kube::Error> {
    lacking(client, crds, |_| true).await
}

/// Those of `crds` that the server does not serve, or soon will not: while a definition is being deleted, nothing can be
/// created.
pub async fn going(client: &Client, crds: &[Crd]) -> Result<Vec<Crd>, kube::Error> {
    lacking(client, crds, |resource| resource.verbs.iter().any(|verb| verb == "create")).await
}

/// Discovery is open to every authenticated client, so that this needs no rights on the CRDs themselves.
async fn lacking(
    client: &Client,
    crds: &[Crd],
    counts: fn(&APIResource) -> bool,
) -> Result<Vec<Crd>, kube::Error> {
    let mut missing = Vec::new();
    let mut served = BTreeMap::new();
    for crd in crds {
        let group_version = format!("{}/{}", crd.group, crd.version);
        let names = match served.entry(group_version) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(unknown) => {
                let resources = served_by(client, unknown.key()).await?;
                let names = resources.into_iter().filter(counts).map(|resource| resource.name);
                unknown.insert(names.collect::<Vec<_>>())
            }
        };
        if !names.contains(&crd.plural) {
            missing.push(crd.clone());
        }
    }
    Ok(missing)
}

async fn served_by(client: &Client, group_version: &str) -> Result<Vec<APIResource>, kube::Error> {
    match client.list_api_group_resources(group_version).await {
        Ok(list) => Ok(list.resources),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// The innermost error says what happened ("Connection refused"); the outer ones say that a request
/// failed, which the caller knows.
fn root_cause(error: &kube::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{Request, Response};
    use kube::client::Body;
    use std::sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    };
    use tower::service_fn;

    fn crd(group: &str, version: &str, plural: &str) -> Crd {
        Crd { group: group.into(), version: version.into(), plural: plural.into() }
    }

    fn pools_and_claims() -> Vec<Crd> {
        ["nodepools", "nodeclaims"].map(|plural| crd("karpenter.sh", "v1", plural)).into()
    }

    /// A server that fails `failures` times in different ways and then serves `plurals` of karpenter.sh/v1.
    fn server(failures: u32, plurals: &'static [&'static str]) -> Client {
        late_server(failures, 0, plurals)
    }

    /// One that also knows of nothing for the first `late` answers after that.
    fn late_server(failures: u32, late: u32, plurals: &'static [&'static str]) -> Client {
        let asked = Arc::new(AtomicU32::new(0));
        let service = service_fn(move |request: Request<Body>| {
            let turn = asked.fetch_add(1, Ordering::Relaxed);
            async move {
                let answer = |status: u16, body: String| {
                    Ok(Response::builder()
                        .status(status)
                        .body(Body::from(body.into_bytes()))
                        .unwrap())
                };
                if turn < failures {
                    return match turn % 3 {
                        0 => Err(std::io::Error::other("connection refused")),
                        1 => answer(403, "{\"status\":\"Failure\",\"code\":403}".into()),
                        _ => answer(503, "no healthy upstream".into()),
                    };
                }
                match request.uri().path() {
                    "/apis/karpenter.sh/v1" if turn >= failures + late => {
                        let resources: Vec<_> = plurals
                            .iter()
                            .map(|name| {
                                // As of one whose definition is being deleted.
                                let (name, verbs) = match name.strip_prefix("going:") {
                                    Some(name) => (name, ["get", "delete"]),
                                    None => (*name, ["get", "create"]),
                                };
                                serde_json::json!({"name": name, "singularName": "", "namespaced": false,
                                                   "kind": "K", "verbs": verbs})
                            })
                            .collect();
                        let list = serde_json::json!({"kind": "APIResourceList", "apiVersion": "v1",
                            "groupVersion": "karpenter.sh/v1", "resources": resources});
                        answer(200, list.to_string())
                    }
                    _ => answer(404, "404 page not found\n".into()),
                }
            }
        });
        Client::new(service, "default")
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_is_down_is_asked_again_a_little_later_each_time() {
        let start = Instant::now();
        let client = server(7, &["nodepools", "nodepools/status", "nodeclaims"]);
        assert_eq!(await_all(&client, "url", &pools_and_claims()).await, Ok(()));
        assert_eq!(start.elapsed().as_secs(), 1 + 2 + 4 + 8 + 16 + 30 + 30);
    }

    #[tokio::test(start_paused = true)]
    async fn definitions_that_were_just_accepted_get_a_moment() {
        let start = Instant::now();
        let client = late_server(0, 3, &["nodepools", "nodeclaims"]);
        assert_eq!(await_all(&client, "url", &pools_and_claims()).await, Ok(()));
        assert_eq!(start.elapsed(), 3 * LOOK_AGAIN);
    }

    #[tokio::test(start_paused = true)]
    async fn missing_resources_are_named() {
        for (served, expected) in [
            (
                &["nodepools"][..],
                "the cluster does not have the custom resources nodeclaims.karpenter.sh (v1), \
                 examplenodeclasses.cloud.example (v1)",
            ),
            (
                &["nodepools", "nodeclaims"],
                "the cluster does not have the custom resource examplenodeclasses.cloud.example (v1)",
            ),
        ] {
            let client = server(1, served);
            let mut all = pools_and_claims();
            all.push(crd("cloud.example", "v1", "examplenodeclasses"));
            let missing = await_all(&client, "url", &all).await.unwrap_err();
            assert_eq!(missing.to_string(), expected);
        }
    }

    #[tokio::test]
    async fn a_resource_whose_definition_is_being_deleted_is_going() {
        for (served, expected) in [
            (&["nodepools", "nodeclaims"][..], &[][..]),
            (&["nodepools", "going:nodeclaims"], &["nodeclaims"]),
            (&["nodeclaims"], &["nodepools"]),
            (&[], &["nodepools", "nodeclaims"]),
        ] {
            let going = going(&server(0, served), &pools_and_claims()).await.unwrap();
            let going: Vec<_> = going.iter().map(|crd| crd.plural.as_str()).collect();
            assert_eq!(going, expected, "{served:?}");
        }
    }
}
