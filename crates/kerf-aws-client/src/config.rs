//! What the environment says about AWS: region, credentials, endpoints.

use std::time::Duration;

use aws_config::BehaviorVersion;
use aws_credential_types::provider::SharedCredentialsProvider;
use aws_smithy_http_client::proxy::ProxyConfig;
use aws_smithy_http_client::tls::{Provider, rustls_provider::CryptoMode};
use aws_smithy_http_client::{Builder, Connector};
use aws_smithy_runtime_api::client::http::HttpConnectorSettings;
use aws_smithy_types::retry::RetryConfig;
use aws_types::SdkConfig;
use aws_types::region::Region;
use aws_types::service_config::ServiceConfigKey;
use kerf_aws_wire::{arc_zonal_shift, ec2, eks, iam, pricing, sqs, ssm};

use crate::endpoints::Endpoints;

#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error(
        "the region of AWS is not known: set AWS_REGION, or let the pod reach the instance metadata service"
    )]
    NoRegion,
    #[error("there is no place to take credentials of AWS from")]
    NoCredentials,
}

/// How AWS is called.
#[derive(Debug)]
pub struct Config {
    pub endpoints: Endpoints,
    pub credentials: SharedCredentialsProvider,
    pub max_attempts: u32,
    /// Of a single attempt.
    pub timeout: Duration,
    /// Of the randomness in waits.
    pub seed: u64,
}

impl Config {
    pub const TIMEOUT: Duration = Duration::from_mins(4);
    pub const MAX_ATTEMPTS: u32 = 3;

    /// What AWS's own clients would do: the default chain for region (at last the metadata of the instance) and credentials
    /// (variables, shared files, web identity, container credentials and Pod Identity, instance metadata), and its variables and
    /// profile keys for endpoints and attempts. A region that is given here comes first.
    pub async fn from_environment(region: Option<&str>, seed: u64) -> Result<Self, ConfigError> {
        let http =
            Builder::new().build_with_connector_fn(|settings, _| connector(settings.cloned()));
        let behavior = BehaviorVersion::v2026_01_12();
        let mut loader = aws_config::defaults(behavior).http_client(http);
        if let Some(region) = region {
            loader = loader.region(Region::new(region.to_owned()));
        }
        let sdk = loader.load().await;
        let region = sdk.region().ok_or(ConfigError::NoRegion)?.to_string();
        let credentials = sdk.credentials_provider().ok_or(ConfigError::NoCredentials)?;
        let ids = [
            arc_zonal_shift::SERVICE.id,
            ec2::SERVICE.id,
            eks::SERVICE.id,
            iam::SERVICE.id,
            pricing::SERVICE.id,
            sqs::SERVICE.id,
            ssm::SERVICE.id,
        ];
        let custom = |id: &'static str| Some((id, custom_endpoint(&sdk, id)?));
        let endpoints = Endpoints {
            region,
            fips: sdk.use_fips().unwrap_or(false),
            dual_stack: sdk.use_dual_stack().unwrap_or(false),
            custom: sdk.endpoint_url().map(str::to_owned),
            custom_by_service: ids.into_iter().filter_map(custom).collect(),
        };
        let max_attempts = sdk.retry_config().map_or(Self::MAX_ATTEMPTS, RetryConfig::max_attempts);
        Ok(Self { endpoints, credentials, max_attempts, timeout: Self::TIMEOUT, seed })
    }
}

/// `AWS_ENDPOINT_URL_<SERVICE>`, or `endpoint_url` of the service in the profile.
fn custom_endpoint(sdk: &SdkConfig, service_id: &'static str) -> Option<String> {
    let key = ServiceConfigKey::builder()
        .service_id(service_id)
        .env("AWS_ENDPOINT_URL")
        .profile("endpoint_url")
        .build()
        .ok()?;
    sdk.service_config()?.load_config(key)
}

/// Our rustls and ring, the certificates of the system, and the proxy that the environment names.
pub(crate) fn connector(settings: Option<HttpConnectorSettings>) -> Connector {
    let ours = || HttpConnectorSettings::builder().connect_timeout(Duration::from_secs(10)).build();
    Connector::builder()
        .tls_provider(Provider::Rustls(CryptoMode::Ring))
        .connector_settings(settings.unwrap_or_else(ours))
        .proxy_config(ProxyConfig::from_env())
        .build()
}
