//! The command line of each component.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::binaries::Binaries;
use crate::pki::{ADMIN, CONTROLLER_MANAGER, Identity, KWOK, Pki, PkiError, SCHEDULER};
use crate::ports::PortBlock;
use crate::program::Program;

const STAGES: &str = include_str!("../kwok/stages.yaml");
const AUDIT_POLICY: &str = include_str!("../audit/policy.yaml");

/// How much of a control plane a test needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Profile {
    /// Everything: pods are scheduled and run, controllers work, nodes are alive.
    Full,
    /// Everything but the eviction of pods by `NoExecute` taints. kube-scheduler may bind a pod as soon as such a taint is
    /// gone, and a controller manager that has not heard of it evicts the pod again. A pod that nobody owns, as in many
    /// a story, does not come back from that.
    WithoutTaintEviction,
    /// etcd and kube-apiserver. Objects are validated, defaulted, stored and watched, but nobody acts
    /// on them: no pod is scheduled, nothing is garbage-collected, a deleted namespace never ends.
    ApiOnly,
}

impl Profile {
    /// As much of a control plane, with an API server that writes down who changed what and when.
    pub fn audited(self) -> Options {
        Options { profile: self, audit: true }
    }
}

/// What a cluster is started with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    pub profile: Profile,
    /// Whether the API server keeps an audit log (`audit/policy.yaml` says of what).
    pub audit: bool,
}

impl From<Profile> for Options {
    fn from(profile: Profile) -> Self {
        Self { profile, audit: false }
    }
}

/// Where everything of one cluster is.
#[derive(Debug)]
pub(crate) struct Layout {
    pub(crate) dir: PathBuf,
    pub(crate) pki: Pki,
    pub(crate) ports: PortBlock,
}

/// Positions in the block of ports; those from [`SPARE`](port::SPARE) on are for programs that a test starts itself.
pub(crate) mod port {
    pub(crate) const API: u16 = 0;
    pub(crate) const ETCD: u16 = 1;
    pub(crate) const ETCD_PEER: u16 = 2;
    pub(crate) const CONTROLLER_MANAGER: u16 = 3;
    pub(crate) const SCHEDULER: u16 = 4;
    pub(crate) const KWOK: u16 = 5;
    pub(crate) const SPARE: u16 = 6;
}

impl Layout {
    pub(crate) fn create(dir: PathBuf, ports: PortBlock) -> Result<Self, PkiError> {
        let pki = Pki::create(dir.join("pki"))?;
        let layout = Self { dir, pki, ports };
        for identity in [ADMIN, CONTROLLER_MANAGER, SCHEDULER, KWOK] {
            let path = layout.kubeconfig(&identity);
            layout.pki.write_kubeconfig(&path, &layout.https(port::API), &identity)?;
        }
        Ok(layout)
    }

    pub(crate) fn kubeconfig(&self, identity: &Identity<'_>) -> PathBuf {
        match identity.name {
            "admin" => kubeconfig_in(&self.dir),
            name => self.dir.join(format!("{name}.kubeconfig")),
        }
    }

    /// A kubeconfig for a new user in a group, who reaches the API server at `server`.
    pub(crate) fn add_user(
        &self,
        name: &str,
        group: &str,
        server: &str,
    ) -> Result<PathBuf, PkiError> {
        let identity = Identity::member(name, group);
        self.pki.issue_client(&identity)?;
        let path = self.kubeconfig(&identity);
        self.pki.write_kubeconfig(&path, server, &identity)?;
        Ok(path)
    }

    pub(crate) fn audit_log(&self) -> PathBuf {
        self.dir.join("audit.log")
    }

    /// Everything that the cluster has stored.
    pub(crate) fn etcd_data(&self) -> PathBuf {
        self.dir.join("etcd")
    }

    pub(crate) fn log(&self, program: Program) -> PathBuf {
        self.dir.join(format!("{}.log", program.name()))
    }

    pub(crate) fn https(&self, port: u16) -> String {
        format!("https://127.0.0.1:{}", self.ports.port(port))
    }

