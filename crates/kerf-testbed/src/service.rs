//! The API server as a `tower` service, which is what a [`kube::Client`] is made from.

use crate::api::{Api, Body, Incoming};
use crate::faults::{Faults, Verdict};
use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response};
use http_body_util::BodyExt;
use std::task::{Context, Poll};
use tower::{BoxError, Service};

/// One client's way to the API server, with what goes wrong on it.
#[derive(Clone, Debug)]
pub struct ApiService {
    api: Api,
    faults: Faults,
}

impl ApiService {
    pub(crate) fn new(api: Api, faults: Faults) -> Self {
        Self { api, faults }
    }
}

impl<B> Service<Request<B>> for ApiService
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<Body>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<Body>, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let Self { api, faults } = self.clone();
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let incoming = Incoming {
                method: parts.method,
                path: parts.uri.path().to_owned(),
                query: parts.uri.query().unwrap_or_default().to_owned(),
                headers: parts.headers,
                body: body.collect().await.map_err(Into::into)?.to_bytes(),
            };
            match faults.judge(&incoming) {
                Verdict::Pass => {
                    let answer = api.handle(&incoming);
                    faults.note(&incoming, &answer);
                    Ok(answer)
                }
                Verdict::Late(delay) => {
                    tokio::time::sleep(delay).await;
                    let answer = api.handle(&incoming);
                    faults.note(&incoming, &answer);
                    Ok(answer)
                }
                Verdict::Refuse(error) => Ok(crate::api::refusal(&error)),
                Verdict::Lose { executed, after } => {
                    if executed {
                        faults.note(&incoming, &api.handle(&incoming));
                    }
                    tokio::time::sleep(after).await;
                    Err("injected: the request timed out".into())
                }
                Verdict::Disturb(delay, cut) => {
                    let mut response = api.handle(&incoming);
                    response.body_mut().disturb(delay, cut);
                    Ok(response)
                }
                Verdict::Silence => std::future::pending().await,
            }
        })
    }
}
