//! Requests as they are on the wire. The texts were compared with what botocore 1.44.0 makes of the same input.

use jiff::Timestamp;
use kerf_aws_wire::{
    Method, Operation, WireRequest, arc_zonal_shift, ec2, eks, find_operation, iam, pricing, sqs,
    ssm,
};

/// What a client writes, and what a server makes of it.
fn check<O: Operation + std::fmt::Debug + PartialEq>(request: &O, expect: &WireRequest) {
    let encoded = WireRequest::encode(request);
    assert_eq!(&encoded, expect);
    assert_eq!(encoded.decode::<O>().as_ref(), Ok(request));
    let found =
        find_operation(&encoded).expect("it is a form").map(|(service, name)| (service.id, name));
    assert_eq!(found, Some((O::SERVICE.id, O::NAME)));
}

fn form(body: &[&str]) -> WireRequest {
    WireRequest {
        method: Method::Post,
        path: "/".to_owned(),
        content_type: Some("application/x-www-form-urlencoded; charset=utf-8"),
        target: None,
        body: body.join("&"),
    }
}

fn json(version: &'static str, target: &str, body: &str) -> WireRequest {
    WireRequest {
        method: Method::Post,
        path: "/".to_owned(),
        content_type: Some(version),
        target: Some(target.to_owned()),
        body: body.to_owned(),
    }
}

fn get(path: &str) -> WireRequest {
    WireRequest {
        method: Method::Get,
        path: path.to_owned(),
        content_type: None,
        target: None,
        body: String::new(),
    }
}

#[expect(
    clippy::unnecessary_wraps,
    reason = "members are optional, and cases read better without Some"
)]
fn text(text: &str) -> Option<String> {
    Some(text.to_owned())
}

fn tag(key: &str, value: &str) -> ec2::Tag {
    ec2::Tag { key: text(key), value: text(value) }
}

fn filter(name: &str, values: &[&str]) -> ec2::Filter {
    ec2::Filter {
        name: text(name),
        values: values.iter().map(|value| (*value).to_owned()).collect(),
    }
}

#[test]
fn ec2_numbers_lists_and_begins_names_with_capitals() {
    check(
        &ec2::DescribeInstancesRequest {
            filters: vec![
                filter("tag-key", &["karpenter.sh/nodepool"]),
                filter("instance-state-name", &["pending", "running"]),
            ],
            max_results: Some(1000),
            ..Default::default()
        },
        &form(&[
            "Action=DescribeInstances",
            "Version=2016-11-15",
            "Filter.1.Name=tag-key",
            "Filter.1.Value.1=karpenter.sh%2Fnodepool",
            "Filter.2.Name=instance-state-name",
            "Filter.2.Value.1=pending",
            "Filter.2.Value.2=running",
            "MaxResults=1000",
        ]),
    );
    // The model calls it `dryRun` here.
    check(
        &ec2::TerminateInstancesRequest {
            dry_run: Some(true),
            instance_ids: vec!["i-1".to_owned(), "i-2".to_owned()],
        },
        &form(&[
            "Action=TerminateInstances",
            "Version=2016-11-15",
            "DryRun=true",
            "InstanceId.1=i-1",
            "InstanceId.2=i-2",
        ]),
    );
    check(
        &ec2::CreateTagsRequest {
            resources: vec!["i-1".to_owned()],
            tags: vec![tag("Name", "a node"), tag("empty", "")],
            ..Default::default()
        },
        &form(&[
            "Action=CreateTags",
            "Version=2016-11-15",
            "ResourceId.1=i-1",
            "Tag.1.Key=Name",
            "Tag.1.Value=a+node",
            "Tag.2.Key=empty",
            "Tag.2.Value=",
        ]),
    );
    check(
        &ec2::DescribeSpotPriceHistoryRequest {
            start_time: Some("2026-11-16T19:00:00Z".parse::<Timestamp>().unwrap()),
            instance_types: vec!["m5.large".to_owned()],
            product_descriptions: vec!["Linux/UNIX (Amazon VPC)".to_owned()],
            ..Default::default()
        },
        &form(&[
            "Action=DescribeSpotPriceHistory",
            "Version=2016-11-15",
            "InstanceType.1=m5.large",
            "ProductDescription.1=Linux%2FUNIX+%28Amazon+VPC%29",
            "StartTime=2026-11-16T19%3A00%3A00Z",
        ]),
    );
}

