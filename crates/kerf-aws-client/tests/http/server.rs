//! A server on loopback with a list of replies. It keeps what it was asked.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

#[derive(Clone)]
pub(crate) struct Reply {
    kind: Kind,
    headers: Vec<(&'static str, String)>,
}

#[derive(Clone)]
enum Kind {
    Answer { status: u16, body: String },
    HangUp,
    Never,
}

impl Reply {
    pub(crate) fn new(status: u16, body: &str) -> Self {
        Self { kind: Kind::Answer { status, body: body.to_owned() }, headers: Vec::new() }
    }

    pub(crate) fn hang_up() -> Self {
        Self { kind: Kind::HangUp, headers: Vec::new() }
    }

    pub(crate) fn never() -> Self {
        Self { kind: Kind::Never, headers: Vec::new() }
    }

    pub(crate) fn with(mut self, name: &'static str, value: &str) -> Self {
        self.headers.push((name, value.to_owned()));
        self
    }
}

#[derive(Clone)]
pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) path: String,
    headers: http::HeaderMap,
    pub(crate) body: String,
}

impl Request {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().expect("headers are text"))
    }
}

pub(crate) struct Server {
    address: std::net::SocketAddr,
    requests: Arc<Mutex<Vec<Request>>>,
    accepting: JoinHandle<()>,
}

impl Server {
    pub(crate) async fn start(replies: impl IntoIterator<Item = Reply>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback has a free port");
        let address = listener.local_addr().expect("it is bound");
        let requests = Arc::new(Mutex::new(Vec::new()));
        let replies = Arc::new(Mutex::new(replies.into_iter().collect::<VecDeque<_>>()));
        let kept = Arc::clone(&requests);
        let accepting = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (kept, replies) = (Arc::clone(&kept), Arc::clone(&replies));
                tokio::spawn(async move {
                    let service = service_fn(|request| answer(request, &kept, &replies));
                    let connection = hyper::server::conn::http1::Builder::new();
                    // An error here is a connection that was hung up, by us or by the client.
                    drop(connection.serve_connection(TokioIo::new(stream), service).await);
                });
            }
        });
        Self { address, requests, accepting }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) async fn closed_port() -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback has a free port");
        format!("http://{}", listener.local_addr().expect("it is bound"))
    }

    pub(crate) fn requests(&self) -> Vec<Request> {
        self.requests.lock().expect("no test panicked in it").clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn answer(
    request: hyper::Request<Incoming>,
    kept: &Mutex<Vec<Request>>,
    replies: &Mutex<VecDeque<Reply>>,
) -> Result<hyper::Response<Full<Bytes>>, Box<dyn std::error::Error + Send + Sync>> {
    let (parts, body) = request.into_parts();
    let body = String::from_utf8(body.collect().await?.to_bytes().to_vec())?;
    let request = Request {
        method: parts.method.to_string(),
        path: parts.uri.path().to_owned(),
        headers: parts.headers,
        body,
    };
    kept.lock().expect("no test panicked in it").push(request);
    let reply = replies.lock().expect("no test panicked in it").pop_front();
    let Some(reply) = reply else { return Err("more was asked than the test expects".into()) };
    match reply.kind {
        Kind::Answer { status, body } => {
            let mut response = hyper::Response::builder().status(status);
            for (name, value) in reply.headers {
                response = response.header(name, value);
            }
            Ok(response.body(Full::from(body))?)
        }
        Kind::HangUp => Err("hung up".into()),
        Kind::Never => std::future::pending::<Result<_, Infallible>>().await.map_err(Into::into),
    }
}
