//! Responses and refusals as they are on the wire.

use kerf_aws_wire::{
    ErrorResponse, Operation, Service, WireResponse, arc_zonal_shift, ec2, eks, iam, pricing, sqs,
    ssm,
};

/// What a client makes of a text, and what it makes of what our own server writes.
fn check<O: Operation>(body: &str, expect: &O::Response)
where
    O::Response: std::fmt::Debug + PartialEq,
{
    assert_eq!(WireResponse::decode::<O>(body).as_ref(), Ok(expect));
    let written = WireResponse::encode::<O>(expect, "id-1");
    assert_eq!(WireResponse::decode::<O>(&written.body).as_ref(), Ok(expect), "{}", written.body);
}

#[expect(
    clippy::unnecessary_wraps,
    reason = "members are optional, and cases read better without Some"
)]
fn text(text: &str) -> Option<String> {
    Some(text.to_owned())
}

#[test]
fn ec2_lists_are_sets_of_items() {
    let body = r#"<?xml version="1.0" encoding="UTF-8"?>
<DescribeInstancesResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/">
    <requestId>8f7724cf</requestId>
    <reservationSet>
        <item>
            <reservationId>r-1</reservationId>
            <groupSet/>
            <instancesSet>
                <item>
                    <instanceId>i-1</instanceId>
                    <instanceState><code>16</code><name>running</name></instanceState>
                    <privateDnsName/>
                    <launchTime>2026-11-16T19:00:00.000Z</launchTime>
                    <placement><availabilityZone>us-west-2a</availabilityZone><groupName/><tenancy>default</tenancy><partitionNumber/></placement>
                    <groupSet><item><groupId>sg-1</groupId><groupName>nodes &amp; more</groupName></item></groupSet>
                    <tagSet>
                        <item><key>a</key><value>&lt;b&gt; &#228;</value></item>
                        <item><key>c</key><value/></item>
                    </tagSet>
                    <somethingNew><of>tomorrow</of></somethingNew>
                </item>
            </instancesSet>
        </item>
    </reservationSet>
    <nextToken>more</nextToken>
</DescribeInstancesResponse>"#;
    let tag = |key, value| ec2::Tag { key: text(key), value: text(value) };
    let instance = ec2::Instance {
        instance_id: text("i-1"),
        state: Some(ec2::InstanceState { code: Some(16), name: text("running") }),
        private_dns_name: text(""),
        launch_time: Some("2026-11-16T19:00:00Z".parse().unwrap()),
        placement: Some(ec2::Placement {
            availability_zone: text("us-west-2a"),
            group_name: text(""),
            tenancy: text("default"),
            ..Default::default()
        }),
        security_groups: vec![ec2::GroupIdentifier {
            group_id: text("sg-1"),
            group_name: text("nodes & more"),
        }],
        tags: vec![tag("a", "<b> ä"), tag("c", "")],
        ..Default::default()
    };
    check::<ec2::DescribeInstancesRequest>(
        body,
        &ec2::DescribeInstancesResponse {
            next_token: text("more"),
            reservations: vec![ec2::Reservation {
                reservation_id: text("r-1"),
                instances: vec![instance],
            }],
        },
    );
}

#[test]
fn a_fleet_answers_with_instances_and_errors() {
    let body = r#"<CreateFleetResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/">
    <requestId>1</requestId>
    <fleetId>fleet-1</fleetId>
    <errorSet>
        <item>
            <launchTemplateAndOverrides>
                <launchTemplateSpecification><launchTemplateId>lt-1</launchTemplateId><version>1</version></launchTemplateSpecification>
                <overrides><instanceType>m5.large</instanceType><subnetId>subnet-1</subnetId><priority>0.096</priority></overrides>
            </launchTemplateAndOverrides>
            <lifecycle>spot</lifecycle>
            <errorCode>InsufficientInstanceCapacity</errorCode>
            <errorMessage>There is no Spot capacity available</errorMessage>
        </item>
    </errorSet>
    <fleetInstanceSet>
        <item>
            <lifecycle>on-demand</lifecycle>
            <instanceIds><item>i-1</item></instanceIds>
            <instanceType>m5.xlarge</instanceType>
        </item>
    </fleetInstanceSet>
</CreateFleetResponse>"#;
    check::<ec2::CreateFleetRequest>(
        body,
        &ec2::CreateFleetResponse {
            fleet_id: text("fleet-1"),
            errors: vec![ec2::CreateFleetError {
                error_code: text("InsufficientInstanceCapacity"),
                error_message: text("There is no Spot capacity available"),
                lifecycle: text("spot"),
                launch_template_and_overrides: Some(ec2::LaunchTemplateAndOverridesResponse {
                    launch_template_specification: Some(ec2::FleetLaunchTemplateSpecification {
                        launch_template_id: text("lt-1"),
                        version: text("1"),
                        ..Default::default()
                    }),
                    overrides: Some(ec2::FleetLaunchTemplateOverrides {
                        instance_type: text("m5.large"),
                        subnet_id: text("subnet-1"),
                        priority: Some(0.096),
                        ..Default::default()
                    }),
                }),
            }],
            instances: vec![ec2::CreateFleetInstance {
                lifecycle: text("on-demand"),
                instance_ids: vec!["i-1".to_owned()],
                instance_type: text("m5.xlarge"),
                ..Default::default()
            }],
        },
    );
}

