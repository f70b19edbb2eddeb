//! Connections of any client: bounded in number, in the time that a request may take, and in how long they live.
//!
//! A client that reaches a port can open connections and send nothing. Each endpoint has room for a few; when it is full, the one
//! that has been silent longest makes way for the new one. So a client that asks at once is answered at once, however many others
//! are silent, and the process never runs out of file descriptors for its own work.

use std::{
    collections::VecDeque,
    convert::Infallible,
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use axum::{Router, body::Body};
use bytes::Bytes;
use http::{Request, Response};
use http_body::{Frame, SizeHint};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    net::{TcpListener, TcpStream},
    time::{sleep, timeout},
};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};
use tower::ServiceExt;
use tracing::debug;

/// Connections of one endpoint at a time. A kubelet has one, and a few Prometheus servers have one each.
const CONNECTIONS: usize = 64;

/// How long a request may take to be asked, and a connection to be silent between two.
const TIME_TO_ASK: Duration = Duration::from_secs(5);

/// After this long a connection ends with the answer it is at, and after as long again in the middle of it.
const LIFETIME: Duration = Duration::from_mins(1);

/// When no connection can be accepted: no file descriptor is left, say.
const TRY_AGAIN: Duration = Duration::from_millis(100);

pub(super) async fn serve(listener: TcpListener, routes: Router, stop: CancellationToken) {
    let mut open = Open::default();
    loop {
        let accepted = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) => open.add(stream, routes.clone()),
            Err(error) => {
                debug!(%error, "cannot accept a connection yet");
                sleep(TRY_AGAIN).await;
            }
        }
    }
}

/// The connections of one endpoint, the oldest first. They end with it.
#[derive(Default)]
struct Open(VecDeque<Connection>);

struct Connection {
    task: AbortOnDropHandle<()>,
    answering: Arc<AtomicBool>,
}

impl Open {
    fn add(&mut self, stream: TcpStream, routes: Router) {
        self.0.retain(|connection| !connection.task.is_finished());
        if self.0.len() >= CONNECTIONS {
            let silent = self.0.iter().position(|one| !one.answering.load(Ordering::Relaxed));
            // All are being answered: the newcomer has to ask again.
            let Some(silent) = silent else { return };
            self.0.remove(silent);
        }
        let answering = Arc::new(AtomicBool::new(false));
        let task = tokio::spawn(converse(stream, routes, Arc::clone(&answering)));
        self.0.push_back(Connection { task: AbortOnDropHandle::new(task), answering });
    }
}

async fn converse(stream: TcpStream, routes: Router, answering: Arc<AtomicBool>) {
    let answer = service_fn(|request: Request<Incoming>| {
        let guard = Answering::begin(&answering);
        let answer = routes.clone().oneshot(request.map(Body::new));
        async move {
            let answer: Response<Body> = answer.await?;
            Ok::<_, Infallible>(answer.map(|body| Watched { body, _until_sent: guard }))
        }
    });
    let mut protocol = http1::Builder::new();
    protocol.timer(TokioTimer::new()).header_read_timeout(TIME_TO_ASK);
    let mut connection = pin!(protocol.serve_connection(TokioIo::new(stream), answer));
    tokio::select! {
        biased;
        _ = connection.as_mut() => return,
        () = sleep(LIFETIME) => {}
    }
    connection.as_mut().graceful_shutdown();
    let _ = timeout(LIFETIME, connection).await;
}

/// Marks a connection as one that is being answered.
struct Answering(Arc<AtomicBool>);

impl Answering {
    fn begin(answering: &Arc<AtomicBool>) -> Self {
        answering.store(true, Ordering::Relaxed);
        Self(Arc::clone(answering))
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

/// The body of an answer, which is under way until all of it was taken.
struct Watched {
    body: Body,
    _until_sent: Answering,
}

impl http_body::Body for Watched {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::{Check, probe_routes};
    use std::{
        io::{Read, Write},
        net::{SocketAddr, TcpStream as Blocking},
        time::Instant,
    };

    async fn start() -> (SocketAddr, CancellationToken) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stop = CancellationToken::new();
        let routes = probe_routes(vec![Check::ping("healthz")], Vec::new());
        tokio::spawn(serve(listener, routes, stop.clone()));
        (address, stop)
    }

    /// What the server says to `request` until it closes the connection.
    fn ask(address: SocketAddr, request: &str) -> String {
        let mut stream = Blocking::connect(address).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        // A connection that made way for another ends without an answer.
        let _ = stream.read_to_string(&mut answer);
        answer
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn thousands_of_requests_that_are_never_finished_keep_no_probe_waiting() {
        let (address, _stop) = start().await;
        let asking = tokio::task::spawn_blocking(move || {
            let mut half = Vec::new();
            for place in 0..3000 {
                let mut stream = Blocking::connect(address).unwrap();
                // One that had to make way may be closed already.
                let _ = stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: ");
                half.push(stream);
                if place % 100 == 99 {
                    let begin = Instant::now();
                    let answer = ask(address, "GET /healthz HTTP/1.0\r\n\r\n");
                    assert!(answer.starts_with("HTTP/1.0 200 OK"), "after {place}: {answer:?}");
                    assert!(begin.elapsed() < Duration::from_secs(1), "{:?}", begin.elapsed());
                }
            }
            half.len()
        });
        assert_eq!(asking.await.unwrap(), 3000);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn who_does_not_finish_asking_is_not_waited_for() {
        let (address, _stop) = start().await;
        let begin = Instant::now();
        let answer = tokio::task::spawn_blocking(move || ask(address, "GET /healthz HTTP/1.1\r\n"));
        let answer = answer.await.unwrap();
        assert!(begin.elapsed() >= TIME_TO_ASK.mul_f64(0.9), "{:?}: {answer}", begin.elapsed());
        assert!(begin.elapsed() < TIME_TO_ASK * 3, "{:?}", begin.elapsed());
    }
}
