//! The two HTTP servers that a cluster talks to: metrics for Prometheus, probes for the kubelet.

mod connections;

use std::{
    borrow::Cow,
    convert::Infallible,
    fmt::{self, Write},
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use axum::{
    Router,
    body::Body,
    extract::{Path, RawQuery, State},
    response::{IntoResponse, Response},
    routing::get,
};
use futures::{Stream, stream};
use http::{StatusCode, header};
use tokio::{
    net::TcpListener,
    runtime::Handle,
    sync::mpsc,
    time::{Instant, timeout_at},
};
use tokio_util::sync::CancellationToken;

use crate::Metrics;

/// Opens `port` on one address or on all; port 0 takes any free one.
pub async fn listen(address: Option<IpAddr>, port: u16) -> io::Result<TcpListener> {
    if let Some(address) = address {
        return TcpListener::bind(SocketAddr::from((address, port))).await;
    }
    match TcpListener::bind(SocketAddr::from((Ipv6Addr::UNSPECIFIED, port))).await {
        // Kernels without IPv6 exist; with it, this one socket takes IPv4 too.
        Err(error) if error.kind() != io::ErrorKind::AddrInUse => {
            TcpListener::bind(SocketAddr::from((Ipv4Addr::UNSPECIFIED, port))).await
        }
        result => result,
    }
}

/// Answers requests until `stop`.
pub async fn serve(listener: TcpListener, routes: Router, stop: CancellationToken) {
    connections::serve(listener, routes, stop).await;
}

/// `/metrics`.
pub fn metrics_routes(metrics: Metrics) -> Router {
    let scrape = async |State(metrics): State<Metrics>| {
        (
            [(header::CONTENT_TYPE, Metrics::CONTENT_TYPE)],
            Body::from_stream(in_pieces(metrics, SCRAPE_AT_MOST)),
        )
    };
    Router::new().route("/metrics", get(scrape)).with_state(metrics)
}

/// Who has not read everything by then is left alone: the next scrape waits for this one. Prometheus waits as long.
const SCRAPE_AT_MOST: Duration = Duration::from_secs(10);

/// The text of the metrics as fast as it is read, and no faster.
fn in_pieces(
    metrics: Metrics,
    at_most: Duration,
) -> impl Stream<Item = Result<String, Infallible>> {
    let (sender, receiver) = mpsc::channel(1);
    let runtime = Handle::current();
    let end = Instant::now() + at_most;
    runtime.clone().spawn_blocking(move || {
        metrics.write(|piece| {
            let sent = runtime.block_on(timeout_at(end, sender.send(piece)));
            sent.ok().and_then(Result::ok).ok_or(fmt::Error)
        });
    });
    stream::unfold(receiver, async |mut receiver| {
        receiver.recv().await.map(|piece| (Ok(piece), receiver))
    })
}

/// `/healthz` with `alive` and `/readyz` with `ready`; each also answers for one check alone, as in
/// `/readyz/crd`, and lists its checks with `?verbose`.
pub fn probe_routes(alive: Vec<Check>, ready: Vec<Check>) -> Router {
    Router::new().merge(probe("/healthz", alive)).merge(probe("/readyz", ready))
}

fn probe(path: &'static str, checks: Vec<Check>) -> Router {
    let all = async |State(checks): State<Arc<[Check]>>, RawQuery(query): RawQuery| {
        let verbose = query.is_some_and(|q| q.split('&').any(|p| p.starts_with("verbose")));
        report(&checks, verbose)
    };
    let one = async |State(checks): State<Arc<[Check]>>, Path(name): Path<String>| match checks
        .iter()
        .find(|check| check.name == name)
    {
        Some(check) => report(std::slice::from_ref(check), false),
        None => (StatusCode::NOT_FOUND, format!("no check named {name}\n")).into_response(),
    };
    Router::new()
        .route(path, get(all))
        .route(&format!("{path}/{{check}}"), get(one))
        .with_state(checks.into())
}

/// `ok` when all checks pass; else the checks by name, in the form of the API server's own probes.
fn report(checks: &[Check], verbose: bool) -> Response {
    let results: Vec<_> = checks.iter().map(|check| (check.name, (check.probe)())).collect();
    let healthy = results.iter().all(|(_, result)| result.is_ok());
    let status = if healthy { StatusCode::OK } else { StatusCode::INTERNAL_SERVER_ERROR };
    if healthy && !verbose {
        return (status, "ok").into_response();
    }
    let mut body = String::new();
    for (name, result) in results {
        let _ = match result {
            Ok(()) => writeln!(body, "[+]{name} ok"),
            Err(reason) => writeln!(body, "[-]{name} failed: {reason}"),
        };
    }
    body.push_str(if healthy { "check passed\n" } else { "check failed\n" });
    (status, body).into_response()
}

/// One thing that has to be true for a probe to succeed.
pub struct Check {
    name: &'static str,
    probe: Probe,
}

/// Tells why not, if not.
type Probe = Box<dyn Fn() -> Result<(), Cow<'static, str>> + Send + Sync>;

impl Check {
    pub fn new<E: Into<Cow<'static, str>>>(
        name: &'static str,
        probe: impl Fn() -> Result<(), E> + Send + Sync + 'static,
    ) -> Self {
        Self { name, probe: Box::new(move || probe().map_err(Into::into)) }
    }

    /// Passes whenever the process is able to answer at all.
    pub fn ping(name: &'static str) -> Self {
        Self::new(name, || Ok::<(), &str>(()))
    }
}

