//! The client against moto, a simulation of AWS that others wrote: an independent reader of our requests and writer of our responses.
//! `cargo xtask aws moto` starts moto, plants what these steps need, and runs this with `AWS_ENDPOINT_URL` set.

use anyhow::{Context, Result, ensure};
use kerf_aws_client::{Aws, AwsClient, AwsError, Config, all_pages};
use kerf_aws_model::errors::Meaning;
use kerf_aws_wire::{ec2, eks, iam, sqs, ssm};
use kerf_runtime::{Clock, Metrics};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let config = Config::from_environment(None, 0).await?;
    ensure!(
        config.endpoints.custom.is_some(),
        "set AWS_ENDPOINT_URL: this is not for the real AWS"
    );
    let aws = AwsClient::new(config, Clock::system(), &Metrics::default());
    instance_types(&aws).await.context("instance types")?;
    instance_profile(&aws).await.context("instance profile")?;
    parameters(&aws).await.context("parameters")?;
    cluster(&aws).await.context("cluster")?;
    launch_list_terminate(&aws).await.context("launch, list, terminate")?;
    queue(&aws).await.context("queue")?;
    Ok(())
}

#[expect(clippy::unnecessary_wraps, reason = "members are optional")]
fn text(text: &str) -> Option<String> {
    Some(text.to_owned())
}

fn filter(name: &str, values: &[&str]) -> ec2::Filter {
    ec2::Filter {
        name: text(name),
        values: values.iter().map(|value| (*value).to_owned()).collect(),
    }
}

fn means<T: std::fmt::Debug>(result: Result<T, AwsError>, meaning: Meaning) -> Result<()> {
    match result {
        Err(error) if error.meaning() == meaning => Ok(()),
        other => anyhow::bail!("expected {meaning:?}, got {other:?}"),
    }
}

async fn instance_types(aws: &dyn Aws) -> Result<()> {
    let request = ec2::DescribeInstanceTypesRequest {
        instance_types: vec!["m5.large".to_owned(), "g5.xlarge".to_owned()],
        ..Default::default()
    };
    let mut types = all_pages(aws, request).await?;
    types.sort_by(|a, b| a.instance_type.cmp(&b.instance_type));
    let [gpu, general] = types.as_slice() else { anyhow::bail!("{} types", types.len()) };
    let vcpus = general.vcpu_info.as_ref().and_then(|info| info.default_vcpus);
    let memory = general.memory_info.as_ref().and_then(|info| info.size_in_mib);
    ensure!((vcpus, memory) == (Some(2), Some(8192)), "{general:?}");
    let network = general.network_info.as_ref().context("no network")?;
    ensure!(network.ipv4_addresses_per_interface == Some(10), "{network:?}");
    let gpus = gpu.gpu_info.as_ref().context("no GPU")?;
    ensure!(gpus.gpus[0].manufacturer.as_deref() == Some("NVIDIA"), "{gpus:?}");
    let request = ec2::DescribeInstanceTypeOfferingsRequest {
        location_type: text("availability-zone"),
        filters: vec![filter("instance-type", &["m5.large"])],
        ..Default::default()
    };
    let offerings = all_pages(aws, request).await?;
    ensure!(offerings.len() >= 2, "{offerings:?}");
    let request = ec2::DescribeSpotPriceHistoryRequest {
        start_time: Some("2026-01-01T00:00:00Z".parse()?),
        instance_types: vec!["m5.large".to_owned()],
        ..Default::default()
    };
    let prices = all_pages(aws, request).await?;
    ensure!(prices.iter().all(|price| price.spot_price.is_some() && price.timestamp.is_some()));
    Ok(())
}

async fn instance_profile(aws: &dyn Aws) -> Result<()> {
    let name = text("kerf-profile");
    let tag = iam::Tag { key: text("kubernetes.io/cluster/kerf"), value: text("owned") };
    let create = iam::CreateInstanceProfileRequest {
        instance_profile_name: name.clone(),
        path: text("/karpenter/us-west-2/kerf/"),
        tags: vec![tag.clone()],
    };
    aws.create_instance_profile(&create).await?;
    means(aws.create_instance_profile(&create).await, Meaning::AlreadyExists)?;
    let role_name = text("kerf-node");
    let add = iam::AddRoleToInstanceProfileRequest {
        instance_profile_name: name.clone(),
        role_name: role_name.clone(),
    };
    aws.add_role_to_instance_profile(&add).await?;
    let get = iam::GetInstanceProfileRequest { instance_profile_name: name.clone() };
    let profile = aws.get_instance_profile(&get).await?.instance_profile.context("no profile")?;
    ensure!(profile.roles.len() == 1 && profile.roles[0].role_name == role_name, "{profile:?}");
    ensure!(profile.tags == [tag], "{profile:?}");
    let list = iam::ListInstanceProfilesRequest {
        path_prefix: text("/karpenter/us-west-2/kerf/"),
        ..Default::default()
    };
    ensure!(all_pages(aws, list).await?.len() == 1);
    let remove = iam::RemoveRoleFromInstanceProfileRequest {
        instance_profile_name: name.clone(),
        role_name,
    };
    aws.remove_role_from_instance_profile(&remove).await?;
    aws.delete_instance_profile(&iam::DeleteInstanceProfileRequest { instance_profile_name: name })
        .await?;
    means(aws.get_instance_profile(&get).await, Meaning::NotFound)
}