#[test]
fn our_server_writes_what_ec2_writes() {
    let response = ec2::TerminateInstancesResponse {
        terminating_instances: vec![ec2::InstanceStateChange {
            instance_id: text("i-1"),
            current_state: Some(ec2::InstanceState { code: Some(32), name: text("shutting-down") }),
            previous_state: None,
        }],
    };
    let written = WireResponse::encode::<ec2::TerminateInstancesRequest>(&response, "id-1");
    assert_eq!(written.status, 200);
    assert_eq!(
        written.body,
        "<TerminateInstancesResponse xmlns=\"http://ec2.amazonaws.com/doc/2016-11-15\">\
         <requestId>id-1</requestId><instancesSet><item>\
         <currentState><code>32</code><name>shutting-down</name></currentState><instanceId>i-1</instanceId>\
         </item></instancesSet></TerminateInstancesResponse>"
    );
    let nothing =
        WireResponse::encode::<ec2::CreateTagsRequest>(&ec2::CreateTagsResponse::default(), "id-1");
    assert_eq!(
        nothing.body,
        "<CreateTagsResponse xmlns=\"http://ec2.amazonaws.com/doc/2016-11-15\"><requestId>id-1</requestId></CreateTagsResponse>"
    );
}

#[test]
fn iam_wraps_its_result() {
    let body = r#"<GetInstanceProfileResponse xmlns="https://iam.amazonaws.com/doc/2010-05-08/">
  <GetInstanceProfileResult>
    <InstanceProfile>
      <InstanceProfileName>cluster_1</InstanceProfileName>
      <Path>/karpenter/</Path>
      <CreateDate>2026-11-16T19:00:00Z</CreateDate>
      <Roles><member><RoleName>node</RoleName></member></Roles>
    </InstanceProfile>
  </GetInstanceProfileResult>
  <ResponseMetadata><RequestId>1</RequestId></ResponseMetadata>
</GetInstanceProfileResponse>"#;
    check::<iam::GetInstanceProfileRequest>(
        body,
        &iam::GetInstanceProfileResponse {
            instance_profile: Some(iam::InstanceProfile {
                instance_profile_name: text("cluster_1"),
                path: text("/karpenter/"),
                create_date: Some("2026-11-16T19:00:00Z".parse().unwrap()),
                roles: vec![iam::Role { role_name: text("node"), ..Default::default() }],
                ..Default::default()
            }),
        },
    );
    check::<iam::DeleteInstanceProfileRequest>(
        "<DeleteInstanceProfileResponse><ResponseMetadata/></DeleteInstanceProfileResponse>",
        &iam::DeleteInstanceProfileResponse::default(),
    );
}

