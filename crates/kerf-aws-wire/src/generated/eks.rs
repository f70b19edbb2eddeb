// Made by `cargo xtask generate` from AWS's service models and shapes.txt; do not edit.

use crate::operation::{Protocol, Service, operations};
use crate::shape::shape;

pub const SERVICE: Service = Service {
    id: "EKS",
    endpoint_prefix: "eks",
    signing_name: "eks",
    version: "2017-11-01",
    protocol: Protocol::RestJson,
};

operations! {
    DescribeCluster["/clusters/{name}"]: DescribeClusterRequest -> DescribeClusterResponse,
}

shape!(Certificate {
    data: Option<String> = "data",
});

shape!(Cluster {
    arn: Option<String> = "arn",
    certificate_authority: Option<Certificate> = "certificateAuthority",
    endpoint: Option<String> = "endpoint",
    kubernetes_network_config: Option<KubernetesNetworkConfigResponse> = "kubernetesNetworkConfig",
    name: Option<String> = "name",
    resources_vpc_config: Option<VpcConfigResponse> = "resourcesVpcConfig",
    status: Option<String> = "status",
    version: Option<String> = "version",
});

shape!(DescribeClusterRequest {
    name: Option<String> = "name",
});

shape!(DescribeClusterResponse {
    cluster: Option<Cluster> = "cluster",
});

shape!(KubernetesNetworkConfigResponse {
    ip_family: Option<String> = "ipFamily",
    service_ipv4_cidr: Option<String> = "serviceIpv4Cidr",
    service_ipv6_cidr: Option<String> = "serviceIpv6Cidr",
});

shape!(VpcConfigResponse {
    cluster_security_group_id: Option<String> = "clusterSecurityGroupId",
    security_group_ids: Vec<String> = "securityGroupIds",
    subnet_ids: Vec<String> = "subnetIds",
    vpc_id: Option<String> = "vpcId",
});
