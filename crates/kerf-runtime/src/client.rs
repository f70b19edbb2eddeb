//! Finding the cluster and talking to it: configuration, rate limit, request metrics.

use std::{
    env,
    ffi::{OsStr, OsString},
    path::{Path, PathBuf},
    time::Duration,
};

use base64::{Engine, prelude::BASE64_STANDARD};
use http::HeaderValue;
use kube::{
    Client, Config,
    config::{InClusterError, KubeConfigOptions, Kubeconfig, KubeconfigError},
};
use tower::timeout::TimeoutLayer;

use crate::{Bucket, Fence};
use limit::RateLimitLayer;
use telemetry::TelemetryLayer;

mod limit;
mod telemetry;
mod wire;

pub use telemetry::RequestMetrics;
pub use wire::{Fenced, FencedBody};

/// Where a pod finds the namespace it runs in.
const NAMESPACE_FILE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";
const CA_FILE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt";
const TOKEN_FILE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/token";

/// How long to wait for the head of a response. The API server itself gives up on a request after a
/// minute and starts a watch at once, so that a longer silence means a dead connection, which without
/// this limit would hold up a reconcile for the quarter of an hour that TCP takes to notice.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(65);

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(
        "no Kubernetes cluster to connect to: KUBECONFIG is not set, this process does not run in a pod, \
         and {home} does not exist; set KUBECONFIG to the path of a kubeconfig file"
    )]
    NoCluster { home: String },
    #[error(
        "cannot read the kubeconfig {paths} that KUBECONFIG names: no such file; \
         set KUBECONFIG to the path of a kubeconfig file"
    )]
    NoKubeconfig { paths: String },
    #[error("cannot read the kubeconfig {path}: no such file; --kubeconfig takes the path of one")]
    NoGivenKubeconfig { path: String },
    #[error("the kubeconfig {paths} has no context {context}; it has: {known}")]
    NoContext { context: String, paths: String, known: String },
    #[error(
        "--context {context} needs a kubeconfig, and this process runs in a pod without one; give it with --kubeconfig"
    )]
    ContextInPod { context: String },
    #[error("cannot use the kubeconfig {paths}: {source}")]
    Kubeconfig { paths: String, source: Box<KubeconfigError> },
    #[error(
        "the kubeconfig {paths} sets insecure-skip-tls-verify, so that anybody on the way could pose as the cluster; Kerf does not \
         connect without checking the certificate: remove that line and give the cluster's certificate authority \
         (certificate-authority or certificate-authority-data)"
    )]
    Unverified { paths: String },
    #[error("cannot use the service account of this pod: {0}")]
    InCluster(#[source] Box<InClusterError>),
    #[error("cannot set up the connection to {url}: {source}")]
    Setup { url: String, source: Box<kube::Error> },
}

/// Which cluster is meant, where a user says more than the environment does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Target {
    /// The file to read, and no other.
    pub kubeconfig: Option<PathBuf>,
    /// A context of the kubeconfig other than its current one.
    pub context: Option<String>,
}

/// How to reach the cluster: the files that `KUBECONFIG` names, else the service account of the pod,
/// else `$HOME/.kube/config`. This is client-go's order; kube-rs asks the pod last.
pub async fn config() -> Result<Config, Error> {
    config_of(&Target::default()).await
}

/// The same for the cluster that is meant. A context is one of a kubeconfig, whatever pod this is.
pub async fn config_of(target: &Target) -> Result<Config, Error> {
    match Source::of(target, |name| env::var_os(name), Path::exists)? {
        Source::Pod => Config::incluster().map_err(|e| Error::InCluster(Box::new(e))),
        Source::Files(paths) => {
            let failed =
                |source| Error::Kubeconfig { paths: join(&paths), source: Box::new(source) };
            let merged = merged(&paths).map_err(failed)?;
            if let Some(context) = &target.context {
                let mut known = merged.contexts.iter().map(|one| one.name.clone());
                if !known.any(|name| name == *context) {
                    let known = merged.contexts.iter().map(|one| one.name.as_str());
                    let known = known.collect::<Vec<_>>().join(", ");
                    let (context, paths) = (context.clone(), join(&paths));
                    return Err(Error::NoContext { context, paths, known });
                }
            }
            let context = target.context.clone();
            let options = KubeConfigOptions { context, ..KubeConfigOptions::default() };
            let config = Config::from_custom_kubeconfig(merged, &options).await.map_err(failed)?;
            // Who poses as the API server decides which machines are deleted, and what a plan is made of.
            if config.accept_invalid_certs {
                return Err(Error::Unverified { paths: join(&paths) });
            }
            Ok(config)
        }
    }
}