#[test]
fn json_counts_time_in_seconds() {
    check::<ssm::GetParameterRequest>(
        r#"{"Parameter":{"ARN":"arn","LastModifiedDate":1794855600.25,"Name":"n","Type":"String","Value":"ami-1","Version":3}}"#,
        &ssm::GetParameterResponse {
            parameter: Some(ssm::Parameter {
                arn: text("arn"),
                last_modified_date: Some("2026-11-16T19:00:00.25Z".parse().unwrap()),
                name: text("n"),
                r#type: text("String"),
                value: text("ami-1"),
                version: Some(3),
            }),
        },
    );
    check::<pricing::GetProductsRequest>(
        r#"{"FormatVersion":"aws_v1","PriceList":["{\"product\":{}}"],"NextToken":null}"#,
        &pricing::GetProductsResponse {
            format_version: text("aws_v1"),
            next_token: None,
            price_list: vec![r#"{"product":{}}"#.to_owned()],
        },
    );
    check::<sqs::ReceiveMessageRequest>(
        r#"{"Messages":[{"Body":"{}","MD5OfBody":"x","MessageId":"1","ReceiptHandle":"h"}]}"#,
        &sqs::ReceiveMessageResponse {
            messages: vec![sqs::Message {
                body: text("{}"),
                message_id: text("1"),
                receipt_handle: text("h"),
            }],
        },
    );
    check::<sqs::ReceiveMessageRequest>("{}", &sqs::ReceiveMessageResponse::default());
    check::<sqs::DeleteMessageRequest>("", &sqs::DeleteMessageResponse::default());
    check::<arc_zonal_shift::GetManagedResourceRequest>(
        r#"{"appliedWeights":{"usw2-az1":0.0},"zonalShifts":[{"appliedStatus":"APPLIED","awayFrom":"usw2-az1","expiryTime":1794855600}]}"#,
        &arc_zonal_shift::GetManagedResourceResponse {
            zonal_shifts: vec![arc_zonal_shift::ZonalShiftInResource {
                applied_status: text("APPLIED"),
                away_from: text("usw2-az1"),
                expiry_time: Some("2026-11-16T19:00:00Z".parse().unwrap()),
                ..Default::default()
            }],
            ..Default::default()
        },
    );
    check::<eks::DescribeClusterRequest>(
        r#"{"cluster":{"certificateAuthority":{"data":"Q0E="},"kubernetesNetworkConfig":{"serviceIpv4Cidr":"10.100.0.0/16"},"version":"1.34"}}"#,
        &eks::DescribeClusterResponse {
            cluster: Some(eks::Cluster {
                certificate_authority: Some(eks::Certificate { data: text("Q0E=") }),
                kubernetes_network_config: Some(eks::KubernetesNetworkConfigResponse {
                    service_ipv4_cidr: text("10.100.0.0/16"),
                    ..Default::default()
                }),
                version: text("1.34"),
                ..Default::default()
            }),
        },
    );
}

#[test]
fn what_is_no_response_says_where() {
    type Instances = ec2::DescribeInstancesRequest;
    let cases = [
        ("", "the message: not XML: it ends without an element"),
        ("<a><b>", "the message: not XML: it ends inside of an element"),
        ("<a>&nbsp;</a>", "the message: not XML: nbsp"),
        (
            "<a><reservationSet><item><instancesSet><item><launchTime>noon</launchTime></item></instancesSet></item></reservationSet></a>",
            r#"reservationSet.instancesSet.launchTime: expected a time, found "Text(\"noon\")""#,
        ),
    ];
    for (body, expect) in cases {
        let error = WireResponse::decode::<Instances>(body).unwrap_err();
        assert_eq!(error.to_string(), expect);
    }
    let deep = "<a>".repeat(200_000);
    assert!(
        WireResponse::decode::<Instances>(&deep).unwrap_err().to_string().contains("too deeply")
    );
}

/// A refusal as a service words it, and as our own server does.
fn check_error(service: &Service, headers: &[(&str, &str)], body: &str, expect: &ErrorResponse) {
    let header = |name: &str| headers.iter().find(|(key, _)| *key == name).map(|(_, value)| *value);
    assert_eq!(&WireResponse::decode_error(service, header, body), expect);
    let written = WireResponse::encode_error(service, 400, expect);
    let header = |name: &str| {
        written.headers.iter().find(|(key, _)| *key == name).map(|(_, value)| value.as_str())
    };
    assert_eq!(&WireResponse::decode_error(service, header, &written.body), expect);
}

fn error(code: &str, message: &str) -> ErrorResponse {
    ErrorResponse {
        code: text(code),
        query_code: None,
        message: message.to_owned(),
        request_id: text("id-1"),
    }
}

#[test]
fn every_protocol_refuses_in_its_own_way() {
    check_error(
        &ec2::SERVICE,
        &[],
        r#"<?xml version="1.0" encoding="UTF-8"?>
<Response><Errors><Error><Code>InvalidInstanceID.NotFound</Code><Message>The instance ID 'i-1' does not exist</Message></Error></Errors><RequestID>id-1</RequestID></Response>"#,
        &error("InvalidInstanceID.NotFound", "The instance ID 'i-1' does not exist"),
    );
    check_error(
        &iam::SERVICE,
        &[],
        r#"<ErrorResponse xmlns="https://iam.amazonaws.com/doc/2010-05-08/"><Error><Type>Sender</Type><Code>NoSuchEntity</Code><Message>none</Message></Error><RequestId>id-1</RequestId></ErrorResponse>"#,
        &error("NoSuchEntity", "none"),
    );
    check_error(
        &ssm::SERVICE,
        &[("x-amzn-requestid", "id-1")],
        r#"{"__type":"com.amazonaws.ssm#ParameterNotFound","message":"none"}"#,
        &error("ParameterNotFound", "none"),
    );
    check_error(
        &sqs::SERVICE,
        &[
            ("x-amzn-requestid", "id-1"),
            ("x-amzn-query-error", "AWS.SimpleQueueService.NonExistentQueue;Sender"),
        ],
        r#"{"__type":"com.amazonaws.sqs#QueueDoesNotExist","message":"none"}"#,
        &ErrorResponse {
            query_code: text("AWS.SimpleQueueService.NonExistentQueue"),
            ..error("QueueDoesNotExist", "none")
        },
    );
    check_error(
        &eks::SERVICE,
        &[
            ("x-amzn-requestid", "id-1"),
            ("x-amzn-errortype", "ResourceNotFoundException:http://internal.amazon.com/coral/"),
        ],
        r#"{"message":"No cluster found for name: c."}"#,
        &error("ResourceNotFoundException", "No cluster found for name: c."),
    );
}

#[test]
fn a_page_of_a_proxy_is_an_error_without_a_code() {
    for service in [&ec2::SERVICE, &ssm::SERVICE] {
        let error = WireResponse::decode_error(service, |_| None, "<html><p>Bad Gateway");
        assert_eq!(error.code, None);
        assert_eq!(error.message, "<html><p>Bad Gateway");
    }
}
