//! Requests that never end.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::Siege;

const REQUESTS: usize = 3_000;
/// A kubelet gives a probe one second, three times.
const PROBE: Duration = Duration::from_secs(3);

pub(super) async fn half_sent_requests(siege: &mut Siege, case: &str) -> Result<()> {
    let port = siege.replica.port("health-probe-port")?.context("the operator listens")?;
    let mut open = Vec::with_capacity(REQUESTS);
    for _ in 0..REQUESTS {
        // One that is not taken is what the operator is free to do.
        let connection = timeout(Duration::from_secs(1), TcpStream::connect(("127.0.0.1", port)));
        if let Ok(Ok(mut stream)) = connection.await {
            let _ = stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: ").await;
            open.push(stream);
        } else {
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