/// The certificates by which this process knows the API server, as PEM and byte for byte as they are written in the file or
/// the kubeconfig that they come from. `None` where the system's own serve.
pub fn certificate_authority() -> Option<Vec<u8>> {
    match Source::choose(|name| env::var_os(name), Path::exists).ok()? {
        Source::Pod => std::fs::read(CA_FILE).ok(),
        Source::Files(paths) => of_kubeconfig(&merged(&paths).ok()?),
    }
}

fn merged(paths: &[PathBuf]) -> Result<Kubeconfig, KubeconfigError> {
    paths.iter().try_fold(Kubeconfig::default(), |merged, path| {
        Kubeconfig::read_from(path).and_then(|next| merged.merge(next))
    })
}

fn of_kubeconfig(kubeconfig: &Kubeconfig) -> Option<Vec<u8>> {
    let current = kubeconfig.current_context.as_ref()?;
    let context = kubeconfig.contexts.iter().find(|one| one.name == *current)?;
    let cluster = &context.context.as_ref()?.cluster;
    let cluster = kubeconfig.clusters.iter().find(|one| one.name == *cluster)?.cluster.as_ref()?;
    match (&cluster.certificate_authority_data, &cluster.certificate_authority) {
        (Some(data), _) => BASE64_STANDARD.decode(data).ok(),
        (None, Some(path)) => std::fs::read(path).ok(),
        (None, None) => None,
    }
}

/// The namespace that the operator keeps its own objects in: its pod's, or outside of a cluster the one
/// of the kubeconfig's context (`default` if that names none).
pub fn own_namespace(config: &Config) -> String {
    let of_pod = std::fs::read_to_string(NAMESPACE_FILE).unwrap_or_default();
    match of_pod.trim() {
        "" => config.default_namespace.clone(),
        namespace => namespace.to_owned(),
    }
}

/// A client that says who it is and counts its requests.
#[derive(Debug)]
pub struct Connection<'a> {
    pub config: Config,
    pub user_agent: &'a str,
    pub metrics: &'a RequestMetrics,
}

impl Connection<'_> {
    /// For the controllers, which `limit` keeps from flooding the API server and `fence` from writing without the lease.
    pub fn client(&self, limit: Option<Bucket>, fence: Fence) -> Result<Client, Error> {
        self.build(limit, Some(fence))
    }

    /// For leader election, which is not held up behind the requests of the controllers.
    pub fn election_client(&self) -> Result<Client, Error> {
        self.build(None, None)
    }

    fn build(&self, limit: Option<Bucket>, fence: Option<Fence>) -> Result<Client, Error> {
        let mut config = self.config.clone();
        // The caller decides when to ask again. A 429 is an answer (a disruption budget says not now), the
        // election counts its attempts against a deadline, and a write repeated unseen is a conflict with itself.
        config.default_retry = false;
        // The first caller wins; it is the same provider.
        let _ = rustls::crypto::ring::default_provider().install_default();
        if let Ok(agent) = HeaderValue::from_str(self.user_agent) {
            config.headers.push((http::header::USER_AGENT, agent));
        }
        let url = config.cluster_url.to_string();
        let builder = wire::builder(config, fence)
            .map_err(|source| Error::Setup { url, source: Box::new(source) })?
            .with_layer(&TimeoutLayer::new(RESPONSE_TIMEOUT))
            .with_layer(&TelemetryLayer(self.metrics.clone()));
        Ok(match limit {
            Some(bucket) => builder.with_layer(&RateLimitLayer(bucket)).build(),
            None => builder.build(),
        })
    }
}

#[derive(Debug, PartialEq)]
enum Source {
    Files(Vec<PathBuf>),
    Pod,
}

impl Source {
    fn of(
        target: &Target,
        variable: impl Fn(&str) -> Option<OsString>,
        exists: impl Fn(&Path) -> bool,
    ) -> Result<Self, Error> {
        match &target.kubeconfig {
            Some(path) if exists(path) => return Ok(Self::Files(vec![path.clone()])),
            Some(path) => {
                return Err(Error::NoGivenKubeconfig { path: path.display().to_string() });
            }
            None => {}
        }
        match (Self::choose(variable, exists)?, &target.context) {
            (Self::Pod, Some(context)) => Err(Error::ContextInPod { context: context.clone() }),
            (source, _) => Ok(source),
        }
    }

