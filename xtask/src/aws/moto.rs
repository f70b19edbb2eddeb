//! Our client against moto: an independent reader of what we write, and writer of what we read.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::Outcome;
use crate::cargo::{cargo, workspace};
use crate::python;

pub(crate) fn run() -> Result<Outcome> {
    let requirements = workspace().join("crates/kerf-aws-client/moto.txt");
    let packages = match python::packages(&requirements, &[])? {
        Ok(packages) => packages,
        Err(python::Missing(reason)) => return Ok(Outcome::Skipped { reason }),
    };
    // Before the server, lest it waits for a compiler.
    let example = ["--package", "kerf-aws-client", "--example", "moto"];
    ensure!(cargo(&["build"]).args(example).status()?.success(), "the client does not build");
    let server = Server::start(&packages)?;
    server.plant(&packages)?;
    let mut steps = cargo(&["run", "--quiet"]);
    steps.args(example).envs(server.environment());
    ensure!(
        steps.status()?.success(),
        "moto does not understand the client, or the other way round"
    );
    eprintln!("moto understands the client");
    Ok(Outcome::Done)
}

struct Server {
    child: Child,
    address: SocketAddr,
}

impl Server {
    fn start(packages: &Path) -> Result<Self> {
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
        let mut command = Command::new("python3");
        command.args(["-c", "from moto.server import main; main()"]);
        command.args(["-H", "127.0.0.1", "-p", &port.to_string()]).env("PYTHONPATH", packages);
        // It says every request; what matters, the client says.
        command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
        let child = command.spawn().context("cannot start moto")?;
        let mut server = Self { child, address: (Ipv4Addr::LOCALHOST, port).into() };
        server.wait()?;
        Ok(server)
    }

    fn wait(&mut self) -> Result<()> {
        const PATIENCE: Duration = Duration::from_mins(1);
        let begin = Instant::now();
        while begin.elapsed() < PATIENCE {
            if let Some(status) = self.child.try_wait()? {
                bail!("moto ended with {status}");
            }
            if self.answers().is_ok() {
                return Ok(());
            }
            thread::sleep(Duration::from_millis(100));
        }
        bail!("moto did not answer within {} s", PATIENCE.as_secs())
    }

    fn answers(&self) -> Result<()> {
        let mut stream = TcpStream::connect(self.address)?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        stream.write_all(b"GET /moto-api/ HTTP/1.0\r\n\r\n")?;
        let mut answer = [0; 12];
        stream.read_exact(&mut answer)?;
        ensure!(answer.starts_with(b"HTTP/1."), "no answer");
        Ok(())
    }

    /// What the client's steps need and the client cannot make.
    fn plant(&self, packages: &Path) -> Result<()> {
        const PLANT: &str = r#"
import boto3
boto3.client("iam").create_role(RoleName="kerf-node", AssumeRolePolicyDocument="{}")
boto3.client("eks").create_cluster(
    name="kerf", version="1.34", roleArn="arn:aws:iam::123456789012:role/kerf-cluster", resourcesVpcConfig={})
queue = boto3.client("sqs").create_queue(QueueName="kerf")["QueueUrl"]
boto3.client("sqs").send_message(
    QueueUrl=queue, MessageBody='{"detail-type":"EC2 Spot Instance Interruption Warning"}')
"#;
        let mut command = Command::new("python3");
        command.args(["-c", PLANT]).env("PYTHONPATH", packages).envs(self.environment());
        ensure!(command.status()?.success(), "moto could not be prepared");
        Ok(())
    }

    fn environment(&self) -> [(&'static str, String); 5] {
        [
            ("AWS_ENDPOINT_URL", format!("http://{}", self.address)),
            ("AWS_REGION", "us-west-2".to_owned()),
            ("AWS_DEFAULT_REGION", "us-west-2".to_owned()),
            ("AWS_ACCESS_KEY_ID", "testing".to_owned()),
            ("AWS_SECRET_ACCESS_KEY", "testing".to_owned()),
        ]
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
