//! The catalogue as an account says it: `kerf aws catalogue`.

use std::hash::{BuildHasher, RandomState};

use kerf_aws_client::{Aws, AwsClient, AwsError, Config, ConfigError};
use kerf_aws_model::catalogue::{Catalogue, CatalogueError, Document};
use kerf_runtime::{Clock, Metrics};

use crate::market;

/// Why there is no catalogue of the account.
#[derive(Debug, thiserror::Error)]
pub enum NoCatalogue {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error("the built-in catalogue of EC2 cannot be used: {0}")]
    BuiltIn(#[from] CatalogueError),
    #[error(transparent)]
    Aws(#[from] AwsError),
    #[error("EC2 lists no instance types in {0}; check the region")]
    NoTypes(String),
}

/// Asks the account that the environment names for its instance types, their zones and their on-demand prices, and writes them
/// down as a document that can be laid over the built-in catalogue.
pub async fn catalogue_of_account(region: Option<&str>) -> Result<String, NoCatalogue> {
    let seed = RandomState::new().hash_one(std::process::id());
    let config = Config::from_environment(region, seed).await?;
    let region = config.endpoints.region.clone();
    let clock = Clock::system();
    let aws = AwsClient::new(config, clock.clone(), &Metrics::default());
    let today = clock.now().strftime("%Y-%m-%d").to_string();
    Ok(document(&aws, &region, today).await?.write())
}

async fn document(aws: &dyn Aws, name: &str, today: String) -> Result<Document, NoCatalogue> {
    let known = Catalogue::built_in()?;
    let (region, prices) =
        tokio::try_join!(market::region(aws, name, &known), market::on_demand(aws, name))?;
    if region.types.is_empty() {
        return Err(NoCatalogue::NoTypes(name.to_owned()));
    }
    let prices = prices.map(|[virtual_machines, mut all]| {
        all.extend(virtual_machines);
        all
    });
    let source = format!("the account's own answers in {name}");
    Ok(Document::of_region(&region, prices, source, today))
}
