//! One running control plane: start, readiness, use, stop.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Instant;

use http::{Request, Uri};
use kube::config::AuthInfo;
use kube::{Client, Config};

use crate::binaries::{Binaries, BinariesError};
use crate::cache::control_plane_cache;
use crate::components::{Layout, Options, Profile, kubeconfig_in, port};
use crate::guard::Guard;
use crate::pki::{ADMIN, PkiError};
use crate::ports::{BLOCK, PortBlock, PortError};
use crate::program::Program;
use crate::wait::{INTERVAL, patience};

/// A control plane that lives as long as this value does, and never longer than its process.
#[derive(Debug)]
pub struct ControlPlane {
    guard: Guard,
    layout: Layout,
    binaries: Binaries,
    running: Vec<Program>,
    config: Config,
    options: Options,
    spare: AtomicU16,
}

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Binaries(#[from] BinariesError),
    #[error(transparent)]
    Ports(#[from] PortError),
    #[error(transparent)]
    Pki(#[from] PkiError),
    #[error("could not {what}")]
    Process { what: String, source: io::Error },
    #[error("could not make a client for {url}")]
    Client { url: String, source: kube::Error },
    #[error("{} ended while it was starting ({status}); the end of its log:\n{log}", program.name())]
    Ended { program: Program, status: String, log: String },
    #[error(
        "{} was not ready after {} s; the end of its log:\n{log}",
        program.name(),
        patience().as_secs()
    )]
    NotReady { program: Program, log: String },
}

impl ControlPlane {
    /// Starts a complete, empty cluster; ready to run pods when this returns.
    pub async fn start() -> Result<Self, StartError> {
        Self::start_with(Profile::Full).await
    }

    /// Starts as much of a cluster as the profile says, with binaries that are already there: it does
    /// not build any.
    pub async fn start_with(options: impl Into<Options>) -> Result<Self, StartError> {
        let binaries = Binaries::find()?;
        let base = std::env::temp_dir();
        Self::start_in(&binaries, options.into(), None, || {
            tempfile::Builder::new().prefix("kerf-").tempdir_in(&base).map(tempfile::TempDir::keep)
        })
        .await
    }

    /// Starts in the directory that `dir` makes. `claim` is a locked file that stays locked until the
    /// cluster has ended.
    pub(crate) async fn start_in(
        binaries: &Binaries,
        options: Options,
        claim: Option<&File>,
        dir: impl Fn() -> io::Result<PathBuf>,
    ) -> Result<Self, StartError> {
        // A program that knows nothing of our locks can take a port between our look and the bind.
        const ATTEMPTS: u32 = 4;
        let mut attempt = 0;
        loop {
            attempt += 1;
            let dir = dir().map_err(failed("make a directory for the cluster"))?;
            match Self::start_once(binaries, options, claim, dir, attempt).await {
                Err(error) if error.is_port_clash() && attempt < ATTEMPTS => {}
                result => return result,
            }
        }
    }

    async fn start_once(
        binaries: &Binaries,
        options: Options,
        claim: Option<&File>,
        dir: PathBuf,
        attempt: u32,
    ) -> Result<Self, StartError> {
        let locks = control_plane_cache().join("ports");
        let ports = PortBlock::reserve(&locks, std::process::id().wrapping_mul(attempt))?;
        let claim = claim.map(File::try_clone).transpose().map_err(failed("share the claim"))?;
        // From here on the guard removes the directory.
        let guard = Guard::new(&dir, &ports, claim).map_err(failed("start the guard"))?;
        let layout = Layout::create(dir, ports)?;
        let config = admin_config(&layout);
        let mut cluster = Self {
            guard,
            layout,
            binaries: binaries.clone(),
            running: Vec::new(),
            config,
            options,
            spare: AtomicU16::new(port::SPARE),
        };
        // The API server tries etcd again until it answers, so the two need not wait for each other.
        cluster.launch(Program::Etcd)?;
        cluster.launch(Program::KubeApiserver)?;
        let api = cluster.layout.https(port::API);
        cluster.wait_for(Program::KubeApiserver, &api, "/readyz").await?;
        if options.profile != Profile::ApiOnly {
            cluster.start_controllers(&api).await?;
        }
        Ok(cluster)
    }

