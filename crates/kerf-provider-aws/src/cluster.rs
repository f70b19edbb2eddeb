//! What is asked of the cluster itself: what its nodes have to know to join it.

use std::net::IpAddr;

use k8s_openapi::api::{apps::v1::DaemonSet, core::v1::Service};
use kerf_aws_client::{Aws, AwsError};
use kerf_aws_model::instance_types::CniSettings;
use kerf_aws_wire::eks;
use kube::{Api, Client};
use tracing::{error, info};

const SYSTEM: &str = "kube-system";
/// The minor versions of Kubernetes 1 whose images and kubelets are known.
const KNOWN_MINORS: std::ops::RangeInclusive<u32> = 26..=36;

/// As EKS describes it.
pub(crate) async fn describe(aws: &dyn Aws, name: &str) -> Result<eks::Cluster, AwsError> {
    let request = eks::DescribeClusterRequest { name: Some(name.to_owned()) };
    Ok(aws.describe_cluster(&request).await?.cluster.unwrap_or_default())
}

/// The range of addresses of Services.
pub(crate) fn service_cidr(cluster: &eks::Cluster) -> Option<String> {
    let network = cluster.kubernetes_network_config.as_ref()?;
    let ranges = [&network.service_ipv4_cidr, &network.service_ipv6_cidr];
    ranges.into_iter().flatten().find(|range| !range.is_empty()).cloned()
}

/// The address of the cluster's DNS, by the name that it has in most clusters. Nodes of a cluster without it find their own.
pub(crate) async fn dns_address(client: &Client) -> Option<IpAddr> {
    let services: Api<Service> = Api::namespaced(client.clone(), SYSTEM);
    let service = match services.get_opt("kube-dns").await {
        Ok(service) => service,
        Err(error) => {
            info!(%error, "the Service kube-system/kube-dns cannot be read; nodes get no address of the cluster's DNS");
            None
        }
    };
    service?.spec?.cluster_ip?.parse().ok()
}

/// How the network plugin hands out addresses. What cannot be read counts as its default.
pub(crate) async fn cni_settings(client: &Client) -> CniSettings {
    let sets: Api<DaemonSet> = Api::namespaced(client.clone(), SYSTEM);
    let plugin = sets.get_opt("aws-node").await.unwrap_or_default();
    let containers = plugin.and_then(|set| set.spec?.template.spec).map(|spec| spec.containers);
    let containers = containers.unwrap_or_default();
    let variables = containers.iter().flat_map(|container| container.env.iter().flatten());
    CniSettings::from_env(
        variables.filter_map(|variable| Some((&*variable.name, variable.value.as_deref()?))),
    )
}

/// `1.34`, as the API server says it.
pub(crate) async fn version_of_api_server(client: &Client) -> Result<String, kube::Error> {
    let info = client.apiserver_version().await?;
    Ok(version(&info.major, &info.minor))
}

/// Providers of clusters write a plus behind their minors.
fn version(major: &str, minor: &str) -> String {
    format!("{major}.{}", minor.trim_end_matches('+'))
}

/// Says once that something may be missing for this version.
pub(crate) fn look_at_version(version: &str) {
    let minor = version.strip_prefix("1.").and_then(|minor| minor.parse::<u32>().ok());
    if !minor.is_some_and(|minor| KNOWN_MINORS.contains(&minor)) {
        let known = format!("1.{} to 1.{}", KNOWN_MINORS.start(), KNOWN_MINORS.end());
        error!(version, known, "this version of Kubernetes is not known to work");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_and_ranges_are_read() {
        for (major, minor, expected) in
            [("1", "34", "1.34"), ("1", "30+", "1.30"), ("1", "9++", "1.9")]
        {
            assert_eq!(version(major, minor), expected);
        }
        let cluster = |v4: Option<&str>, v6: Option<&str>| eks::Cluster {
            kubernetes_network_config: Some(eks::KubernetesNetworkConfigResponse {
                service_ipv4_cidr: v4.map(str::to_owned),
                service_ipv6_cidr: v6.map(str::to_owned),
                ..Default::default()
            }),
            ..Default::default()
        };
        for (v4, v6, expected) in [
            (Some("10.100.0.0/16"), None, Some("10.100.0.0/16")),
            (None, Some("fd00::/108"), Some("fd00::/108")),
            (Some(""), Some("fd00::/108"), Some("fd00::/108")),
            (None, None, None),
        ] {
            assert_eq!(service_cidr(&cluster(v4, v6)).as_deref(), expected);
        }
        assert_eq!(service_cidr(&eks::Cluster::default()), None);
    }
}