    pub(crate) fn http(&self, port: u16) -> String {
        format!("http://127.0.0.1:{}", self.ports.port(port))
    }

    /// The command that runs a component, with its output going to its log.
    pub(crate) fn command(
        &self,
        binaries: &Binaries,
        program: Program,
        options: Options,
    ) -> io::Result<Command> {
        let arguments = match program {
            Program::Etcd => self.etcd(),
            Program::KubeApiserver => self.kube_apiserver(options)?,
            Program::KubeControllerManager => self.kube_controller_manager(options.profile),
            Program::KubeScheduler => self.kube_scheduler()?,
            Program::Kwok => self.kwok()?,
            Program::Kubectl => Vec::new(),
        };
        // One that is started again adds to what it wrote before.
        let log = File::options().create(true).append(true).open(self.log(program))?;
        let mut command = Command::new(binaries.path(program));
        command
            .args(arguments)
            .current_dir(&self.dir)
            // Some of them read and write below the home directory, which is not theirs to touch.
            .env("HOME", &self.dir)
            .env_remove("KUBECONFIG")
            .stdout(log.try_clone()?)
            .stderr(log);
        Ok(command)
    }

    fn etcd(&self) -> Vec<String> {
        let (client, peer) = (self.http(port::ETCD), self.http(port::ETCD_PEER));
        vec![
            "--name=kerf".into(),
            format!("--data-dir={}", self.etcd_data().display()),
            // Nobody needs the data after a crash, and waiting for disks is most of what etcd does.
            "--unsafe-no-fsync".into(),
            format!("--listen-client-urls={client}"),
            format!("--advertise-client-urls={client}"),
            format!("--listen-peer-urls={peer}"),
            format!("--initial-advertise-peer-urls={peer}"),
            format!("--initial-cluster=kerf={peer}"),
            "--auto-compaction-mode=periodic".into(),
            "--auto-compaction-retention=5m".into(),
            "--log-level=warn".into(),
        ]
    }

    fn kube_apiserver(&self, options: Options) -> io::Result<Vec<String>> {
        let mut arguments = vec![
            format!("--etcd-servers={}", self.http(port::ETCD)),
            // Without an address to advertise it looks for a default route, which a sandbox lacks.
            "--advertise-address=127.0.0.1".into(),
            "--endpoint-reconciler-type=none".into(),
            format!("--secure-port={}", self.ports.port(port::API)),
            format!("--client-ca-file={}", self.pki_file("ca.crt")),
            "--authorization-mode=Node,RBAC".into(),
            // The second asks for rights that only some production clusters ask for.
            "--enable-admission-plugins=NodeRestriction,OwnerReferencesPermissionEnforcement"
                .into(),
            "--allow-privileged=true".into(),
            "--service-cluster-ip-range=10.96.0.0/16".into(),
            "--service-account-issuer=https://kubernetes.default.svc".into(),
            format!("--service-account-key-file={}", self.pki_file("service-accounts.pub")),
            format!("--service-account-signing-key-file={}", self.pki_file("service-accounts.key")),
            "--profiling=false".into(),
        ];
        arguments.extend(self.serving());
        if options.profile == Profile::ApiOnly {
            // Nobody makes the service accounts that it would want pods to have.
            arguments.push("--disable-admission-plugins=ServiceAccount".into());
        }
        if options.audit {
            let policy = self.dir.join("audit-policy.yaml");
            fs::write(&policy, AUDIT_POLICY)?;
            arguments.extend([
                format!("--audit-policy-file={}", policy.display()),
                format!("--audit-log-path={}", self.audit_log().display()),
                // Written before the request is answered: who has the answer can read the line.
                "--audit-log-mode=blocking-strict".into(),
                // In megabytes. One that is moved away in the middle of a test is lost to it.
                "--audit-log-maxsize=4096".into(),
            ]);
        }
        Ok(arguments)
    }

