//! As much of the `WebDriver` protocol as the page's test needs, with Chromium's own driver.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use base64::Engine;
use serde_json::{Value, json};

use super::{PATIENCE, ask, free_port};

/// A program of this name in the path.
pub(crate) fn program(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path).map(|directory| directory.join(name)).find(|file| file.is_file())
}

pub(super) fn browser() -> Option<PathBuf> {
    ["chromium", "chromium-browser", "google-chrome"].iter().find_map(|name| program(name))
}

/// The driver's process, which ends with this.
pub(super) struct Driver {
    child: Child,
    port: u16,
}

impl Driver {
    pub(super) fn start(program: &Path) -> Result<Self> {
        let port = free_port()?;
        let mut command = Command::new(program);
        command.arg(format!("--port={port}")).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().context("cannot start chromedriver")?;
        let mut driver = Self { child, port };
        let begin = Instant::now();
        while begin.elapsed() < PATIENCE {
            if let Some(status) = driver.child.try_wait()? {
                bail!("chromedriver ended with {status}");
            }
            if ask(port, "GET", "/status", None).is_ok_and(|it| it["value"]["ready"] == true) {
                return Ok(driver);
            }
            thread::sleep(Duration::from_millis(100));
        }
        bail!("chromedriver did not answer within {} s", PATIENCE.as_secs())
    }

    pub(super) fn open(&self, chromium: &Path) -> Result<Browser<'_>> {
        // In containers there is no sandbox to be had and little shared memory. The page is our own, on loopback.
        let arguments =
            ["--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--hide-scrollbars"];
        let capabilities = json!({
            "goog:chromeOptions": { "binary": chromium, "args": arguments },
            "goog:loggingPrefs": { "browser": "ALL", "performance": "ALL" },
        });
        let body = json!({ "capabilities": { "alwaysMatch": capabilities } });
        let session = ask(self.port, "POST", "/session", Some(&body))?;
        let id = session["value"]["sessionId"].as_str().context("no session")?;
        Ok(Browser { driver: self, path: format!("/session/{id}") })
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// A browser with one page. It closes with this.
pub(super) struct Browser<'d> {
    driver: &'d Driver,
    path: String,
}

impl Browser<'_> {
    pub(super) fn go(&self, url: &str) -> Result<()> {
        self.post("url", &json!({ "url": url })).map(drop)
    }

    /// Runs a script in the page.
    pub(super) fn run(&self, script: &str) -> Result<Value> {
        self.post("execute/sync", &json!({ "script": script, "args": [] }))
    }

    /// Waits until the script returns true.
    pub(super) fn wait(&self, what: &str, script: &str) -> Result<()> {
        let begin = Instant::now();
        while begin.elapsed() < PATIENCE {
            if self.run(script)? == true {
                return Ok(());
            }
            thread::sleep(Duration::from_millis(50));
        }
        let complaints = self.complaints().unwrap_or_default();
        bail!("waited in vain until {what}; the browser says {complaints:?}")
    }

    pub(super) fn press(&self, key: &str) -> Result<()> {
        let code = match key {
            "Tab" => "\u{e004}",
            "Enter" => "\u{e007}",
            "Escape" => "\u{e00c}",
            other => other,
        };
        let keys =
            json!([{ "type": "keyDown", "value": code }, { "type": "keyUp", "value": code }]);
        let actions = json!({ "actions": [{ "type": "key", "id": "keyboard", "actions": keys }] });
        self.post("actions", &actions).map(drop)
    }

    pub(super) fn width(&self, width: u32, height: u32) -> Result<()> {
        let size =
            json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        self.command("Emulation.setDeviceMetricsOverride", &size).map(drop)
    }

    /// `light` or `dark`.
    pub(super) fn scheme(&self, scheme: &str) -> Result<()> {
        let features = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        self.command("Emulation.setEmulatedMedia", &json!({ "features": features })).map(drop)
    }

    /// A PNG of the page, all of it or what is on the screen.
    pub(super) fn screenshot(&self, whole: bool) -> Result<Vec<u8>> {
        let how = json!({ "format": "png", "captureBeyondViewport": whole });
        let picture = self.command("Page.captureScreenshot", &how)?;
        let data = picture["data"].as_str().context("no picture")?;
        Ok(base64::engine::general_purpose::STANDARD.decode(data)?)
    }

    /// What the browser has to say about the page since the last time.
    pub(super) fn complaints(&self) -> Result<Vec<String>> {
        let log = self.post("se/log", &json!({ "type": "browser" }))?;
        let entries = log.as_array().cloned().unwrap_or_default();
        Ok(entries
            .iter()
            .map(|entry| format!("{}: {}", entry["level"], entry["message"]))
            .collect())
    }

    /// The addresses that were asked for since the last time.
    pub(super) fn requests(&self) -> Result<Vec<String>> {
        let log = self.post("se/log", &json!({ "type": "performance" }))?;
        let entries = log.as_array().cloned().unwrap_or_default();
        let messages = entries.iter().filter_map(|entry| entry["message"].as_str());
        let messages = messages.filter_map(|text| serde_json::from_str::<Value>(text).ok());
        let sent = messages.map(|mut it| it["message"].take());
        let sent = sent.filter(|it| it["method"] == "Network.requestWillBeSent");
        let urls: Vec<String> = sent
            .filter_map(|it| it["params"]["request"]["url"].as_str().map(str::to_owned))
            .collect();
        anyhow::ensure!(!urls.is_empty(), "the browser tells of no request");
        Ok(urls)
    }

    fn command(&self, name: &str, parameters: &Value) -> Result<Value> {
        self.post("goog/cdp/execute", &json!({ "cmd": name, "params": parameters }))
    }

    fn post(&self, what: &str, body: &Value) -> Result<Value> {
        let path = format!("{}/{what}", self.path);
        let mut answer = ask(self.driver.port, "POST", &path, Some(body))?;
        Ok(answer["value"].take())
    }
}

impl Drop for Browser<'_> {
    fn drop(&mut self) {
        drop(ask(self.driver.port, "DELETE", &self.path, None));
    }
}
