//! Requests that never end.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use futures::future::join_all;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::Siege;

const REQUESTS: usize = 3_000;
const AT_ONCE: usize = 100;
/// A kubelet gives a probe one second, three times.
const PROBE: Duration = Duration::from_secs(3);

pub(super) async fn half_sent_requests(siege: &mut Siege, case: &str) -> Result<()> {
    let port = siege.replica.port("health-probe-port")?.context("the operator listens")?;
    let mut open = Vec::with_capacity(REQUESTS);
    while open.len() < REQUESTS {
        let some = (0..AT_ONCE).map(|_| half_sent(port));
        let before = open.len();
        open.extend(join_all(some).await.into_iter().flatten());
        if open.len() == before {
            // It takes no more, which it is free to do.
            break;
        }
    }
    siege.report.figure(format!("{case}: sent"), open.len() as f64, "");
    // For as long as three probes in a row, at ten seconds each.
    let (begin, mut failed, mut probes, mut slowest) = (Instant::now(), 0, 0, 0.0_f64);
    while begin.elapsed() < Duration::from_secs(30) {
        let asked = Instant::now();
        probes += 1;
        if siege.replica.probe("/healthz", PROBE).await? == Some(200) {
            slowest = slowest.max(asked.elapsed().as_secs_f64());
        } else {
            failed += 1;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    siege.report.figure(format!("{case}: probes meanwhile"), f64::from(probes), "");
    siege.report.at_most(format!("{case}: probes without an answer"), f64::from(failed), "", 0.0);
    siege.report.figure(format!("{case}: slowest answer"), slowest, "s");
    siege.canary(&format!("{case}, while they are there")).await?;
    drop(open);
    siege.holds(case).await
}

/// A connection with the beginning of a request; `None` if it is not taken.
async fn half_sent(port: u16) -> Option<TcpStream> {
    // The kernel tries again after one and after three seconds.
    let connection = timeout(Duration::from_secs(5), TcpStream::connect(("127.0.0.1", port)));
    let mut stream = connection.await.ok()?.ok()?;
    stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: ").await.ok()?;
    Some(stream)
}
