//! The API server on a loopback socket, for kubectl and whoever else speaks HTTP.

use crate::api::{Api, Incoming};
use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use http::{Response, StatusCode};
use http_body_util::BodyExt;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use tokio::net::TcpListener;
use tokio::task::AbortHandle;

/// An API server that listens. It stops when this is dropped.
#[derive(Debug)]
#[must_use = "the server stops when this is dropped"]
pub struct Served {
    address: SocketAddr,
    task: AbortHandle,
}

impl Served {
    /// `port` 0 takes any free one. Only this machine can connect.
    pub(crate) async fn start(api: Api, port: u16) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?;
        let address = listener.local_addr()?;
        let router = Router::new().fallback(answer).with_state(api);
        let server = tokio::spawn(async move { axum::serve(listener, router).await });
        Ok(Self { address, task: server.abort_handle() })
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// A kubeconfig that leads here, for `KUBECONFIG`.
    pub fn kubeconfig(&self) -> String {
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: kerf\n\
             clusters:\n- name: kerf\n  cluster:\n    server: {}\n\
             contexts:\n- name: kerf\n  context:\n    cluster: kerf\n    user: kerf\n\
             users:\n- name: kerf\n  user: {{}}\n",
            self.url()
        )
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn answer(State(api): State<Api>, request: Request) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let Ok(body) = body.collect().await else {
        let mut response = Response::new(Body::from("the request's body broke off"));
        *response.status_mut() = StatusCode::BAD_REQUEST;
        return response;
    };
    let incoming = Incoming {
        method: parts.method,
        path: parts.uri.path().to_owned(),
        query: parts.uri.query().unwrap_or_default().to_owned(),
        headers: parts.headers,
        body: body.to_bytes(),
    };
    api.handle(&incoming).map(Body::new)
}
