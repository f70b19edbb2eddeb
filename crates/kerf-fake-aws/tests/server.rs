//! The client of AWS against the stand-in on loopback: one call of each protocol, and answers that do not come.
#![expect(clippy::unwrap_used, reason = "the helpers of a test may panic as the test itself does")]

use std::sync::Arc;
use std::time::Duration;

use aws_credential_types::Credentials;
use aws_credential_types::provider::SharedCredentialsProvider;
use kerf_aws_client::{Aws, AwsClient, Config, Endpoints, all_pages};
use kerf_aws_model::catalogue::Catalogue;
use kerf_aws_wire::{ec2, eks, iam, sqs, ssm};
use kerf_fake_aws::{FakeAws, Fault, Server, Settings};
use kerf_runtime::{Clock, Metrics};

async fn start() -> (FakeAws, Server, AwsClient) {
    let catalogue = Arc::new(Catalogue::built_in().unwrap());
    let aws = FakeAws::new(Settings::instant(), catalogue, Clock::system());
    let server = Server::start(aws.clone(), 0).await.unwrap();
    let credentials = Credentials::new("key", "secret", None, None, "test");
    let config = Config {
        endpoints: Endpoints {
            region: "us-west-2".to_owned(),
            custom: Some(server.url()),
            ..Default::default()
        },
        credentials: SharedCredentialsProvider::new(credentials),
        max_attempts: 1,
        timeout: Duration::from_secs(20),
        seed: 7,
    };
    let client = AwsClient::new(config, Clock::system(), &Metrics::default());
    (aws, server, client)
}

#[tokio::test]
async fn every_protocol_is_spoken() {
    let (_aws, _server, client) = start().await;
    // EC2: forms and XML, with pages.
    let request = ec2::DescribeInstanceTypesRequest::default();
    let types = all_pages(&client, request).await.unwrap();
    assert!(types.len() > 500, "{}", types.len());
    // IAM: forms and XML of another kind.
    let request = iam::CreateInstanceProfileRequest {
        instance_profile_name: Some("profile".to_owned()),
        path: Some("/karpenter/".to_owned()),
        tags: vec![iam::Tag { key: Some("a".to_owned()), value: Some("b".to_owned()) }],
    };
    client.create_instance_profile(&request).await.unwrap();
    let error = client.create_instance_profile(&request).await.unwrap_err();
    assert_eq!(error.code(), Some("EntityAlreadyExists"));
    // JSON 1.1
    let name = "/aws/service/bottlerocket/aws-k8s-1.34/arm64/latest/image_id".to_owned();
    let request = ssm::GetParameterRequest { name: Some(name), with_decryption: None };
    let value = client.get_parameter(&request).await.unwrap().parameter.unwrap().value.unwrap();
    assert!(value.starts_with("ami-"), "{value}");
    // JSON 1.0
    let request =
        sqs::GetQueueUrlRequest { queue_name: Some("other".to_owned()), ..Default::default() };
    assert!(client.get_queue_url(&request).await.unwrap_err().is_not_found());
    // REST
    let request = eks::DescribeClusterRequest { name: Some("test".to_owned()) };
    let cluster = client.describe_cluster(&request).await.unwrap().cluster.unwrap();
    assert_eq!(cluster.version.as_deref(), Some("1.34"));
}

#[tokio::test]
async fn an_answer_that_is_lost_is_a_connection_that_ends() {
    let (aws, _server, client) = start().await;
    aws.fail_next("CreateInstanceProfile", 1, Fault::LostAnswer);
    let request = iam::CreateInstanceProfileRequest {
        instance_profile_name: Some("profile".to_owned()),
        ..Default::default()
    };
    let error = client.create_instance_profile(&request).await.unwrap_err();
    assert!(error.to_string().contains("cannot be reached"), "{error}");
    assert_eq!(aws.instance_profile_count(), 1, "it was done all the same");
}
