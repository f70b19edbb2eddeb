//! A TCP proxy on loopback that can stop to forward without closing anything, and close everything without asking.

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
    /// Connections with a lower number than this are closed.
    cut_below: usize,
}

impl State {
    fn lets_through(self, connection: usize) -> bool {
        !self.all && connection >= self.frozen_below
    }

    fn cuts(self, connection: usize) -> bool {
        connection < self.cut_below
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

    /// Everything goes on; what waited arrives late.
    pub(super) fn thaw(&self) {
        self.state.send_modify(|state| (state.all, state.frozen_below) = (false, 0));
    }

    /// New connections work again; those that were open stay dead, and nobody tells either side.
    pub(super) fn forget_open_connections(&self) {
        let frozen_below = self.opened();
        self.state.send_modify(|state| (state.all, state.frozen_below) = (false, frozen_below));
    }

    /// Closes the connections that are open; new ones work.
    pub(super) fn cut(&self) {
        let cut_below = self.opened();
        self.state.send_modify(|state| state.cut_below = cut_below);
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
        let length = tokio::select! {
            length = from.read(&mut buffer) => length.unwrap_or_default(),
            _ = state.wait_for(|state| state.cuts(connection)) => return,
        };
        let goes_on =
            state.wait_for(|state| state.lets_through(connection) || state.cuts(connection));
        if goes_on.await.map_or(true, |state| state.cuts(connection)) {
            return;
        }
        if length == 0 || to.write_all(&buffer[..length]).await.is_err() {
            let _ = to.shutdown().await;
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    /// A server that sends back what it gets.
    async fn echo() -> u16 {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (mut read, mut write) = stream.into_split();
                tokio::spawn(async move { tokio::io::copy(&mut read, &mut write).await });
            }
        });
        port
    }

    async fn connect(proxy: &Proxy) -> TcpStream {
        let mut stream = TcpStream::connect(("127.0.0.1", proxy.port)).await.unwrap();
        // From here on the proxy knows of it.
        assert_eq!(say(&mut stream).await, Some(1));
        stream
    }

    /// How many bytes come back: none when the connection is closed, `None` when nothing happens.
    async fn say(stream: &mut TcpStream) -> Option<usize> {
        let _ = stream.write_all(b"x").await;
        hear(stream).await
    }

    async fn hear(stream: &mut TcpStream) -> Option<usize> {
        let answer = timeout(Duration::from_millis(300), stream.read(&mut [0; 8])).await.ok()?;
        Some(answer.unwrap_or_default())
    }

    #[tokio::test]
    async fn what_was_frozen_arrives_late_or_never() {
        let proxy = Proxy::start(echo().await).await.unwrap();
        let mut stalled = connect(&proxy).await;
        proxy.freeze();
        assert_eq!(say(&mut stalled).await, None);
        proxy.thaw();
        assert_eq!(hear(&mut stalled).await, Some(1));

        proxy.freeze();
        assert_eq!(say(&mut stalled).await, None);
        proxy.forget_open_connections();
        assert_eq!(hear(&mut stalled).await, None);
        connect(&proxy).await;
    }

    #[tokio::test]
    async fn what_is_cut_is_closed_even_while_it_hangs() {
        let proxy = Proxy::start(echo().await).await.unwrap();
        let (mut idle, mut frozen) = (connect(&proxy).await, connect(&proxy).await);
        proxy.freeze();
        assert_eq!(say(&mut frozen).await, None);
        proxy.cut();
        assert_eq!((hear(&mut idle).await, hear(&mut frozen).await), (Some(0), Some(0)));
        proxy.thaw();
        connect(&proxy).await;
    }
}