#[test]
fn a_fleet_is_asked_for() {
    let overrides = |instance_type: &str, priority| ec2::FleetLaunchTemplateOverridesRequest {
        availability_zone: text("us-west-2a"),
        image_id: text("ami-1"),
        instance_type: text(instance_type),
        priority: Some(priority),
        subnet_id: text("subnet-1"),
    };
    check(
        &ec2::CreateFleetRequest {
            client_token: text("token"),
            launch_template_configs: vec![ec2::FleetLaunchTemplateConfigRequest {
                launch_template_specification: Some(ec2::FleetLaunchTemplateSpecificationRequest {
                    launch_template_name: text("karpenter.k8s.aws/1"),
                    version: text("$Latest"),
                    ..Default::default()
                }),
                overrides: vec![overrides("m5.large", 0.096), overrides("m5.xlarge", 2.0)],
            }],
            spot_options: Some(ec2::SpotOptionsRequest {
                allocation_strategy: text("price-capacity-optimized"),
            }),
            tag_specifications: vec![ec2::TagSpecification {
                resource_type: text("instance"),
                tags: vec![tag("karpenter.sh/nodepool", "default")],
            }],
            target_capacity_specification: Some(ec2::TargetCapacitySpecificationRequest {
                default_target_capacity_type: text("spot"),
                total_target_capacity: Some(1),
            }),
            r#type: text("instant"),
            ..Default::default()
        },
        &form(&[
            "Action=CreateFleet",
            "Version=2016-11-15",
            "ClientToken=token",
            "LaunchTemplateConfigs.1.LaunchTemplateSpecification.LaunchTemplateName=karpenter.k8s.aws%2F1",
            "LaunchTemplateConfigs.1.LaunchTemplateSpecification.Version=%24Latest",
            "LaunchTemplateConfigs.1.Overrides.1.AvailabilityZone=us-west-2a",
            "LaunchTemplateConfigs.1.Overrides.1.ImageId=ami-1",
            "LaunchTemplateConfigs.1.Overrides.1.InstanceType=m5.large",
            "LaunchTemplateConfigs.1.Overrides.1.Priority=0.096",
            "LaunchTemplateConfigs.1.Overrides.1.SubnetId=subnet-1",
            "LaunchTemplateConfigs.1.Overrides.2.AvailabilityZone=us-west-2a",
            "LaunchTemplateConfigs.1.Overrides.2.ImageId=ami-1",
            "LaunchTemplateConfigs.1.Overrides.2.InstanceType=m5.xlarge",
            "LaunchTemplateConfigs.1.Overrides.2.Priority=2",
            "LaunchTemplateConfigs.1.Overrides.2.SubnetId=subnet-1",
            "SpotOptions.AllocationStrategy=price-capacity-optimized",
            "TagSpecification.1.ResourceType=instance",
            "TagSpecification.1.Tag.1.Key=karpenter.sh%2Fnodepool",
            "TagSpecification.1.Tag.1.Value=default",
            "TargetCapacitySpecification.DefaultTargetCapacityType=spot",
            "TargetCapacitySpecification.TotalTargetCapacity=1",
            "Type=instant",
        ]),
    );
}