    async fn start_controllers(&mut self, api: &str) -> Result<(), StartError> {
        let controllers = [
            (Program::KubeControllerManager, self.layout.https(port::CONTROLLER_MANAGER)),
            (Program::KubeScheduler, self.layout.https(port::SCHEDULER)),
            (Program::Kwok, self.layout.http(port::KWOK)),
        ];
        for (program, _) in &controllers {
            self.launch(*program)?;
        }
        for (program, url) in &controllers {
            self.wait_for(*program, url, "/healthz").await?;
        }
        // Admission refuses every pod until its namespace has this.
        let account = "/api/v1/namespaces/default/serviceaccounts/default";
        self.wait_for(Program::KubeControllerManager, api, account).await
    }

    /// A new client with the rights of a cluster admin, bound to the runtime it is made in. It does
    /// not retry: what the server answers (429 to an eviction, say) is what the test sees.
    pub fn client(&self) -> Client {
        Client::try_from(self.config.clone())
            .expect("the same configuration has served the readiness checks")
    }

    /// A new client for a user of this name, who has the rights of this group and no others.
    pub fn client_of(&self, user: &str, group: &str) -> Result<Client, PkiError> {
        self.layout.add_user(user, group, &self.api_server())?;
        let file =
            |ending| Some(self.layout.pki.path(&format!("{user}.{ending}")).display().to_string());
        let mut config = self.config.clone();
        config.auth_info = AuthInfo {
            client_certificate: file("crt"),
            client_key: file("key"),
            ..AuthInfo::default()
        };
        Ok(Client::try_from(config).expect("it differs from the admin's only in the certificate"))
    }

    /// The configuration behind [`client`](Self::client), to make other clients from.
    pub fn config(&self) -> Config {
        self.config.clone()
    }

    /// A kubeconfig with the rights of a cluster admin.
    pub fn kubeconfig_path(&self) -> PathBuf {
        self.layout.kubeconfig(&ADMIN)
    }

    /// A kubeconfig for a user of this name, who has the rights of this group ([`ADMINS`](crate::ADMINS) have all): the audit
    /// log tells users apart. The API server is reached at `server` (a proxy on 127.0.0.1, say), or directly.
    pub fn kubeconfig_of(
        &self,
        user: &str,
        group: &str,
        server: Option<&str>,
    ) -> Result<PathBuf, PkiError> {
        let direct = self.api_server();
        self.layout.add_user(user, group, server.unwrap_or(&direct))
    }

