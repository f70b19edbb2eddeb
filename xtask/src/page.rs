//! `cargo xtask page`: the operator's page (docs/dashboard.md) in a real browser.
//!
//! `kerf demo` serves the page and Chromium opens it without a screen, steered by its own driver. Where either is missing, the
//! lane is skipped.

mod driver;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use serde_json::{Value, json};

use crate::aws::Outcome;
use crate::cargo::{cargo, workspace};
use driver::{Browser, Driver};

pub(crate) use driver::program;

#[derive(Args, Default)]
pub(crate) struct Looking {
    /// Write pictures of the page and of a report into this directory, at three widths
    #[arg(long)]
    screenshots: Option<PathBuf>,
    /// The binary to run; built if not given
    #[arg(long)]
    kerf: Option<PathBuf>,
}

/// A phone, a tablet, a desk.
const WIDTHS: [u32; 3] = [390, 900, 1400];
const PATIENCE: Duration = Duration::from_mins(1);

pub(crate) fn run(looking: &Looking) -> Result<Outcome> {
    let (Some(driver), Some(chromium)) = (driver::program("chromedriver"), driver::browser())
    else {
        let reason = "Chromium or its driver is missing; on Debian: apt-get install chromium chromium-driver";
        return Ok(Outcome::Skipped { reason: reason.to_owned() });
    };
    let kerf = match &looking.kerf {
        Some(kerf) => kerf.clone(),
        None => build()?,
    };
    let demo = Demo::start(&kerf)?;
    let driver = Driver::start(&driver)?;
    let browser = driver.open(&chromium)?;
    check(&browser, &demo)?;
    // In a window of its own: the page goes on asking for news while the report is made.
    let reader = driver.open(&chromium)?;
    check_report(&reader, &kerf)?;
    if let Some(directory) = &looking.screenshots {
        picture(&browser, &demo, directory)?;
        picture_report(&reader, &kerf, directory)?;
    }
    eprintln!("the page and the report work in a browser");
    Ok(Outcome::Done)
}

fn build() -> Result<PathBuf> {
    let mut command = cargo(&["build", "--package", "kerf", "--message-format=json"]);
    let output = command.stderr(Stdio::inherit()).output().context("cannot run cargo")?;
    ensure!(output.status.success(), "kerf does not build");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let messages = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let found = messages
        .filter(|it| it["target"]["name"] == "kerf")
        .find_map(|it| it["executable"].as_str().map(PathBuf::from));
    found.context("cargo does not say where it put kerf")
}

/// What the page must do for a person, with a mouse and without.
fn check(browser: &Browser<'_>, demo: &Demo) -> Result<()> {
    browser.go(&demo.url)?;
    browser
        .wait("the page shows a node", "return document.querySelectorAll('.node').length > 0")?;
    let filled = "return [...document.querySelectorAll('.node .bar i')].some((part) => part.getBoundingClientRect().width > 2)";
    browser.wait("a node is filled by its pods", filled)?;
    browser.wait(
        "a decision is shown with its reason",
        "return document.querySelector('#log li .reason') !== null",
    )?;
    browser
        .wait("the price is drawn", "return document.querySelector('#chart path.line') !== null")?;
    browser.wait(
        "a pool is shown with its controls",
        "return document.querySelector('#pools .pool dl') !== null",
    )?;

    browser.run("document.querySelector('.node').click()")?;
    let explained = "return document.getElementById('detail').open && document.getElementById('detail-explain').textContent.includes(document.getElementById('detail-name').textContent.slice(5))";
    browser.wait("a click on a node shows its explanation", explained)?;
    browser.press("Escape")?;
    browser.wait("Escape closes it", "return !document.getElementById('detail').open")?;

    browser.run("document.activeElement.blur(); document.getElementById('find-name').focus()")?;
    browser.press("Tab")?;
    browser
        .wait("Tab reaches a node", "return document.activeElement.classList.contains('node')")?;
    browser.press("Enter")?;
    browser.wait("Enter shows its explanation", explained)?;
    browser.press("Escape")?;
    let back = "return document.activeElement.classList.contains('node')";
    browser.wait("the focus is where it was", back)?;

    fits(browser, "the page")?;
    keeps_to_itself(browser, &demo.url)
}

/// The report of `kerf simulate` as a page: half an hour of the demo's scenario under two policies.
fn check_report(browser: &Browser<'_>, kerf: &Path) -> Result<()> {
    let directory = tempfile::tempdir()?;
    let report = simulate(kerf, &["--compare=parity,kerf-defaults", "--length=30m"], &directory)?;
    browser.go(&report)?;
    browser.wait("the report has a verdict", "return document.querySelector('h1') !== null")?;
    fits(browser, "the report")?;
    let choose = "const radio = document.querySelector('input[type=radio]:not(:checked)'); radio.click(); \
                  return radio.checked";
    ensure!(browser.run(choose)? == true, "another quantity cannot be chosen");
    keeps_to_itself(browser, &report)
}

