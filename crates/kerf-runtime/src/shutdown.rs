//! Stopping on request.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

/// A token that is cancelled by the first SIGTERM or SIGINT. The second one ends the process at once,
/// for users who do not want to wait for the controllers to finish.
pub fn on_signals() -> io::Result<CancellationToken> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let stop = CancellationToken::new();
    let stopping = stop.clone();
    tokio::spawn(async move {
        let name = next(&mut terminate, &mut interrupt).await;
        info!(signal = name, "stopping");
        stopping.cancel();
        let name = next(&mut terminate, &mut interrupt).await;
        warn!(signal = name, "stopping at once");
        std::process::exit(1);
    });
    Ok(stop)
}

async fn next(terminate: &mut Signal, interrupt: &mut Signal) -> &'static str {
    tokio::select! {
        biased;
        _ = terminate.recv() => "SIGTERM",
        _ = interrupt.recv() => "SIGINT",
    }
}
