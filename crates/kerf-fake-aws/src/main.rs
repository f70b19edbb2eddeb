//! A stand-in for AWS on loopback: `fake-aws --port 0`. It prints what to export, and runs until it is ended.

use std::sync::Arc;

use kerf_aws_model::catalogue::Catalogue;
use kerf_fake_aws::{FakeAws, Server, Settings};
use kerf_runtime::Clock;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut settings = Settings::default();
    let mut port = 0;
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        let value = arguments.next().ok_or_else(|| format!("{name} needs a value"))?;
        match name.as_str() {
            "--port" => port = value.parse()?,
            "--seed" => settings.seed = value.parse()?,
            "--region" => settings.region = value,
            "--cluster" => settings.cluster = value,
            "--queue" => settings.queue = value,
            "--role" => settings.roles.push(value),
            "--endpoint" => settings.endpoint = value,
            "--ca-bundle" => settings.ca_bundle = value,
            "--kubernetes-version" => settings.kubernetes_version = value,
            _ => {
                return Err(format!(
                    "unknown argument {name}; known are --port, --seed, --region, --cluster, --queue, --role, --endpoint, --ca-bundle and --kubernetes-version"
                )
                .into());
            }
        }
    }
    let region = settings.region.clone();
    let catalogue = Arc::new(Catalogue::built_in()?);
    let server = Server::start(FakeAws::new(settings, catalogue, Clock::system()), port).await?;
    println!("export AWS_ENDPOINT_URL={}", server.url());
    println!("export AWS_REGION={region} AWS_ACCESS_KEY_ID=fake AWS_SECRET_ACCESS_KEY=fake");
    std::future::pending::<()>().await;
    Ok(())
}