/// The report's address. It is of the scenario with which the README begins.
fn simulate(kerf: &Path, arguments: &[&str], directory: &tempfile::TempDir) -> Result<String> {
    let report = directory.path().join("report.html");
    let mut command = Command::new(kerf);
    command.args(["simulate", "examples/simulate/off-peak-cascade.yaml"]).args(arguments);
    command.arg(format!("--html={}", report.display())).current_dir(workspace());
    let output = command.output().with_context(|| format!("cannot run {}", kerf.display()))?;
    ensure!(output.status.success(), "kerf: {}", String::from_utf8_lossy(&output.stderr));
    Ok(format!("file://{}", report.display()))
}

/// Nothing has to be scrolled sideways.
fn fits(browser: &Browser<'_>, what: &str) -> Result<()> {
    for width in WIDTHS {
        browser.width(width, 900)?;
        let fits =
            "return document.documentElement.scrollWidth <= document.documentElement.clientWidth";
        ensure!(browser.run(fits)? == true, "{what} is wider than {width} pixels");
    }
    Ok(())
}

/// The browser has nothing to say against it, and was asked for nothing from elsewhere.
fn keeps_to_itself(browser: &Browser<'_>, url: &str) -> Result<()> {
    let complaints = browser.complaints()?;
    ensure!(complaints.is_empty(), "the browser complains: {complaints:#?}");
    let elsewhere: Vec<_> =
        browser.requests()?.into_iter().filter(|asked| !asked.starts_with(url)).collect();
    ensure!(elsewhere.is_empty(), "{url} asks elsewhere: {elsewhere:#?}");
    Ok(())
}

fn picture(browser: &Browser<'_>, demo: &Demo, directory: &Path) -> Result<()> {
    fs::create_dir_all(directory)?;
    for scheme in ["light", "dark"] {
        browser.scheme(scheme)?;
        for width in WIDTHS {
            browser.width(width, 1000)?;
            browser.go(&demo.url)?;
            browser.wait("nodes", "return document.querySelectorAll('.node').length > 0")?;
            let file = directory.join(format!("page-{width}-{scheme}.png"));
            fs::write(&file, browser.screenshot(true)?)?;
            eprintln!("wrote {}", file.display());
        }
        browser.run("document.querySelector('.node').click()")?;
        browser.wait(
            "an explanation",
            "return document.getElementById('detail-explain').textContent.includes(document.getElementById('detail-name').textContent.slice(5))",
        )?;
        let file = directory.join(format!("page-node-{scheme}.png"));
        fs::write(&file, browser.screenshot(false)?)?;
        eprintln!("wrote {}", file.display());
    }
    Ok(())
}

/// The report of all policies, at three widths, and dark at one.
fn picture_report(browser: &Browser<'_>, kerf: &Path, directory: &Path) -> Result<()> {
    eprintln!("simulating three hours under nine policies");
    let temporary = tempfile::tempdir()?;
    let report = simulate(kerf, &["--compare=all"], &temporary)?;
    for (width, scheme) in [(390, "light"), (900, "light"), (1400, "light"), (390, "dark")] {
        browser.scheme(scheme)?;
        browser.width(width, 1000)?;
        browser.go(&report)?;
        let file = directory.join(format!("report-{width}-{scheme}.png"));
        fs::write(&file, browser.screenshot(true)?)?;
        eprintln!("wrote {}", file.display());
    }
    Ok(())
}

/// `kerf demo` with its page.
struct Demo {
    child: Child,
    url: String,
}

impl Demo {
    fn start(kerf: &Path) -> Result<Self> {
        let port = free_port()?;
        let mut command = Command::new(kerf);
        command.args(["demo", "--serve", "--length=22m", "--output=json"]);
        command.arg(format!("--dashboard-port={port}")).current_dir(workspace());
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().with_context(|| format!("cannot run {}", kerf.display()))?;
        let mut demo = Self { child, url: format!("http://127.0.0.1:{port}/") };
        let begin = Instant::now();
        while begin.elapsed() < PATIENCE {
            if let Some(status) = demo.child.try_wait()? {
                bail!("kerf demo ended with {status}");
            }
            let view = ask(port, "GET", "/api/view", None).unwrap_or_default();
            if view["nodes"].as_array().is_some_and(|nodes| nodes.len() > 1) {
                return Ok(demo);
            }
            thread::sleep(Duration::from_millis(200));
        }
        bail!("the demo's page showed no nodes within {} s", PATIENCE.as_secs())
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn free_port() -> Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

/// One request to a server on this machine, and the JSON that it answers.
fn ask(port: u16, method: &str, path: &str, body: Option<&Value>) -> Result<Value> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let body = body.map(Value::to_string).unwrap_or_default();
    let length = body.len();
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n\
         Content-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )?;
    // The driver leaves the connection open, whatever it is asked.
    let mut answer = BufReader::new(stream);
    let mut length = 0;
    loop {
        let mut line = String::new();
        ensure!(answer.read_line(&mut line)? > 0, "{method} {path}: the answer breaks off");
        let line = line.trim().to_ascii_lowercase();
        if line.is_empty() {
            break;
        }
        if let Some(given) = line.strip_prefix("content-length:") {
            length = given.trim().parse()?;
        }
    }
    let mut body = vec![0; length];
    answer.read_exact(&mut body)?;
    let value: Value = serde_json::from_slice(&body)?;
    if value["value"]["error"].is_string() {
        bail!("{method} {path}: {}", json!(value["value"]["message"]));
    }
    Ok(value)
}