    /// A kubeconfig with a token of a `ServiceAccount`, in its namespace: what a pod would find.
    pub async fn kubeconfig_of_service_account(
        &self,
        namespace: &str,
        name: &str,
    ) -> io::Result<PathBuf> {
        let output = self.kubectl(&["create", "token", name, "-n", namespace]).await?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(io::Error::other(format!("kubectl create token {name}: {}", said.trim())));
        }
        let token = String::from_utf8_lossy(&output.stdout);
        let (server, token) = (self.api_server(), token.trim());
        let authority = self.layout.pki.path("ca.crt");
        let config = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: it\n\
             clusters: [{{name: it, cluster: {{server: \"{server}\", certificate-authority: \"{}\"}}}}]\n\
             users: [{{name: it, user: {{token: \"{token}\"}}}}]\n\
             contexts: [{{name: it, context: {{cluster: it, user: it, namespace: \"{namespace}\"}}}}]\n",
            authority.display()
        );
        let path = self.dir().join(format!("{namespace}.{name}.kubeconfig"));
        fs::write(&path, config)?;
        Ok(path)
    }

    /// Where the API server listens: a URL.
    pub fn api_server(&self) -> String {
        self.layout.https(port::API)
    }

    /// What the API server wrote down of each request, one JSON object (`audit.k8s.io/v1`, `Event`) a line; `None` without
    /// [`Profile::audited`].
    pub fn audit_log(&self) -> Option<PathBuf> {
        self.options.audit.then(|| self.layout.audit_log())
    }

    /// The directory of this cluster, with `kubeconfig` and a `<component>.log` each; gone when the
    /// cluster is.
    pub fn dir(&self) -> &Path {
        &self.layout.dir
    }

    pub fn binaries(&self) -> &Binaries {
        &self.binaries
    }

    /// The components that run, with their process ids.
    pub fn processes(&self) -> Vec<(Program, u32)> {
        self.running.iter().copied().zip(self.guard.pids()).collect()
    }

    /// A port on 127.0.0.1 that no other cluster uses, for a program that the test starts itself.
    /// Each call gives another one; there are ten.
    pub fn spare_port(&self) -> u16 {
        let index = self.spare.fetch_add(1, Ordering::Relaxed);
        assert!(index < BLOCK, "all {} spare ports are in use", BLOCK - port::SPARE);
        self.layout.ports.port(index)
    }

    /// A command for a program that works on this cluster: `KUBECONFIG` says where it is, and the
    /// process ends with the cluster at the latest, even if we are killed.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command.env("KUBECONFIG", self.kubeconfig_path());
        self.guard.enlist(&mut command);
        command
    }

    /// Runs kubectl against this cluster to its end.
    pub async fn kubectl<S: AsRef<OsStr>>(&self, arguments: &[S]) -> io::Result<Output> {
        self.kubectl_with_input(arguments, "").await
    }

    /// As [`kubectl`](Self::kubectl), with something to read: `["apply", "-f", "-"]` and a manifest.
    pub async fn kubectl_with_input<S: AsRef<OsStr>>(
        &self,
        arguments: &[S],
        input: impl Into<Vec<u8>>,
    ) -> io::Result<Output> {
        let mut command = kubectl(&self.binaries, self.dir());
        command.args(arguments);
        let input = input.into();
        // Not on a runtime's thread: an operator in the same process may have to answer it.
        let task = tokio::task::spawn_blocking(move || {
            let mut child = command
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()?;
            if let Some(mut stdin) = child.stdin.take() {
                // kubectl that fails early closes its input, and tells the reason in its output.
                let _ = stdin.write_all(&input);
            }
            child.wait_with_output()
        });
        task.await.map_err(io::Error::other)?
    }

    /// Lets the cluster live on after this process.
    pub(crate) fn detach(self) -> Result<(), StartError> {
        self.guard.detach().map_err(failed("leave the cluster to its guard"))
    }

    fn launch(&mut self, program: Program) -> Result<(), StartError> {
        let what = format!("start {}", self.binaries.path(program).display());
        self.layout
            .command(&self.binaries, program, self.options)
            .and_then(|mut command| self.guard.spawn(&mut command))
            .map_err(failed(what))?;
        self.running.push(program);
        Ok(())
    }

    /// Ends etcd and the API server, lets `work` have what etcd has stored, and starts them again.
    pub(crate) async fn while_stored(
        &mut self,
        work: impl FnOnce(&Path) -> io::Result<()>,
    ) -> Result<(), StartError> {
        self.kill(Program::KubeApiserver)?;
        self.kill(Program::Etcd)?;
        work(&self.layout.etcd_data()).map_err(failed("copy what etcd has stored"))?;
        self.launch_again(Program::Etcd)?;
        self.start_again(Program::KubeApiserver).await
    }

    /// Ends a component with SIGKILL, as a machine that fails would. Everything else goes on without it.
    pub fn kill(&mut self, program: Program) -> Result<(), StartError> {
        let component = self.component(program)?;
        self.guard.kill(component).map_err(failed(format!("stop {}", program.name())))
    }

    /// Starts a component that was killed on the data that it left, and waits until the API server is ready. Components that
    /// have ended meanwhile are started as well, as a kubelet does with the ones that cannot be without the API server.
    pub async fn start_again(&mut self, program: Program) -> Result<(), StartError> {
        self.launch_again(program)?;
        for other in self.running.clone() {
            let component = self.component(other)?;
            if self.guard.exited(component).is_some() {
                self.launch_again(other)?;
            }
        }
        let api = self.layout.https(port::API);
        self.wait_for(Program::KubeApiserver, &api, "/readyz").await
    }

    fn launch_again(&mut self, program: Program) -> Result<(), StartError> {
        let component = self.component(program)?;
        self.layout
            .command(&self.binaries, program, self.options)
            .and_then(|mut command| self.guard.respawn(component, &mut command))
            .map_err(failed(format!("start {} again", program.name())))
    }

    fn component(&self, program: Program) -> Result<usize, StartError> {
        let found = self.running.iter().position(|running| *running == program);
        found.ok_or_else(|| {
            let missing = io::Error::new(io::ErrorKind::NotFound, "it is not part of this cluster");
            failed(format!("find {}", program.name()))(missing)
        })
    }

    /// Waits until `url` + `path` answers with success, or one of the components has ended.
    async fn wait_for(
        &mut self,
        program: Program,
        url: &str,
        path: &str,
    ) -> Result<(), StartError> {
        let mut config = self.config.clone();
        config.cluster_url = uri(url);
        let client = Client::try_from(config)
            .map_err(|source| StartError::Client { url: url.to_owned(), source })?;
        let end = Instant::now() + patience();
        loop {
            if let Some((program, status)) = self.ended() {
                return Err(StartError::Ended { program, status, log: self.log_tail(program) });
            }
            let request = Request::get(path).body(Vec::new()).expect("a path makes a request");
            if client.request_text(request).await.is_ok() {
                return Ok(());
            }
            if Instant::now() > end {
                return Err(StartError::NotReady { program, log: self.log_tail(program) });
            }
            tokio::time::sleep(INTERVAL).await;
        }
    }

    fn ended(&mut self) -> Option<(Program, String)> {
        let running = self.running.iter().enumerate();
        running.into_iter().find_map(|(index, program)| Some((*program, self.guard.exited(index)?)))
    }

    fn log_tail(&self, program: Program) -> String {
        let path = self.layout.log(program);
        match fs::read(&path) {
            Ok(log) => last_lines(&String::from_utf8_lossy(&log), 15),
            Err(error) => format!("({} cannot be read: {error})", path.display()),
        }
    }
}

impl StartError {
    fn is_port_clash(&self) -> bool {
        matches!(self, Self::Ended { log, .. } if log.contains("address already in use"))
    }
}

/// kubectl for the cluster in `dir`. Its home is there too, or it would answer from what it cached
/// about an earlier cluster on the same port.
pub(crate) fn kubectl(binaries: &Binaries, dir: &Path) -> Command {
    let mut command = Command::new(binaries.path(Program::Kubectl));
    command.env("KUBECONFIG", kubeconfig_in(dir)).env("HOME", dir);
    command
}

fn admin_config(layout: &Layout) -> Config {
    let file = |name: &str| Some(layout.pki.path(name).display().to_string());
    let mut config = Config::new(uri(&layout.https(port::API)));
    config.root_cert = Some(vec![layout.pki.ca_der().to_vec()]);
    config.auth_info = AuthInfo {
        client_certificate: file("admin.crt"),
        client_key: file("admin.key"),
        ..AuthInfo::default()
    };
    config.default_retry = false;
    config
}

fn uri(url: &str) -> Uri {
    url.parse().expect("a scheme, 127.0.0.1 and a port make a URI")
}

pub(crate) fn failed(what: impl Into<String>) -> impl FnOnce(io::Error) -> StartError {
    let what = what.into();
    move |source| StartError::Process { what, source }
}

fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<_> = text.lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::binaries::tests::stubs;

    /// What starting such programs ends with, and how many times they were started.
    async fn start(body: &str) -> (String, usize) {
        let stub_dir = tempfile::tempdir().unwrap();
        let count = "echo . >> \"$(dirname \"$0\")/$(basename \"$0\").count\"";
        let binaries = stubs(stub_dir.path(), &format!("{count}\n{body}"));
        let clusters = tempfile::tempdir().unwrap();
        let started = ControlPlane::start_in(&binaries, Profile::ApiOnly.into(), None, || {
            tempfile::tempdir_in(clusters.path()).map(tempfile::TempDir::keep)
        });
        let error = started.await.unwrap_err().to_string();
        assert_eq!(fs::read_dir(clusters.path()).unwrap().count(), 0, "a directory is left");
        let count = fs::read_to_string(stub_dir.path().join("etcd.count")).unwrap();
        (error, count.lines().count())
    }

    #[tokio::test]
    async fn a_component_that_ends_is_named_with_its_last_words() {
        let (error, starts) =
            start("case $0 in *etcd) echo no space; exit 3;; esac; sleep 600").await;
        assert!(error.starts_with("etcd ended while it was starting (exit status: 3)"), "{error}");
        assert!(error.ends_with("no space"), "{error}");
        assert_eq!(starts, 1);
    }

    #[tokio::test]
    async fn starts_again_when_a_port_was_taken() {
        let (error, starts) =
            start("case $0 in *etcd) echo address already in use; exit 1;; esac; sleep 600").await;
        assert!(error.contains("address already in use"), "{error}");
        assert_eq!(starts, 4);
    }

    #[test]
    fn keeps_the_last_lines_of_a_log() {
        assert_eq!(last_lines("a\nb\nc\n", 2), "b\nc");
        assert_eq!(last_lines("a\n", 2), "a");
        assert_eq!(last_lines("", 2), "");
    }
}