async fn parameters(aws: &dyn Aws) -> Result<()> {
    let name = "/aws/service/ami-amazon-linux-latest/amzn2-ami-hvm-x86_64-gp2";
    let get = |name: &str| ssm::GetParameterRequest { name: text(name), ..Default::default() };
    let parameter = aws.get_parameter(&get(name)).await?.parameter.context("no parameter")?;
    ensure!(parameter.value.is_some_and(|value| value.starts_with("ami-")));
    means(aws.get_parameter(&get("/kerf/none")).await, Meaning::NotFound)
}

async fn cluster(aws: &dyn Aws) -> Result<()> {
    let cluster = aws.describe_cluster(&eks::DescribeClusterRequest { name: text("kerf") }).await?;
    let cluster = cluster.cluster.context("no cluster")?;
    ensure!(cluster.version.is_some() && cluster.endpoint.is_some(), "{cluster:?}");
    ensure!(
        cluster
            .kubernetes_network_config
            .is_some_and(|network| network.service_ipv4_cidr.is_some())
    );
    let missing = aws.describe_cluster(&eks::DescribeClusterRequest { name: text("none") }).await;
    ensure!(
        missing.as_ref().is_err_and(|error| error.code() == Some("ResourceNotFoundException")),
        "{missing:?}"
    );
    Ok(())
}

