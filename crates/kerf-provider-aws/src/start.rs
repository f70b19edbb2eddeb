//! What has to be known before anything can be launched.

use std::{
    fmt,
    hash::{BuildHasher, RandomState},
    sync::Arc,
    time::Duration,
};

use base64::{Engine, prelude::BASE64_STANDARD};
use kerf_aws_client::{Aws, AwsClient, AwsError, Config, ConfigError};
use kerf_aws_model::{
    catalogue::Catalogue, instance_types::Settings, launch_template::Cluster, prices::Prices,
    user_data::ClusterAccess,
};
use kerf_aws_wire::{ec2, eks};
use kerf_provider::{BoxError, Connect, ProviderError};
use kerf_runtime::{Clock, Fence, Metrics};
use kube::Client;
use tokio::{sync::OnceCell, time::timeout};
use tracing::{info, warn};

use crate::{
    cloud::{AwsCloud, Parts},
    cluster,
    market::{self, NotRead},
    offers::ReadAt,
    offline::catalogue,
    options::Options,
};

/// Prices that are not there by then are read later: those of the catalogue serve meanwhile.
const PATIENCE_FOR_PRICES: Duration = Duration::from_secs(30);

/// Finds out what a provider needs. It may be asked again until it succeeds.
pub struct Start {
    client: Client,
    clock: Clock,
    fence: Fence,
    metrics: Metrics,
    options: Options,
    cluster_ca: Option<Vec<u8>>,
    reserved_capacity: bool,
    catalogue: Arc<Catalogue>,
    /// Made once: its credentials and metrics are those of the process.
    account: OnceCell<Account>,
}

#[derive(Clone)]
struct Account {
    aws: Arc<dyn Aws>,
    region: String,
}

/// Why the provider cannot work yet.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotStarted {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error("EC2 cannot be called: {0}")]
    NotConnected(AwsError),
    #[error(
        "the address of the API server for new nodes is not known: {0}; allow eks:DescribeCluster, or set --cluster-endpoint"
    )]
    NoAnswerOfEks(AwsError),
    #[error(
        "the address of the API server for new nodes is not known: EKS says none of cluster {0}; set --cluster-endpoint"
    )]
    NoEndpoint(String),
    #[error("the version of the cluster is not known: {0}; allow eks:DescribeCluster")]
    NoVersionFromEks(AwsError),
    #[error("the version of the cluster is not known: EKS says none of cluster {0}")]
    NoVersion(String),
    #[error("the version of the cluster is not known: {0}")]
    NoVersionFromApiServer(kube::Error),
    #[error("the instance types of {region} are not known: {source}")]
    NoAnswerOfTypes { region: String, source: Box<AwsError> },
    #[error("EC2 lists no instance types in {0}; check the region")]
    NoTypes(String),
}

impl From<NotStarted> for ProviderError {
    fn from(reason: NotStarted) -> Self {
        Self::Other(reason.to_string())
    }
}

impl Start {
    pub fn new(with: Connect<'_>) -> Result<Self, BoxError> {
        let options = Options::read_for_cluster(with.flags)?;
        Ok(Self {
            client: with.client,
            clock: with.clock,
            fence: with.fence,
            metrics: with.metrics.clone(),
            cluster_ca: with.cluster_ca,
            reserved_capacity: with.reserved_capacity,
            catalogue: Arc::new(catalogue(&options)?),
            options,
            account: OnceCell::new(),
        })
    }

    /// Does not ask the environment for the way to AWS, but takes this one.
    #[must_use]
    pub fn over(self, aws: Arc<dyn Aws>, region: &str) -> Self {
        let account = Account { aws, region: region.to_owned() };
        Self { account: OnceCell::new_with(Some(account)), ..self }
    }

    pub(crate) async fn run(&self) -> Result<AwsCloud, NotStarted> {
        let account = self.account.get_or_try_init(|| self.connect()).await?;
        let Account { aws, region } = account.clone();
        check(&*aws).await?;
        let (cluster, kubernetes_version) = self.cluster(account).await?;
        cluster::look_at_version(&kubernetes_version);
        let types = market::region(&*aws, &region, &self.catalogue);
        let (types, (prices, mut read_at), cni) =
            tokio::join!(types, self.prices(&*aws, &region), cluster::cni_settings(&self.client));
        let types = types.map_err(|source| {
            let region = region.clone();
            NotStarted::NoAnswerOfTypes { region, source: Box::new(source) }
        })?;
        if types.types.is_empty() {
            return Err(NotStarted::NoTypes(region));
        }
        info!(
            region,
            cluster = cluster.access.name,
            endpoint = cluster.access.endpoint,
            version = kubernetes_version,
            instance_types = types.types.len(),
            zones = types.zones.join(","),
            prefix_delegation = cni.prefix_delegation,
            "connected to AWS"
        );
        let cloud = AwsCloud::new(Parts {
            aws,
            clock: self.clock.clone(),
            settings: Settings {
                region,
                vm_memory_overhead: self.options.vm_memory_overhead,
                reserved_enis: self.options.reserved_enis,
                cni,
                reserved_capacity: self.reserved_capacity,
            },
            options: self.options.clone(),
            cluster,
            kubernetes_version,
            catalogue: Arc::clone(&self.catalogue),
            region: types,
            prices,
        });
        read_at.types = Some(self.clock.now());
        cloud.offers().was_read(read_at);
        cloud.metrics().register(&self.metrics, cloud.offers());
        Ok(cloud)
    }