impl fmt::Debug for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Check").field(&self.name).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::StreamExt;
    use http::Request;
    use http_body_util::BodyExt;
    use prometheus_client::metrics::{family::Family, gauge::Gauge};
    use tower::ServiceExt;

    async fn ask(routes: Router, path: &str) -> (u16, String, Option<String>) {
        let request = Request::get(path).body(Body::empty()).unwrap();
        let response = routes.oneshot(request).await.unwrap();
        let status = response.status().as_u16();
        let kind = response.headers().get(header::CONTENT_TYPE);
        let kind = kind.map(|kind| kind.to_str().unwrap().to_owned());
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap(), kind)
    }

    #[tokio::test]
    async fn probes_name_the_checks_that_fail() {
        let routes = || {
            let synced = Check::new("manager", || Err("caches are not synced yet"));
            probe_routes(vec![Check::ping("healthz")], vec![Check::ping("readyz"), synced])
        };
        for (path, status, body) in [
            ("/healthz", 200, "ok"),
            ("/healthz?verbose", 200, "[+]healthz ok\ncheck passed\n"),
            (
                "/readyz",
                500,
                "[+]readyz ok\n[-]manager failed: caches are not synced yet\ncheck failed\n",
            ),
            ("/readyz/readyz", 200, "ok"),
            (
                "/readyz/manager",
                500,
                "[-]manager failed: caches are not synced yet\ncheck failed\n",
            ),
            ("/readyz/nothing", 404, "no check named nothing\n"),
            ("/metrics", 404, ""),
        ] {
            let answer = ask(routes(), path).await;
            assert_eq!((answer.0, answer.1.as_str()), (status, body), "{path}");
        }
    }

    #[tokio::test]
    async fn metrics_come_in_the_type_that_scrapers_expect() {
        let (status, body, kind) = ask(metrics_routes(Metrics::default()), "/metrics").await;
        assert_eq!(status, 200);
        assert_eq!(kind.as_deref(), Some("text/plain; version=0.0.4; charset=utf-8"));
        assert!(body.starts_with("# HELP "), "{body}");
    }

    /// Someone asks and does not read: the others get theirs all the same, and memory does not fill.
    #[tokio::test]
    async fn a_scrape_that_is_not_read_ends_after_a_while() {
        let metrics = Metrics::default();
        metrics.register(|registry| {
            let many = Family::<Vec<(&str, String)>, Gauge>::default();
            for number in 0..50_000 {
                many.get_or_create(&vec![("number", number.to_string())]).set(1);
            }
            registry.register("many", "Many", many);
        });
        let mut unread = Box::pin(in_pieces(metrics.clone(), Duration::from_millis(500)));
        assert!(unread.next().await.is_some());
        let (status, body, _) = ask(metrics_routes(metrics), "/metrics").await;
        assert_eq!(
            (status, body.lines().filter(|line| line.starts_with("many{")).count()),
            (200, 50_000)
        );
        assert!(unread.count().await < 5, "what was not read was not written");
    }

    #[tokio::test]
    async fn any_free_port_will_do() {
        let first = listen(None, 0).await.unwrap();
        let port = first.local_addr().unwrap().port();
        assert_ne!(port, 0);
        assert_eq!(listen(None, port).await.unwrap_err().kind(), io::ErrorKind::AddrInUse);
    }

    #[tokio::test]
    async fn an_endpoint_listens_where_it_is_told_to() {
        let local = IpAddr::from(Ipv4Addr::LOCALHOST);
        let listener = listen(Some(local), 0).await.unwrap();
        assert_eq!(listener.local_addr().unwrap().ip(), local);
    }
}