#[test]
fn what_makes_something_is_repeatable_with_a_token_only() {
    let token = text("token");
    assert!(!ec2::CreateFleetRequest::default().is_repeatable());
    assert!(ec2::CreateFleetRequest { client_token: token, ..Default::default() }.is_repeatable());
    assert!(!ec2::CreateLaunchTemplateRequest::default().is_repeatable());
    assert!(!ec2::RunInstancesRequest::default().is_repeatable());
    assert!(ec2::TerminateInstancesRequest::default().is_repeatable());
    assert!(ec2::DescribeInstancesRequest::default().is_repeatable());
}

#[test]
fn a_launch_template_is_made() {
    check(
        &ec2::CreateLaunchTemplateRequest {
            launch_template_name: text("karpenter.k8s.aws/1"),
            launch_template_data: Some(ec2::RequestLaunchTemplateData {
                block_device_mappings: vec![ec2::LaunchTemplateBlockDeviceMappingRequest {
                    device_name: text("/dev/xvda"),
                    ebs: Some(ec2::LaunchTemplateEbsBlockDeviceRequest {
                        encrypted: Some(true),
                        volume_size: Some(20),
                        volume_type: text("gp3"),
                        ..Default::default()
                    }),
                    ..Default::default()
                }],
                network_interfaces: vec![
                    ec2::LaunchTemplateInstanceNetworkInterfaceSpecificationRequest {
                        associate_public_ip_address: Some(false),
                        device_index: Some(0),
                        groups: vec!["sg-1".to_owned(), "sg-2".to_owned()],
                        ..Default::default()
                    },
                ],
                tag_specifications: vec![ec2::LaunchTemplateTagSpecificationRequest {
                    resource_type: text("network-interface"),
                    tags: vec![tag("a", "b")],
                }],
                user_data: text("dGVzdA=="),
                ..Default::default()
            }),
            tag_specifications: vec![ec2::TagSpecification {
                resource_type: text("launch-template"),
                tags: vec![tag("c", "d")],
            }],
            ..Default::default()
        },
        &form(&[
            "Action=CreateLaunchTemplate",
            "Version=2016-11-15",
            "LaunchTemplateData.BlockDeviceMapping.1.DeviceName=%2Fdev%2Fxvda",
            "LaunchTemplateData.BlockDeviceMapping.1.Ebs.Encrypted=true",
            "LaunchTemplateData.BlockDeviceMapping.1.Ebs.VolumeSize=20",
            "LaunchTemplateData.BlockDeviceMapping.1.Ebs.VolumeType=gp3",
            "LaunchTemplateData.NetworkInterface.1.AssociatePublicIpAddress=false",
            "LaunchTemplateData.NetworkInterface.1.DeviceIndex=0",
            "LaunchTemplateData.NetworkInterface.1.SecurityGroupId.1=sg-1",
            "LaunchTemplateData.NetworkInterface.1.SecurityGroupId.2=sg-2",
            "LaunchTemplateData.TagSpecification.1.ResourceType=network-interface",
            "LaunchTemplateData.TagSpecification.1.Tag.1.Key=a",
            "LaunchTemplateData.TagSpecification.1.Tag.1.Value=b",
            "LaunchTemplateData.UserData=dGVzdA%3D%3D",
            "LaunchTemplateName=karpenter.k8s.aws%2F1",
            "TagSpecification.1.ResourceType=launch-template",
            "TagSpecification.1.Tag.1.Key=c",
            "TagSpecification.1.Tag.1.Value=d",
        ]),
    );
}

#[test]
fn a_list_of_more_than_nine_keeps_its_order() {
    let instance_ids: Vec<_> = (1..=12).map(|number| format!("i-{number}")).collect();
    let request = ec2::TerminateInstancesRequest { instance_ids, ..Default::default() };
    assert_eq!(WireRequest::encode(&request).decode(), Ok(request));
}