    async fn connect(&self) -> Result<Account, NotStarted> {
        let seed = RandomState::new().hash_one(std::process::id());
        let config = Config::from_environment(self.options.region.as_deref(), seed).await?;
        let region = config.endpoints.region.clone();
        let client = AwsClient::new(config, self.clock.clone(), &self.metrics);
        Ok(Account { aws: Arc::new(client.fenced(self.fence.clone())), region })
    }

    /// How nodes reach the cluster, and its version.
    async fn cluster(&self, account: &Account) -> Result<(Cluster, String), NotStarted> {
        let name = &self.options.cluster_name;
        let (described, dns) = tokio::join!(
            cluster::describe(&*account.aws, name),
            cluster::dns_address(&self.client)
        );
        let access = self.access(&described)?;
        let kubernetes_version = if self.options.eks_control_plane {
            let described = described.map_err(NotStarted::NoVersionFromEks)?;
            described.version.ok_or_else(|| NotStarted::NoVersion(name.clone()))?
        } else {
            let version = cluster::version_of_api_server(&self.client).await;
            version.map_err(NotStarted::NoVersionFromApiServer)?
        };
        let cluster = Cluster { access, region: account.region.clone(), dns };
        Ok((cluster, kubernetes_version))
    }

    fn access(
        &self,
        described: &Result<eks::Cluster, AwsError>,
    ) -> Result<ClusterAccess, NotStarted> {
        let name = self.options.cluster_name.clone();
        let endpoint = match (&self.options.cluster_endpoint, described) {
            (Some(endpoint), _) => endpoint.clone(),
            (None, Err(error)) => return Err(NotStarted::NoAnswerOfEks(error.clone())),
            (None, Ok(cluster)) => match &cluster.endpoint {
                Some(endpoint) => endpoint.clone(),
                None => return Err(NotStarted::NoEndpoint(name)),
            },
        };
        if let Err(error) = described {
            // Only AL2023 needs it, and it is asked for again.
            warn!(%error, "the range of addresses of Services is not known; nodes with AL2023 cannot be launched yet");
        }
        let own = || self.cluster_ca.as_ref().map(|ca| BASE64_STANDARD.encode(ca));
        Ok(ClusterAccess {
            name,
            endpoint,
            ca_bundle: self.options.cluster_ca_bundle.clone().or_else(own),
            service_cidr: described.as_ref().ok().and_then(cluster::service_cidr),
        })
    }

    /// The catalogue's, with what the account says over them as far as that can be had now.
    async fn prices(&self, aws: &dyn Aws, region: &str) -> (Prices, ReadAt) {
        let mut prices = self.catalogue.prices(region).map(Prices::new).unwrap_or_default();
        let now = self.clock.now();
        let isolated = self.options.isolated_vpc;
        let on_demand =
            async { if isolated { Ok(None) } else { market::on_demand(aws, region).await } };
        let (on_demand, spot) = tokio::join!(
            timeout(PATIENCE_FOR_PRICES, on_demand),
            timeout(PATIENCE_FOR_PRICES, market::spot(aws, Vec::new(), now))
        );
        let mut read_at = ReadAt::default();
        match on_demand.map(|read| market::take_on_demand(&mut prices, read)) {
            Ok(Ok(_)) => read_at.on_demand = Some(now),
            other => {
                let why = not_read(other);
                warn!(why, "on-demand prices cannot be read yet; those of the catalogue are used");
            }
        }
        match spot.map(|read| market::take_spot(&mut prices, read, now)) {
            Ok(Ok(_)) => read_at.spot = Some(now),
            other => {
                let why = not_read(other);
                warn!(
                    why,
                    "spot prices cannot be read yet; spot is taken to cost what on demand costs"
                );
            }
        }
        (prices, read_at)
    }
}

fn not_read<T, E>(result: Result<Result<T, NotRead>, E>) -> String {
    match result {
        Ok(result) => result.err().map(|why| why.to_string()).unwrap_or_default(),
        Err(_) => format!("there was no answer within {} s", PATIENCE_FOR_PRICES.as_secs()),
    }
}

/// A dry run of a call that every role of Kerf may make.
async fn check(aws: &dyn Aws) -> Result<(), NotStarted> {
    let request = ec2::DescribeInstanceTypesRequest { dry_run: Some(true), ..Default::default() };
    match aws.describe_instance_types(&request).await {
        Err(error) if !error.is_dry_run_passed() => Err(NotStarted::NotConnected(error)),
        _ => Ok(()),
    }
}

impl fmt::Debug for Start {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Start").field("options", &self.options).finish_non_exhaustive()
    }
}
