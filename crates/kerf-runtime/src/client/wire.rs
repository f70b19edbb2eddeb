//! The innermost part of a client: the connections, and before them the fence.
//!
//! kube's own stack takes a request before it has a connection for it, and making one takes as long as the network and the
//! API server like. A look at the fence above that stack would be too early. So the stack is put together here, with a
//! request body that looks at the fence itself: the HTTP client asks for the body when it writes the request out, and what
//! it has not got in full it does not send.

use std::{
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use futures::future::{BoxFuture, FutureExt};
use http::{Method, Request, Response};
use http_body::{Frame, SizeHint};
use hyper_util::{
    client::legacy::{self, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use kube::{
    Config,
    client::{Body, ClientBuilder, ConfigExt, DynBody},
};
use tower::{BoxError, Service, ServiceBuilder, ServiceExt, util::BoxService};

use crate::Fence;

/// Whether the other end of a connection is still there is asked after ten silent seconds; three questions without an answer,
/// five seconds apart, end the connection. The defaults of Linux ask after two hours.
const KEEPALIVE: Duration = Duration::from_secs(10);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
const KEEPALIVE_RETRIES: u32 = 3;
/// What was sent and is not acknowledged within this time went nowhere.
const UNACKNOWLEDGED: Duration = Duration::from_secs(20);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// A connection that has been unused for longer is not used again: what is behind it may have gone meanwhile, and the request
/// would wait for an answer for as long as any request does.
const IDLE: Duration = Duration::from_secs(5);

/// What kube makes of a configuration, too.
pub(super) type Stack = BoxService<Request<Body>, Response<Box<DynBody>>, BoxError>;

/// The stack that kube makes of a configuration, with connections that notice when the other end is gone, and a fence
/// before them.
///
/// It speaks HTTP/1.1, as kube does everywhere: one connection for each watch, so that one that hangs holds up no other.
pub(super) fn builder(config: Config, fence: Option<Fence>) -> kube::Result<ClientBuilder<Stack>> {
    if config.proxy_url.is_some() {
        // It is built without support for proxies, and says so.
        return ClientBuilder::try_from(config);
    }
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    connector.set_nodelay(true);
    connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
    connector.set_keepalive(Some(KEEPALIVE));
    connector.set_keepalive_interval(Some(KEEPALIVE_INTERVAL));
    connector.set_keepalive_retries(Some(KEEPALIVE_RETRIES));
    #[cfg(target_os = "linux")]
    connector.set_tcp_user_timeout(Some(UNACKNOWLEDGED));
    let connector = config.rustls_https_connector_with_connector(connector)?;
    let client = legacy::Builder::new(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE)
        .build(connector);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .service(Fenced::new(client, fence))
        .map_response(|response: Response<_>| {
            response.map(|body| {
                Box::new(http_body_util::BodyExt::map_err(body, BoxError::from)) as Box<DynBody>
            })
        });
    Ok(ClientBuilder::new(service.boxed(), config.default_namespace))
}

/// Lets writes through while the fence does. Whatever is inside must not begin to act before it has read the body.
#[derive(Clone, Debug)]
pub struct Fenced<S> {
    inner: S,
    fence: Option<Fence>,
}

impl<S> Fenced<S> {
    /// Without a fence, everything goes through.
    pub fn new(inner: S, fence: Option<Fence>) -> Self {
        Self { inner, fence }
    }
}

impl<S, B> Service<Request<B>> for Fenced<S>
where
    S: Service<Request<FencedBody<B>>>,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<S::Response, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let fence = self.fence.as_ref().filter(|_| writes(request.method())).cloned();
        // A request without a body is not asked for one, and what is refused needs no connection.
        if let Some(Err(refused)) = fence.as_ref().map(Fence::check) {
            return async move { Err(refused.into()) }.boxed();
        }
        let request = request.map(|body| FencedBody { inner: body, fence });
        let answer = self.inner.call(request);
        async move { answer.await.map_err(Into::into) }.boxed()
    }
}

fn writes(method: &Method) -> bool {
    !matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS)
}

/// A body that breaks off when the right to send it has ended.
#[derive(Debug)]
pub struct FencedBody<B> {
    inner: B,
    fence: Option<Fence>,
}

impl<B> http_body::Body for FencedBody<B>
where
    B: http_body::Body<Data = Bytes> + Unpin,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if let Some(Err(refused)) = self.fence.as_ref().map(Fence::check) {
            return Poll::Ready(Some(Err(refused.into())));
        }
        Pin::new(&mut self.inner).poll_frame(context).map_err(Into::into)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Clock, WriteRefused};
    use http_body_util::{BodyExt, Full};
    use jiff::Timestamp;
    use tower::service_fn;

    const LEASE: Duration = Duration::from_secs(15);

    /// A server whose connection takes a while: it reads the body only then.
    fn slow(
        takes: Duration,
        fence: &Fence,
    ) -> impl Service<Request<Full<Bytes>>, Response = Bytes, Error = BoxError> {
        let inner = service_fn(move |request: Request<FencedBody<Full<Bytes>>>| async move {
            tokio::time::sleep(takes).await;
            Ok::<_, BoxError>(request.into_body().collect().await?.to_bytes())
        });
        Fenced::new(inner, Some(fence.clone()))
    }

    async fn send(method: Method, takes: Duration, fence: &Fence) -> Result<Bytes, BoxError> {
        let body = Full::new(Bytes::from_static(b"{}"));
        let request = Request::builder().method(method).uri("/x").body(body)?;
        slow(takes, fence).oneshot(request).await
    }

    #[tokio::test(start_paused = true)]
    async fn reads_always_pass_and_writes_while_the_lease_lasts() {
        let clock = Clock::starting_at(Timestamp::UNIX_EPOCH);
        let fence = Fence::closed(clock.clone());
        let methods = [Method::POST, Method::PUT, Method::PATCH, Method::DELETE];
        let check = async |may_write: bool| {
            assert!(send(Method::GET, Duration::ZERO, &fence).await.is_ok());
            for method in &methods {
                let sent = send(method.clone(), Duration::ZERO, &fence).await;
                assert_eq!(sent.is_ok(), may_write, "{method}: {sent:?}");
            }
        };
        check(false).await;
        fence.extend(fence.now(), LEASE);
        check(true).await;
        clock.suspend(LEASE);
        check(false).await;
        fence.extend(fence.now(), LEASE);
        check(true).await;
        fence.close();
        check(false).await;
    }

    /// The lease ran out while the connection was made.
    #[tokio::test(start_paused = true)]
    async fn a_write_that_waited_for_its_connection_is_looked_at_again() {
        let fence = Fence::closed(Clock::starting_at(Timestamp::UNIX_EPOCH));
        fence.extend(fence.now(), LEASE);
        assert!(send(Method::POST, Duration::from_secs(14), &fence).await.is_ok());
        let refused = send(Method::POST, Duration::from_secs(2), &fence).await.unwrap_err();
        let ago = Duration::from_secs(1);
        assert_eq!(refused.downcast_ref(), Some(&WriteRefused::LeaseExpired { ago }));
    }
}