#[test]
fn iam_calls_the_items_of_a_list_members() {
    check(
        &iam::CreateInstanceProfileRequest {
            instance_profile_name: text("cluster_1"),
            path: text("/karpenter/us-west-2/cluster/uid/"),
            tags: vec![iam::Tag { key: text("a"), value: text("b") }],
        },
        &form(&[
            "Action=CreateInstanceProfile",
            "Version=2010-05-08",
            "InstanceProfileName=cluster_1",
            "Path=%2Fkarpenter%2Fus-west-2%2Fcluster%2Fuid%2F",
            "Tags.member.1.Key=a",
            "Tags.member.1.Value=b",
        ]),
    );
    check(
        &iam::AddRoleToInstanceProfileRequest {
            instance_profile_name: text("cluster_1"),
            role_name: text("node"),
        },
        &form(&[
            "Action=AddRoleToInstanceProfile",
            "Version=2010-05-08",
            "InstanceProfileName=cluster_1",
            "RoleName=node",
        ]),
    );
}

#[test]
fn json_names_the_call_in_a_header() {
    check(
        &ssm::GetParameterRequest { name: text("/aws/service/x/image_id"), ..Default::default() },
        &json(
            "application/x-amz-json-1.1",
            "AmazonSSM.GetParameter",
            r#"{"Name":"/aws/service/x/image_id"}"#,
        ),
    );
    check(
        &pricing::GetProductsRequest {
            filters: vec![pricing::Filter {
                field: text("regionCode"),
                r#type: text("TERM_MATCH"),
                value: text("us-west-2"),
            }],
            max_results: Some(100),
            service_code: text("AmazonEC2"),
            ..Default::default()
        },
        &json(
            "application/x-amz-json-1.1",
            "AWSPriceListService.GetProducts",
            r#"{"Filters":[{"Field":"regionCode","Type":"TERM_MATCH","Value":"us-west-2"}],"MaxResults":100,"ServiceCode":"AmazonEC2"}"#,
        ),
    );
    check(
        &sqs::ReceiveMessageRequest {
            max_number_of_messages: Some(10),
            queue_url: text("https://sqs.us-west-2.amazonaws.com/1/q"),
            visibility_timeout: Some(20),
            wait_time_seconds: Some(20),
        },
        &json(
            "application/x-amz-json-1.0",
            "AmazonSQS.ReceiveMessage",
            r#"{"MaxNumberOfMessages":10,"QueueUrl":"https://sqs.us-west-2.amazonaws.com/1/q","VisibilityTimeout":20,"WaitTimeSeconds":20}"#,
        ),
    );
}

#[test]
fn rest_names_the_call_in_its_path() {
    check(
        &eks::DescribeClusterRequest { name: text("my cluster/1") },
        &get("/clusters/my%20cluster%2F1"),
    );
    check(
        &arc_zonal_shift::GetManagedResourceRequest {
            resource_identifier: text("arn:aws:eks:us-west-2:1:cluster/c"),
        },
        &get("/managedresources/arn%3Aaws%3Aeks%3Aus-west-2%3A1%3Acluster%2Fc"),
    );
}

#[test]
fn a_call_of_others_is_none_of_ours() {
    let foreign = [
        get("/clusters"),
        get("/clusters/"),
        get("/clusters/a/node-groups"),
        form(&["Action=GetCallerIdentity", "Version=2011-06-15"]),
        form(&["Action=DescribeInstances", "Version=2014-09-01"]),
        json("application/x-amz-json-1.0", "AmazonSQS.SendMessage", "{}"),
        json("application/x-amz-json-1.0", "AmazonSQSReceiveMessage", "{}"),
    ];
    for request in foreign {
        assert_eq!(find_operation(&request), Ok(None), "{request:?}");
    }
    assert!(find_operation(&form(&["Version=2016-11-15"])).is_err());
}

#[test]
fn a_request_that_is_not_one_says_where() {
    let request = form(&["Action=DescribeInstances", "Version=2016-11-15", "MaxResults=many"]);
    let error = request.decode::<ec2::DescribeInstancesRequest>().unwrap_err();
    assert_eq!(error.to_string(), r#"MaxResults: expected a whole number, found "Text(\"many\")""#);
}