async fn launch_list_terminate(aws: &dyn Aws) -> Result<()> {
    let request = ec2::DescribeSubnetsRequest { max_results: Some(500), ..Default::default() };
    let subnets = all_pages(aws, request).await?;
    let subnet = subnets.first().context("no subnet")?;
    ensure!(
        subnet.available_ip_address_count.is_some() && subnet.availability_zone_id.is_some(),
        "{subnet:?}"
    );
    let groups = all_pages(aws, ec2::DescribeSecurityGroupsRequest::default()).await?;
    let group = groups[0].group_id.clone().context("no security group")?;
    let request = ec2::DescribeImagesRequest {
        owners: vec!["amazon".to_owned()],
        filters: vec![filter("state", &["available"]), filter("architecture", &["x86_64"])],
        ..Default::default()
    };
    let images = all_pages(aws, request).await?;
    let image = images[0].image_id.clone().context("no image")?;

    let tag = |key, value| ec2::Tag { key: text(key), value: text(value) };
    let template_name = text("karpenter.k8s.aws/1");
    let template = ec2::CreateLaunchTemplateRequest {
        launch_template_name: template_name.clone(),
        launch_template_data: Some(ec2::RequestLaunchTemplateData {
            image_id: Some(image.clone()),
            user_data: text("dGVzdA=="),
            network_interfaces: vec![
                ec2::LaunchTemplateInstanceNetworkInterfaceSpecificationRequest {
                    device_index: Some(0),
                    groups: vec![group],
                    ..Default::default()
                },
            ],
            ..Default::default()
        }),
        tag_specifications: vec![ec2::TagSpecification {
            resource_type: text("launch-template"),
            tags: vec![tag("eks:eks-cluster-name", "kerf")],
        }],
        ..Default::default()
    };
    let dry = ec2::CreateLaunchTemplateRequest { dry_run: Some(true), ..template.clone() };
    means(aws.create_launch_template(&dry).await, Meaning::DryRunPassed)?;
    aws.create_launch_template(&template).await?;
    means(aws.create_launch_template(&template).await, Meaning::AlreadyExists)?;
    let describe = |name: &str| ec2::DescribeLaunchTemplatesRequest {
        launch_template_names: vec![name.to_owned()],
        ..Default::default()
    };
    let templates = all_pages(aws, describe("karpenter.k8s.aws/1")).await?;
    ensure!(
        templates.len() == 1 && templates[0].tags == [tag("eks:eks-cluster-name", "kerf")],
        "{templates:?}"
    );
    let missing = aws.describe_launch_templates(&describe("karpenter.k8s.aws/2")).await;
    means(missing, Meaning::LaunchTemplateGone)?;

    let overrides = |instance_type: &str, priority| ec2::FleetLaunchTemplateOverridesRequest {
        availability_zone: subnet.availability_zone.clone(),
        image_id: Some(image.clone()),
        instance_type: text(instance_type),
        priority: Some(priority),
        subnet_id: subnet.subnet_id.clone(),
    };
    let fleet = ec2::CreateFleetRequest {
        client_token: text("one"),
        launch_template_configs: vec![ec2::FleetLaunchTemplateConfigRequest {
            launch_template_specification: Some(ec2::FleetLaunchTemplateSpecificationRequest {
                launch_template_name: template_name.clone(),
                version: text("$Latest"),
                ..Default::default()
            }),
            overrides: vec![overrides("m5.large", 0.096), overrides("m5.xlarge", 0.192)],
        }],
        on_demand_options: Some(ec2::OnDemandOptionsRequest {
            allocation_strategy: text("lowest-price"),
            ..Default::default()
        }),
        tag_specifications: vec![ec2::TagSpecification {
            resource_type: text("instance"),
            tags: vec![
                tag("karpenter.sh/nodepool", "default"),
                tag("eks:eks-cluster-name", "kerf"),
            ],
        }],
        target_capacity_specification: Some(ec2::TargetCapacitySpecificationRequest {
            default_target_capacity_type: text("on-demand"),
            total_target_capacity: Some(1),
        }),
        r#type: text("instant"),
        ..Default::default()
    };
    let dry = ec2::CreateFleetRequest { dry_run: Some(true), ..fleet.clone() };
    means(aws.create_fleet(&dry).await, Meaning::DryRunPassed)?;
    let launched = aws.create_fleet(&fleet).await?;
    ensure!(launched.errors.is_empty() && launched.instances.len() == 1, "{launched:?}");
    ensure!(launched.instances[0].instance_type.as_deref() == Some("m5.large"), "{launched:?}");
    let id = launched.instances[0].instance_ids.first().cloned().context("no instance id")?;
    let run = ec2::RunInstancesRequest {
        dry_run: Some(true),
        image_id: Some(image.clone()),
        instance_type: text("m5.large"),
        launch_template: Some(ec2::LaunchTemplateSpecification {
            launch_template_name: template_name.clone(),
            version: text("$Latest"),
            ..Default::default()
        }),
        max_count: Some(1),
        min_count: Some(1),
        subnet_id: subnet.subnet_id.clone(),
        ..Default::default()
    };
    means(aws.run_instances(&run).await, Meaning::DryRunPassed)?;

    let name = ec2::CreateTagsRequest {
        resources: vec![id.clone()],
        tags: vec![tag("Name", "a node & more")],
        ..Default::default()
    };
    aws.create_tags(&name).await?;
    let list = ec2::DescribeInstancesRequest {
        filters: vec![
            filter("tag-key", &["karpenter.sh/nodepool"]),
            filter("tag:eks:eks-cluster-name", &["kerf"]),
            filter(
                "instance-state-name",
                &["pending", "running", "stopping", "stopped", "shutting-down"],
            ),
        ],
        max_results: Some(1000),
        ..Default::default()
    };
    let reservations = all_pages(aws, list.clone()).await?;
    let instances: Vec<_> =
        reservations.iter().flat_map(|reservation| &reservation.instances).collect();
    ensure!(
        instances.len() == 1 && instances[0].instance_id.as_ref() == Some(&id),
        "{instances:?}"
    );
    ensure!(instances[0].tags.contains(&tag("Name", "a node & more")), "{instances:?}");
    ensure!(
        instances[0].launch_time.is_some() && instances[0].placement.is_some(),
        "{instances:?}"
    );

    let terminate = |id: &str| ec2::TerminateInstancesRequest {
        instance_ids: vec![id.to_owned()],
        ..Default::default()
    };
    let ended = aws.terminate_instances(&terminate(&id)).await?.terminating_instances;
    let state = ended.first().and_then(|change| change.current_state.as_ref()?.name.as_deref());
    ensure!(state == Some("shutting-down"), "{ended:?}");
    ensure!(all_pages(aws, list).await?.is_empty());
    means(aws.terminate_instances(&terminate("i-00000000000000000")).await, Meaning::NotFound)?;
    let delete = ec2::DeleteLaunchTemplateRequest {
        launch_template_name: template_name,
        ..Default::default()
    };
    aws.delete_launch_template(&delete).await?;
    Ok(())
}

async fn queue(aws: &dyn Aws) -> Result<()> {
    let get = |name: &str| sqs::GetQueueUrlRequest { queue_name: text(name), ..Default::default() };
    means(aws.get_queue_url(&get("none")).await, Meaning::NotFound)?;
    let queue_url = aws.get_queue_url(&get("kerf")).await?.queue_url;
    let receive = sqs::ReceiveMessageRequest {
        queue_url: queue_url.clone(),
        max_number_of_messages: Some(10),
        visibility_timeout: Some(20),
        wait_time_seconds: Some(1),
    };
    let messages = aws.receive_message(&receive).await?.messages;
    ensure!(messages.len() == 1, "{messages:?}");
    ensure!(
        messages[0].body.as_deref()
            == Some("{\"detail-type\":\"EC2 Spot Instance Interruption Warning\"}")
    );
    let delete =
        sqs::DeleteMessageRequest { queue_url, receipt_handle: messages[0].receipt_handle.clone() };
    aws.delete_message(&delete).await?;
    ensure!(aws.receive_message(&receive).await?.messages.is_empty());
    Ok(())
}
