//! Instances become Nodes by what their user data says, in virtual time on the testbed.
#![expect(clippy::unwrap_used, reason = "the helpers of a test may panic as the test itself does")]

use std::sync::Arc;
use std::time::Duration;

use base64::{Engine, prelude::BASE64_STANDARD};
use k8s_openapi::api::core::v1::{Node, Taint};
use kerf_aws_api::KubeletConfiguration;
use kerf_aws_client::Aws;
use kerf_aws_model::catalogue::Catalogue;
use kerf_aws_model::user_data::{BindPaths, ClusterAccess, Form, NodeSettings, UserData};
use kerf_aws_wire::ec2;
use kerf_fake_aws::{FakeAws, KubeletSettings, Kubelets, Settings};
use kerf_testbed::Testbed;
use kube::Api;
use kube::api::ListParams;

#[expect(clippy::unnecessary_wraps, reason = "all members of a request are optional")]
fn text(text: &str) -> Option<String> {
    Some(text.to_owned())
}

fn settings() -> NodeSettings {
    NodeSettings {
        cluster: ClusterAccess {
            name: "test".to_owned(),
            endpoint: "https://cluster.example.com".to_owned(),
            ca_bundle: text("Y2VydGlmaWNhdGU="),
            service_cidr: text("10.100.0.0/16"),
        },
        kubelet: KubeletConfiguration {
            max_pods: Some(17),
            system_reserved: Some([("cpu".to_owned(), "100m".to_owned())].into()),
            cluster_dns: Some(vec!["10.100.0.10".to_owned()]),
            ..KubeletConfiguration::default()
        },
        labels: [("team".to_owned(), "a".to_owned())].into(),
        taints: vec![Taint {
            key: "karpenter.sh/unregistered".to_owned(),
            effect: "NoExecute".to_owned(),
            ..Taint::default()
        }],
        instance_store_policy: None,
    }
}

/// Launches one m5.large with that user data, and gives its id.
async fn launch(aws: &FakeAws, user_data: &str) -> String {
    aws.add_instance_profile("profile", "KarpenterNodeRole-test");
    let request = ec2::CreateLaunchTemplateRequest {
        launch_template_name: text("template"),
        launch_template_data: Some(ec2::RequestLaunchTemplateData {
            image_id: aws.al2023_image("x86_64"),
            user_data: Some(BASE64_STANDARD.encode(user_data)),
            iam_instance_profile: Some(ec2::LaunchTemplateIamInstanceProfileSpecificationRequest {
                arn: None,
                name: text("profile"),
            }),
            ..Default::default()
        }),
        ..Default::default()
    };
    aws.create_launch_template(&request).await.unwrap();
    let subnets = aws.describe_subnets(&ec2::DescribeSubnetsRequest::default()).await.unwrap();
    let mut subnets = subnets.subnets;
    subnets.sort_by_key(|subnet| subnet.availability_zone.clone());
    let request = ec2::CreateFleetRequest {
        r#type: text("instant"),
        launch_template_configs: vec![ec2::FleetLaunchTemplateConfigRequest {
            launch_template_specification: Some(ec2::FleetLaunchTemplateSpecificationRequest {
                launch_template_name: text("template"),
                version: text("$Latest"),
                ..Default::default()
            }),
            overrides: vec![ec2::FleetLaunchTemplateOverridesRequest {
                instance_type: text("m5.large"),
                subnet_id: subnets[0].subnet_id.clone(),
                ..Default::default()
            }],
        }],
        target_capacity_specification: Some(ec2::TargetCapacitySpecificationRequest {
            default_target_capacity_type: text("on-demand"),
            total_target_capacity: Some(1),
        }),
        ..Default::default()
    };
    let response = aws.create_fleet(&request).await.unwrap();
    assert_eq!(response.errors, []);
    response.instances[0].instance_ids[0].clone()
}

fn start(testbed: &Testbed) -> (FakeAws, Api<Node>) {
    let catalogue = Arc::new(Catalogue::built_in().unwrap());
    let aws = FakeAws::new(Settings::default(), catalogue, testbed.clock().clone());
    let kubelets = Kubelets::new(aws.clone(), testbed.client(), KubeletSettings::default());
    tokio::spawn(kubelets.run());
    (aws, Api::all(testbed.client()))
}

async fn names(nodes: &Api<Node>) -> Vec<String> {
    let list = nodes.list(&ListParams::default()).await.unwrap();
    list.items.into_iter().filter_map(|node| node.metadata.name).collect()
}

