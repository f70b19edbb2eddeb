//! A TCP proxy on loopback that can stop to forward without closing anything.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

pub(super) struct Proxy {
    port: u16,
    state: watch::Sender<State>,
    opened: Arc<AtomicUsize>,
    serving: JoinHandle<()>,
}

#[derive(Clone, Copy, Default)]
struct State {
    /// Connections with a lower number than this get nothing through.
    frozen_below: usize,
    /// Nor do new ones.
    all: bool,
}

impl State {
    fn lets_through(self, connection: usize) -> bool {
        !self.all && connection >= self.frozen_below
    }
}

impl Proxy {
    pub(super) async fn start(to: u16) -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let port = listener.local_addr()?.port();
        let (state, opened) = (watch::Sender::new(State::default()), Arc::<AtomicUsize>::default());
        let (states, count) = (state.clone(), Arc::clone(&opened));
        let serving = tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                let connection = count.fetch_add(1, Ordering::Relaxed);
                tokio::spawn(serve(near, to, connection, states.subscribe()));
            }
        });
        Ok(Self { port, state, opened, serving })
    }

    pub(super) fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
    }

    /// How many connections there were so far.
    pub(super) fn opened(&self) -> usize {
        self.opened.load(Ordering::Relaxed)
    }

    /// The connections that are open hang from now on; new ones work.
    pub(super) fn freeze_open_connections(&self) {
        let frozen_below = self.opened();
        self.state.send_modify(|state| state.frozen_below = frozen_below);
    }

    /// Everything hangs; new connections are accepted and get no answer.
    pub(super) fn freeze(&self) {
        self.state.send_modify(|state| state.all = true);
    }

    pub(super) fn thaw(&self) {
        self.state.send_modify(|state| *state = State::default());
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn serve(near: TcpStream, to: u16, connection: usize, state: watch::Receiver<State>) {
    let Ok(far) = TcpStream::connect(("127.0.0.1", to)).await else { return };
    let ((near_read, near_write), (far_read, far_write)) = (near.into_split(), far.into_split());
    let up = forward(near_read, far_write, connection, state.clone());
    let down = forward(far_read, near_write, connection, state);
    tokio::join!(up, down);
}

/// What is read while it may not pass waits, and so does the end of the connection: the other side must not notice.
async fn forward(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    connection: usize,
    mut state: watch::Receiver<State>,
) {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let length = from.read(&mut buffer).await.unwrap_or_default();
        if state.wait_for(|state| state.lets_through(connection)).await.is_err() {
            return;
        }
        if length == 0 || to.write_all(&buffer[..length]).await.is_err() {
            let _ = to.shutdown().await;
            return;
        }
    }
}
