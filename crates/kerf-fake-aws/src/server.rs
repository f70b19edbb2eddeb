//! The stand-in as a server on loopback.

use std::cell::Cell;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use kerf_aws_client::serve;
use kerf_aws_wire::{Method, WireRequest, WireResponse};
use tokio::net::TcpListener;
use tokio::task::AbortHandle;

use crate::FakeAws;

tokio::task_local! {
    /// Set by a call that is not to be answered: the connection is hung up, and the caller does not know what was done.
    static HANGS_UP: Cell<bool>;
}

/// Whether there is a connection to hang up, which then is.
pub(crate) fn hang_up() -> bool {
    HANGS_UP.try_with(|hangs_up| hangs_up.set(true)).is_ok()
}

/// A stand-in that listens. It stops when this is dropped.
#[derive(Debug)]
#[must_use = "the server stops when this is dropped"]
pub struct Server {
    address: SocketAddr,
    accepting: AbortHandle,
}

type Watch = dyn Fn(&WireRequest, &WireResponse) + Send + Sync;
type Error = Box<dyn std::error::Error + Send + Sync>;

impl Server {
    /// `port` 0 takes any free one. Only this machine can connect.
    pub async fn start(aws: FakeAws, port: u16) -> io::Result<Self> {
        Self::watched(aws, port, |_, _| ()).await
    }

    /// As [`start`](Self::start), with every request and its answer shown as they are on the wire: also calls that the stand-in
    /// does not have, and members that it does not read.
    pub async fn watched(
        aws: FakeAws,
        port: u16,
        watch: impl Fn(&WireRequest, &WireResponse) + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let watch: Arc<Watch> = Arc::new(watch);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?;
        let address = listener.local_addr()?;
        let numbers = Arc::new(AtomicU64::new(0));
        let accepting = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (aws, numbers) = (aws.clone(), Arc::clone(&numbers));
                let watch = Arc::clone(&watch);
                tokio::spawn(async move {
                    let service = service_fn(|request| answer(&aws, request, &numbers, &*watch));
                    let connection = hyper::server::conn::http1::Builder::new();
                    // An error here is a connection that was hung up, by us or by the client.
                    drop(connection.serve_connection(TokioIo::new(stream), service).await);
                });
            }
        });
        Ok(Self { address, accepting: accepting.abort_handle() })
    }

    /// For `AWS_ENDPOINT_URL`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn answer(
    aws: &FakeAws,
    request: hyper::Request<Incoming>,
    numbers: &AtomicU64,
    watch: &Watch,
) -> Result<hyper::Response<Full<Bytes>>, Error> {
    let (parts, body) = request.into_parts();
    let body = String::from_utf8(body.collect().await?.to_bytes().to_vec())?;
    let target = parts.headers.get("x-amz-target").and_then(|value| value.to_str().ok());
    let request = WireRequest {
        method: if parts.method == http::Method::GET { Method::Get } else { Method::Post },
        path: parts.uri.path().to_owned(),
        content_type: None,
        target: target.map(str::to_owned),
        body,
    };
    let id = format!("request-{}", numbers.fetch_add(1, Ordering::Relaxed));
    let served = async {
        let response = serve(aws, &request, &id).await;
        (response, HANGS_UP.with(Cell::get))
    };
    let (response, hangs_up) = HANGS_UP.scope(Cell::new(false), served).await;
    watch(&request, &response);
    if hangs_up {
        return Err("no answer".into());
    }
    let mut builder = hyper::Response::builder().status(response.status);
    for (name, value) in response.headers {
        builder = builder.header(name, value);
    }
    Ok(builder.body(Full::from(response.body))?)
}