    fn choose(
        variable: impl Fn(&str) -> Option<OsString>,
        exists: impl Fn(&Path) -> bool,
    ) -> Result<Self, Error> {
        let named = variable("KUBECONFIG").unwrap_or_default();
        let named: Vec<_> =
            env::split_paths(&named).filter(|path| !path.as_os_str().is_empty()).collect();
        if !named.is_empty() {
            // As with kubectl, of several files some may be missing.
            let (found, missing): (Vec<_>, Vec<_>) = named.into_iter().partition(|p| exists(p));
            return match found.as_slice() {
                [] => Err(Error::NoKubeconfig { paths: join(&missing) }),
                _ => Ok(Self::Files(found)),
            };
        }
        let set = |name| variable(name).is_some_and(|value| !value.is_empty());
        let in_pod = set("KUBERNETES_SERVICE_HOST") && set("KUBERNETES_SERVICE_PORT");
        if in_pod && exists(Path::new(TOKEN_FILE)) {
            return Ok(Self::Pod);
        }
        let home = variable("HOME").filter(|home| !home.is_empty());
        let home = home.map(|home| Path::new(&home).join(".kube/config"));
        match home {
            Some(path) if exists(&path) => Ok(Self::Files(vec![path])),
            // There is no service account, and using it will say so.
            _ if in_pod => Ok(Self::Pod),
            Some(path) => Err(Error::NoCluster { home: path.display().to_string() }),
            None => Err(Error::NoCluster { home: "$HOME/.kube/config".into() }),
        }
    }
}