/// What the Nodes say of being ready.
async fn readiness(nodes: &Api<Node>) -> Vec<String> {
    let list = nodes.list(&ListParams::default()).await.unwrap();
    let conditions =
        list.items.into_iter().flat_map(|node| node.status.unwrap().conditions.unwrap());
    let ready = conditions.filter(|condition| condition.type_ == "Ready");
    ready.map(|one| format!("{}: {}", one.status, one.message.unwrap_or_default())).collect()
}

#[test]
fn a_node_is_what_its_user_data_says() {
    for form in [Form::Nodeadm, Form::BootstrapScript, Form::Bottlerocket(BindPaths::Default)] {
        Testbed::in_virtual_time(async {
            let testbed = Testbed::builder().start().unwrap();
            let (aws, nodes) = start(&testbed);
            let user_data = UserData::render(form, &settings(), None).unwrap();
            let id = launch(&aws, user_data.text()).await;
            tokio::time::sleep(Duration::from_secs(29)).await;
            assert_eq!(names(&nodes).await, [""; 0], "10 s to start and 20 s to boot");
            tokio::time::sleep(Duration::from_secs(3)).await;
            assert_eq!(names(&nodes).await, ["ip-10-0-0-4.us-west-2.compute.internal"], "{form:?}");

            let node = nodes.get("ip-10-0-0-4.us-west-2.compute.internal").await.unwrap();
            let labels = node.metadata.labels.unwrap();
            for (key, value) in [
                ("team", "a"),
                ("node.kubernetes.io/instance-type", "m5.large"),
                ("topology.kubernetes.io/zone", "us-west-2a"),
                ("topology.k8s.aws/zone-id", "usw2-az1"),
                ("kubernetes.io/arch", "amd64"),
            ] {
                assert_eq!(labels.get(key).map(String::as_str), Some(value), "{key} {form:?}");
            }
            let spec = node.spec.unwrap();
            assert_eq!(spec.provider_id, Some(format!("aws:///us-west-2a/{id}")));
            let taints = spec.taints.unwrap();
            assert!(taints.iter().any(|taint| taint.key == "karpenter.sh/unregistered"));
            let status = node.status.unwrap();
            let (capacity, allocatable) = (status.capacity.unwrap(), status.allocatable.unwrap());
            assert_eq!(capacity["pods"].0, "17", "{form:?}");
            // 70m for Kubernetes, 100m for the system; 255 + 11 * 29 MiB and 100 MiB.
            assert_eq!(allocatable["cpu"].0, "1830m", "{form:?}");
            assert_eq!((&*capacity["memory"].0, &*allocatable["memory"].0), ("7700Mi", "7026Mi"));

            let request = ec2::TerminateInstancesRequest { instance_ids: vec![id], dry_run: None };
            aws.terminate_instances(&request).await.unwrap();
            tokio::time::sleep(Duration::from_secs(5)).await;
            assert_eq!(readiness(&nodes).await, ["False: node is shutting down"], "{form:?}");
            tokio::time::sleep(Duration::from_secs(40)).await;
            assert_eq!(names(&nodes).await.len(), 1);
            tokio::time::sleep(Duration::from_secs(10)).await;
            assert_eq!(names(&nodes).await, [""; 0], "the node went after its instance");
        })
        .unwrap();
    }
}

#[test]
fn wrong_user_data_makes_no_node() {
    let other = |change: fn(&mut NodeSettings)| {
        let mut settings = settings();
        change(&mut settings);
        UserData::render(Form::Nodeadm, &settings, None).unwrap().text().to_owned()
    };
    for (user_data, reason) in [
        (
            other(|settings| settings.cluster.name = "other".to_owned()),
            "names the cluster \"other\"",
        ),
        (
            other(|settings| settings.cluster.endpoint = "https://b".to_owned()),
            "names the API server",
        ),
        (other(|settings| settings.cluster.ca_bundle = text("b3RoZXI=")), "another certificate"),
        ("#!/bin/sh\necho hello".to_owned(), "cannot be read"),
    ] {
        Testbed::in_virtual_time(async {
            let testbed = Testbed::builder().start().unwrap();
            let (aws, nodes) = start(&testbed);
            let id = launch(&aws, &user_data).await;
            tokio::time::sleep(Duration::from_mins(10)).await;
            assert_eq!(names(&nodes).await, [""; 0]);
            let request =
                ec2::GetConsoleOutputRequest { instance_id: Some(id), ..Default::default() };
            let output = aws.get_console_output(&request).await.unwrap().output.unwrap();
            let output = String::from_utf8(BASE64_STANDARD.decode(output).unwrap()).unwrap();
            assert!(output.contains(reason), "{output}");
        })
        .unwrap();
    }
}
