//! A real Prometheus reads the operator's metrics, and evaluates the alerts of the chart and rules that were made for Karpenter.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use kerf_control_plane::ControlPlane;
use serde_json::Value;

use super::rules;
use crate::page::program;
use crate::process::Process;

const PATIENCE: Duration = Duration::from_mins(1);

/// What the rules record while a cluster has nodes with pods on them: a value above 0.
const RECORDED: [&str; 2] =
    ["karpenter:cluster_cost:dollars_per_hour", "karpenter:cpu_requested:ratio"];

pub(super) fn find() -> Option<PathBuf> {
    program("prometheus")
}

/// Lets Prometheus read the metrics at this port until each rule was evaluated.
pub(super) async fn evaluate(
    prometheus: PathBuf,
    cluster: &ControlPlane,
    metrics: u16,
) -> Result<()> {
    let directory = cluster.dir().join("prometheus");
    fs::create_dir_all(&directory)?;
    rules::write(&directory)?;
    let configuration = format!(
        "global: {{scrape_interval: 1s, evaluation_interval: 1s}}\n\
         rule_files: [{}, {}]\n\
         scrape_configs: [{{job_name: kerf, static_configs: [{{targets: ['127.0.0.1:{metrics}']}}]}}]\n",
        rules::ALERTS,
        rules::KARPENTER
    );
    fs::write(directory.join("prometheus.yaml"), configuration)?;
    let port = cluster.spare_port();
    let mut command = cluster.command(prometheus);
    command.args(["--config.file=prometheus.yaml", "--storage.tsdb.path=data"]);
    command.arg(format!("--web.listen-address=127.0.0.1:{port}")).current_dir(&directory);
    let mut process = Process::start(&mut command, &directory.join("log"))?;

    let begin = Instant::now();
    loop {
        process.check()?;
        match seen(port) {
            Ok(lines) => {
                for line in lines {
                    println!("(Prometheus: {line})");
                }
                return Ok(());
            }
            Err(why) if begin.elapsed() > PATIENCE => {
                bail!("Prometheus has not evaluated the rules: {why:#}\n{}", process.log()?)
            }
            Err(_) => tokio::time::sleep(Duration::from_millis(500)).await,
        }
    }
}

/// The recorded values, and how many rules were evaluated without a fault.
fn seen(port: u16) -> Result<Vec<String>> {
    let mut lines = Vec::new();
    for name in RECORDED {
        let answer = get(port, &format!("/api/v1/query?query={name}"))?;
        let value = answer["data"]["result"][0]["value"][1].as_str().context("no value")?;
        ensure!(value.parse::<f64>()? > 0.0, "{name} is {value}");
        lines.push(format!("{name} is {value}"));
    }
    let groups = get(port, "/api/v1/rules")?;
    let groups = groups["data"]["groups"].as_array().context("no rules")?;
    let rules: Vec<&Value> =
        groups.iter().filter_map(|group| group["rules"].as_array()).flatten().collect();
    let ill: Vec<_> = rules.iter().filter(|rule| rule["health"] != "ok").collect();
    ensure!(ill.is_empty(), "{ill:?}");
    lines.push(format!("{} rules are evaluated without a fault", rules.len()));
    Ok(lines)
}

/// In HTTP/1.0, so that the answer ends with the connection.
fn get(port: u16, path: &str) -> Result<Value> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (_, body) = answer.split_once("\r\n\r\n").context("no answer")?;
    Ok(serde_json::from_str(body)?)
}