fn join(paths: &[PathBuf]) -> String {
    let paths = env::join_paths(paths).unwrap_or_default();
    OsStr::display(&paths).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Clock, Metrics};
    use std::io::{Read, Write};
    use std::net::TcpListener;

    /// Variables, existing files, and what comes of them.
    type Case<'a> = (&'a [(&'a str, &'a str)], &'a [&'a str], Result<Source, &'a str>);

    #[test]
    fn clusters_are_looked_for_in_the_order_of_client_go() {
        let files = |paths: &[&str]| Ok(Source::Files(paths.iter().map(PathBuf::from).collect()));
        let pod = [("KUBERNETES_SERVICE_HOST", "10.0.0.1"), ("KUBERNETES_SERVICE_PORT", "443")];
        let (home, at_home) = (("HOME", "/home/me"), "/home/me/.kube/config");
        let cases: [Case<'_>; 10] = [
            (&[("KUBECONFIG", "/a"), home, pod[0], pod[1]], &["/a", TOKEN_FILE], files(&["/a"])),
            (&[("KUBECONFIG", "/a:/b:/c")], &["/a", "/c"], files(&["/a", "/c"])),
            (
                &[("KUBECONFIG", "/a:/b"), pod[0], pod[1]],
                &[TOKEN_FILE],
                Err("cannot read the kubeconfig /a:/b that KUBECONFIG names: no such file; \
                     set KUBECONFIG to the path of a kubeconfig file"),
            ),
            (&[pod[0], pod[1], home], &[TOKEN_FILE, at_home], Ok(Source::Pod)),
            (&[pod[0], pod[1], home], &[at_home], files(&[at_home])),
            (&[pod[0], pod[1], home], &[], Ok(Source::Pod)),
            (&[("KUBECONFIG", ""), pod[0], pod[1]], &[TOKEN_FILE], Ok(Source::Pod)),
            (&[("KUBECONFIG", ""), pod[0], home], &[TOKEN_FILE, at_home], files(&[at_home])),
            (
                &[home],
                &[],
                Err(
                    "no Kubernetes cluster to connect to: KUBECONFIG is not set, this process does not \
                     run in a pod, and /home/me/.kube/config does not exist; set KUBECONFIG to the path \
                     of a kubeconfig file",
                ),
            ),
            (
                &[],
                &[],
                Err(
                    "no Kubernetes cluster to connect to: KUBECONFIG is not set, this process does not \
                     run in a pod, and $HOME/.kube/config does not exist; set KUBECONFIG to the path of \
                     a kubeconfig file",
                ),
            ),
        ];
        for (variables, existing, expected) in cases {
            let variable = |name: &str| {
                variables
                    .iter()
                    .find(|(key, _)| *key == name)
                    .map(|(_, value)| OsString::from(value))
            };
            let exists = |path: &Path| existing.iter().any(|e| Path::new(e) == path);
            let chosen = Source::choose(variable, exists).map_err(|e| e.to_string());
            assert_eq!(chosen, expected.map_err(str::to_owned), "{variables:?}");
        }
    }

    #[test]
    fn a_file_or_a_context_that_is_given_is_used() {
        let target = |kubeconfig: Option<&str>, context: Option<&str>| Target {
            kubeconfig: kubeconfig.map(PathBuf::from),
            context: context.map(str::to_owned),
        };
        let files = |path: &str| Ok(Source::Files(vec![PathBuf::from(path)]));
        let (in_pod, outside) = (true, false);
        for (target, pod, expected) in [
            (target(Some("/given"), None), outside, files("/given")),
            (target(Some("/given"), Some("a")), in_pod, files("/given")),
            (
                target(Some("/missing"), None),
                outside,
                Err(
                    "cannot read the kubeconfig /missing: no such file; --kubeconfig takes the path of one",
                ),
            ),
            (target(None, Some("a")), outside, files("/home/me/.kube/config")),
            (
                target(None, Some("a")),
                in_pod,
                Err(
                    "--context a needs a kubeconfig, and this process runs in a pod without one; give it with --kubeconfig",
                ),
            ),
            (target(None, None), in_pod, Ok(Source::Pod)),
        ] {
            let variable = |name: &str| match name {
                "KUBERNETES_SERVICE_HOST" | "KUBERNETES_SERVICE_PORT" if pod => Some("1".into()),
                "HOME" => Some("/home/me".into()),
                _ => None,
            };
            let there =
                [Path::new("/given"), Path::new("/home/me/.kube/config"), Path::new(TOKEN_FILE)];
            let found = Source::of(&target, variable, |path| there.contains(&path));
            assert_eq!(
                found.map_err(|e| e.to_string()),
                expected.map_err(str::to_owned),
                "{target:?}"
            );
        }
    }

    #[test]
    fn certificates_are_those_of_the_current_context() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("ca.crt");
        std::fs::write(&file, "from a file").unwrap();
        let kubeconfig = |context: &str| -> Kubeconfig {
            serde_json::from_value(serde_json::json!({
                "current-context": context,
                "contexts": [
                    {"name": "a", "context": {"cluster": "inline"}},
                    {"name": "b", "context": {"cluster": "file"}},
                    {"name": "c", "context": {"cluster": "none"}},
                ],
                "clusters": [
                    {"name": "inline", "cluster": {"certificate-authority-data": "aW5saW5l"}},
                    {"name": "file", "cluster": {"certificate-authority": file}},
                    {"name": "none", "cluster": {"server": "https://a"}},
                ],
            }))
            .unwrap()
        };
        for (context, expected) in
            [("a", Some("inline")), ("b", Some("from a file")), ("c", None), ("d", None)]
        {
            let expected = expected.map(|text: &str| text.as_bytes().to_vec());
            assert_eq!(of_kubeconfig(&kubeconfig(context)), expected, "{context}");
        }
    }

    #[tokio::test]
    async fn a_cluster_whose_certificate_would_not_be_checked_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("config");
        std::fs::write(
            &path,
            "{current-context: a, contexts: [{name: a, context: {cluster: a, user: me}}, {name: b, context: {cluster: b, user: me}}], \
             users: [{name: me, user: {}}], \
             clusters: [{name: a, cluster: {server: 'https://a', insecure-skip-tls-verify: true}}, \
             {name: b, cluster: {server: 'https://b', insecure-skip-tls-verify: false}}]}",
        )
        .unwrap();
        let of = |context: Option<&str>| Target {
            kubeconfig: Some(path.clone()),
            context: context.map(str::to_owned),
        };
        for context in [None, Some("a")] {
            let refused = config_of(&of(context)).await.unwrap_err();
            assert!(matches!(refused, Error::Unverified { .. }), "{refused}");
        }
        // Only the cluster that is meant counts.
        assert!(config_of(&of(Some("b"))).await.is_ok());
    }

    /// A budget's 429 is what the eviction queue waits for; behind a client that repeats it unseen, it never comes.
    #[tokio::test]
    async fn a_refusal_is_passed_on_and_not_repeated() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || {
            let mut requests = 0;
            loop {
                let (mut stream, _) = listener.accept().unwrap();
                let mut request = [0; 4096];
                let read = stream.read(&mut request).unwrap();
                if request[..read].starts_with(b"GET /last") {
                    return requests;
                }
                requests += 1;
                let head = "HTTP/1.1 429 Too Many Requests\r\nconnection: close\r\n";
                stream.write_all(format!("{head}content-length: 0\r\n\r\n").as_bytes()).unwrap();
            }
        });
        let connection = Connection {
            config: Config::new(format!("http://{address}").parse().unwrap()),
            user_agent: "test",
            metrics: &RequestMetrics::register(&Metrics::default()),
        };
        let fence = || Fence::open(Clock::system());
        let controllers = connection.client(None, fence()).unwrap();
        for client in [controllers, connection.election_client().unwrap()] {
            let request = http::Request::get("/version").body(Vec::new()).unwrap();
            assert!(client.request_text(request).await.is_err());
        }
        let last = http::Request::get("/last").body(Vec::new()).unwrap();
        let _ = connection.client(None, fence()).unwrap().request_text(last).await;
        assert_eq!(server.join().unwrap(), 2);
    }
}
