//! Counts and times the requests to the API server, under the names that dashboards know.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use http::{Method, Request, Response, Uri};
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{
        counter::Counter,
        family::{Family, MetricConstructor},
        histogram::{Histogram, exponential_buckets},
    },
};
use tokio::time::Instant;
use tower::{Layer, Service};

use crate::Metrics;

#[derive(Clone, Debug)]
pub struct RequestMetrics {
    total: Family<Answer, Counter>,
    seconds: Family<Call, Histogram, Buckets>,
}

impl RequestMetrics {
    pub fn register(metrics: &Metrics) -> Self {
        let new = Self { total: Family::default(), seconds: Family::new_with_constructor(Buckets) };
        metrics.register(|registry| {
            registry.register(
                "client_go_request",
                "Requests to the API server by status code and method",
                new.total.clone(),
            );
            registry.register(
                "client_go_request_duration_seconds",
                "Time until the API server answers, by verb and resource",
                new.seconds.clone(),
            );
        });
        new
    }

    fn observe(&self, call: Option<&Call>, method: &Method, code: String, since: Instant) {
        let answer = Answer { code, method: method.to_string() };
        self.total.get_or_create(&answer).inc();
        if let Some(call) = call {
            self.seconds.get_or_create(call).observe(since.elapsed().as_secs_f64());
        }
    }
}

#[derive(Clone, Debug)]
struct Buckets;

impl MetricConstructor<Histogram> for Buckets {
    fn new_metric(&self) -> Histogram {
        Histogram::new(exponential_buckets(0.001, 1.5, 20))
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Answer {
    code: String,
    method: String,
}

/// What a request asks for, as far as its method and path tell.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Call {
    verb: &'static str,
    group: String,
    version: String,
    kind: String,
    subresource: String,
}

impl Call {
    /// Nothing for paths that name no resource, such as `/version` and discovery.
    fn parse(method: &Method, uri: &Uri) -> Option<Self> {
        let mut path = uri.path().split('/').filter(|part| !part.is_empty());
        let group = match path.next()? {
            "api" => "",
            "apis" => path.next()?,
            _ => return None,
        };
        let version = path.next()?;
        let mut rest: Vec<_> = path.collect();
        // `namespaces/x/pods/y`: the namespace is not what is asked for, unless nothing follows it or
        // only one of the subresources that namespaces themselves have.
        if let ["namespaces", _, next, ..] = rest[..]
            && !matches!(next, "status" | "finalize")
        {
            rest.drain(..2);
        }
        let (kind, name, subresource) = match rest[..] {
            [kind] => (kind, false, ""),
            [kind, _] => (kind, true, ""),
            [kind, _, subresource, ..] => (kind, true, subresource),
            [] => return None,
        };
        let watch = uri
            .query()
            .is_some_and(|q| q.split('&').any(|pair| matches!(pair, "watch=true" | "watch=1")));
        let verb = match (method.as_str(), name) {
            ("GET", _) if watch => "WATCH",
            ("GET", false) => "LIST",
            ("GET", true) => "GET",
            ("POST", _) => "CREATE",
            ("PUT", _) => "UPDATE",
            ("PATCH", _) => "PATCH",
            ("DELETE", _) => "DELETE",
            _ => "OTHER",
        };
        Some(Self {
            verb,
            group: group.to_owned(),
            version: version.to_owned(),
            kind: kind.to_owned(),
            subresource: subresource.to_owned(),
        })
    }
}

#[derive(Clone, Debug)]
pub(super) struct TelemetryLayer(pub(super) RequestMetrics);

impl<S> Layer<S> for TelemetryLayer {
    type Service = Telemetry<S>;

    fn layer(&self, inner: S) -> Telemetry<S> {
        Telemetry { inner, metrics: self.0.clone() }
    }
}

#[derive(Debug)]
pub(super) struct Telemetry<S> {
    inner: S,
    metrics: RequestMetrics,
}

impl<S, B, C> Service<Request<B>> for Telemetry<S>
where
    S: Service<Request<B>, Response = Response<C>>,
    S::Future: Send + 'static,
{
    type Response = Response<C>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<C>, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let call = Call::parse(request.method(), request.uri());
        let method = request.method().clone();
        let metrics = self.metrics.clone();
        let start = Instant::now();
        let response = self.inner.call(request);
        Box::pin(async move {
            let result = response.await;
            // client-go's word for requests that got no answer.
            let code = match &result {
                Ok(response) => response.status().as_u16().to_string(),
                Err(_) => "<error>".to_owned(),
            };
            metrics.observe(call.as_ref(), &method, code, start);
            result
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tower::{ServiceExt, service_fn};

    #[test]
    fn requests_are_named_by_verb_and_resource() {
        let cases = [
            ("GET", "/api/v1/pods", "LIST  v1 pods "),
            ("GET", "/api/v1/pods?watch=true&limit=5", "WATCH  v1 pods "),
            ("GET", "/api/v1/namespaces/a/pods", "LIST  v1 pods "),
            ("GET", "/api/v1/namespaces/a/pods/b", "GET  v1 pods "),
            ("POST", "/api/v1/namespaces/a/pods/b/eviction", "CREATE  v1 pods eviction"),
            ("GET", "/api/v1/namespaces", "LIST  v1 namespaces "),
            ("GET", "/api/v1/namespaces/a", "GET  v1 namespaces "),
            ("PUT", "/api/v1/namespaces/a/finalize", "UPDATE  v1 namespaces finalize"),
            ("POST", "/apis/karpenter.sh/v1/nodeclaims", "CREATE karpenter.sh v1 nodeclaims "),
            (
                "PATCH",
                "/apis/karpenter.sh/v1/nodeclaims/c/status",
                "PATCH karpenter.sh v1 nodeclaims status",
            ),
            ("DELETE", "/api/v1/nodes/n", "DELETE  v1 nodes "),
            ("GET", "/version", "none"),
            ("GET", "/apis", "none"),
            ("GET", "/apis/karpenter.sh/v1", "none"),
            ("GET", "/api/v1", "none"),
        ];
        for (method, uri, expected) in cases {
            let call = Call::parse(&method.parse().unwrap(), &uri.parse().unwrap());
            let shown = call.map_or("none".into(), |c| {
                format!("{} {} {} {} {}", c.verb, c.group, c.version, c.kind, c.subresource)
            });
            assert_eq!(shown, expected, "{method} {uri}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn answers_and_failures_are_counted() {
        let metrics = Metrics::default();
        let layer = TelemetryLayer(RequestMetrics::register(&metrics));
        let server = layer.layer(service_fn(async |request: Request<()>| {
            tokio::time::sleep(Duration::from_secs(2)).await;
            match request.method().as_str() {
                "GET" => Ok(Response::builder().status(404).body(()).unwrap()),
                _ => Err("connection refused"),
            }
        }));
        let get = Request::get("/api/v1/nodes/n").body(()).unwrap();
        let post = Request::post("/api/v1/nodes").body(()).unwrap();
        let mut server = server;
        assert!(server.ready().await.unwrap().call(get).await.is_ok());
        assert!(server.ready().await.unwrap().call(post).await.is_err());
        let text = metrics.text();
        for line in [
            "client_go_request_total{code=\"404\",method=\"GET\"} 1",
            "client_go_request_total{code=\"<error>\",method=\"POST\"} 1",
            "client_go_request_duration_seconds_sum{verb=\"GET\",group=\"\",version=\"v1\",kind=\"nodes\",subresource=\"\"} 2.0",
        ] {
            assert!(text.lines().any(|l| l == line), "{line}\n{text}");
        }
    }
}