    fn kube_controller_manager(&self, profile: Profile) -> Vec<String> {
        let mut arguments = vec![
            format!("--secure-port={}", self.ports.port(port::CONTROLLER_MANAGER)),
            "--leader-elect=false".into(),
            "--use-service-account-credentials=true".into(),
            format!("--service-account-private-key-file={}", self.pki_file("service-accounts.key")),
            format!("--root-ca-file={}", self.pki_file("ca.crt")),
            format!("--cluster-signing-cert-file={}", self.pki_file("ca.crt")),
            format!("--cluster-signing-key-file={}", self.pki_file("ca.key")),
            // The defaults of 20 and 30 would make every scenario wait for this client's throttle.
            "--kube-api-qps=500".into(),
            "--kube-api-burst=1000".into(),
            "--profiling=false".into(),
        ];
        if profile == Profile::WithoutTaintEviction {
            arguments.push("--controllers=*,-taint-eviction-controller".into());
        }
        arguments.extend(self.serving());
        arguments.extend(self.credentials(&CONTROLLER_MANAGER));
        arguments.push(format!("--kubeconfig={}", self.kubeconfig(&CONTROLLER_MANAGER).display()));
        arguments
    }

    fn kube_scheduler(&self) -> io::Result<Vec<String>> {
        let config = self.dir.join("scheduler.yaml");
        fs::write(
            &config,
            format!(
                "apiVersion: kubescheduler.config.k8s.io/v1\n\
                 kind: KubeSchedulerConfiguration\n\
                 clientConnection: {{kubeconfig: \"{}\", qps: 1000, burst: 2000}}\n\
                 leaderElection: {{leaderElect: false}}\n\
                 enableProfiling: false\n",
                self.kubeconfig(&SCHEDULER).display()
            ),
        )?;
        let mut arguments = vec![
            format!("--config={}", config.display()),
            format!("--secure-port={}", self.ports.port(port::SCHEDULER)),
        ];
        arguments.extend(self.serving());
        arguments.extend(self.credentials(&SCHEDULER));
        Ok(arguments)
    }

    fn kwok(&self) -> io::Result<Vec<String>> {
        let config = self.dir.join("kwok.yaml");
        fs::write(
            &config,
            format!(
                "apiVersion: config.kwok.x-k8s.io/v1alpha1\n\
                 kind: KwokConfiguration\n\
                 options:\n\
                 \x20 manageAllNodes: false\n\
                 \x20 manageNodesWithAnnotationSelector: kwok.x-k8s.io/node=fake\n\
                 \x20 nodeIP: 10.0.0.1\n\
                 \x20 cidr: 10.244.0.0/16\n\
                 \x20 nodeLeaseDurationSeconds: 40\n\
                 \x20 nodeLeaseParallelism: 4\n\
                 \x20 nodePlayStageParallelism: 8\n\
                 \x20 podPlayStageParallelism: 8\n\
                 ---\n{STAGES}"
            ),
        )?;
        Ok(vec![
            format!("--config={}", config.display()),
            format!("--kubeconfig={}", self.kubeconfig(&KWOK).display()),
            // With a node port and no address it would listen on all interfaces.
            format!("--server-address=127.0.0.1:{}", self.ports.port(port::KWOK)),
        ])
    }

    /// A certificate from us also spares them the making of an RSA key at each start.
    fn serving(&self) -> [String; 3] {
        [
            "--bind-address=127.0.0.1".into(),
            format!("--tls-cert-file={}", self.pki_file("server.crt")),
            format!("--tls-private-key-file={}", self.pki_file("server.key")),
        ]
    }

    fn credentials(&self, identity: &Identity<'_>) -> [String; 2] {
        let kubeconfig = self.kubeconfig(identity);
        [
            format!("--authentication-kubeconfig={}", kubeconfig.display()),
            format!("--authorization-kubeconfig={}", kubeconfig.display()),
        ]
    }

    fn pki_file(&self, name: &str) -> String {
        self.pki.path(name).display().to_string()
    }
}

/// Where the kubeconfig of a cluster's admin is.
pub(crate) fn kubeconfig_in(dir: &Path) -> PathBuf {
    dir.join("kubeconfig")
}
