//! The client on the wire, against a server on loopback that says what it is told to.

mod environment;
mod server;

use std::time::{Duration, Instant};

use aws_credential_types::Credentials;
use aws_credential_types::provider::SharedCredentialsProvider;
use jiff::{SignedDuration, Timestamp};
use kerf_aws_client::{Aws, AwsClient, Config, Endpoints, Failure, all_pages};
use kerf_aws_model::errors::Meaning;
use kerf_aws_wire::{ec2, eks, iam, sqs, ssm};
use kerf_runtime::{Clock, Fence, Metrics, WriteRefused};

use server::{Reply, Server};

const EMPTY: &str = "<DescribeInstancesResponse><reservationSet/></DescribeInstancesResponse>";

fn ec2_error(status: u16, code: &str) -> Reply {
    let body = format!(
        "<Response><Errors><Error><Code>{code}</Code><Message>why</Message></Error></Errors><RequestID>id-1</RequestID></Response>"
    );
    Reply::new(status, &body)
}

fn config(server: &Server) -> Config {
    let credentials = Credentials::new("AKID", "secret", Some("token".to_owned()), None, "test");
    Config {
        endpoints: Endpoints {
            region: "us-west-2".to_owned(),
            custom: Some(server.url()),
            ..Default::default()
        },
        credentials: SharedCredentialsProvider::new(credentials),
        max_attempts: 3,
        timeout: Duration::from_secs(20),
        seed: 7,
    }
}

fn client(server: &Server) -> AwsClient {
    AwsClient::new(config(server), Clock::system(), &Metrics::default())
}

#[tokio::test]
async fn a_request_is_signed_and_names_its_caller() {
    let server = Server::start([Reply::new(200, EMPTY)]).await;
    let instances =
        client(&server).describe_instances(&ec2::DescribeInstancesRequest::default()).await;
    assert_eq!(instances, Ok(ec2::DescribeInstancesResponse::default()));

    let requests = server.requests();
    let request = &requests[0];
    assert_eq!((request.method.as_str(), request.path.as_str()), ("POST", "/"));
    assert_eq!(request.body, "Action=DescribeInstances&Version=2016-11-15");
    assert_eq!(request.header("user-agent"), concat!("kerf/", env!("CARGO_PKG_VERSION")));
    assert_eq!(request.header("x-amz-security-token"), "token");
    let authorization = request.header("authorization");
    let scope = format!("/{}/us-west-2/ec2/aws4_request, ", &request.header("x-amz-date")[..8]);
    assert!(authorization.starts_with("AWS4-HMAC-SHA256 Credential=AKID/"), "{authorization}");
    assert!(authorization.contains(&scope), "{authorization}");
    assert!(
        authorization.contains("SignedHeaders=content-type;host;x-amz-date;x-amz-security-token, ")
    );
}

#[tokio::test]
async fn each_service_gets_its_own_signature_and_protocol() {
    let server = Server::start([
        Reply::new(200, r#"{"Parameter":{"Value":"ami-1"}}"#),
        Reply::new(200, r#"{"cluster":{"version":"1.34"}}"#),
        Reply::new(200, "<ListInstanceProfilesResponse/>"),
    ])
    .await;
    let client = client(&server);
    let parameter = client.get_parameter(&ssm::GetParameterRequest::default()).await.unwrap();
    assert_eq!(parameter.parameter.unwrap().value.as_deref(), Some("ami-1"));
    let request = eks::DescribeClusterRequest { name: Some("a b".to_owned()) };
    let cluster = client.describe_cluster(&request).await.unwrap();
    assert_eq!(cluster.cluster.unwrap().version.as_deref(), Some("1.34"));
    client.list_instance_profiles(&iam::ListInstanceProfilesRequest::default()).await.unwrap();

    let requests = server.requests();
    assert_eq!(requests[0].header("x-amz-target"), "AmazonSSM.GetParameter");
    assert!(requests[0].header("authorization").contains("/us-west-2/ssm/"));
    assert_eq!(
        (requests[1].method.as_str(), requests[1].path.as_str()),
        ("GET", "/clusters/a%20b")
    );
    assert!(requests[1].header("authorization").contains("/us-west-2/eks/"));
    assert!(requests[2].header("authorization").contains("/us-east-1/iam/"), "IAM has no regions");
}

#[tokio::test]
async fn what_may_pass_is_tried_three_times() {
    let cases = [
        (ec2_error(503, "Unavailable"), ec2_error(500, "InternalError")),
        (ec2_error(503, "RequestLimitExceeded"), ec2_error(400, "Throttling")),
        (Reply::new(502, "<html>Bad Gateway"), Reply::hang_up()),
    ];
    for (first, second) in cases {
        let server = Server::start([first, second, Reply::new(200, EMPTY)]).await;
        let result =
            client(&server).describe_instances(&ec2::DescribeInstancesRequest::default()).await;
        assert!(result.is_ok(), "{result:?}");
        assert_eq!(server.requests().len(), 3);
    }
}

#[tokio::test]
async fn the_third_failure_is_the_answer() {
    let server =
        Server::start(std::iter::repeat_n(ec2_error(503, "RequestLimitExceeded"), 4)).await;
    let error = client(&server)
        .describe_instances(&ec2::DescribeInstancesRequest::default())
        .await
        .unwrap_err();
    assert_eq!(server.requests().len(), 3);
    assert_eq!((error.attempts, error.meaning()), (3, Meaning::Throttled));
    assert!(error.is_throttled());
    assert_eq!(
        error.to_string(),
        "EC2 DescribeInstances failed: RequestLimitExceeded: why (status 503, request id-1)"
    );
}

#[tokio::test]
async fn what_stays_wrong_is_tried_once() {
    let cases = [
        (400, "InvalidInstanceID.NotFound", Meaning::NotFound),
        (403, "UnauthorizedOperation", Meaning::Unauthorized),
        (412, "DryRunOperation", Meaning::DryRunPassed),
        (400, "InsufficientInstanceCapacity", Meaning::of("InsufficientInstanceCapacity", "")),
    ];
    for (status, code, meaning) in cases {
        let server = Server::start([ec2_error(status, code)]).await;
        let error = client(&server)
            .describe_instances(&ec2::DescribeInstancesRequest::default())
            .await
            .unwrap_err();
        assert_eq!(server.requests().len(), 1, "{code}");
        assert_eq!((error.code(), error.meaning()), (Some(code), meaning));
    }
}

#[tokio::test]
async fn a_fleet_without_a_token_is_asked_for_again_only_if_it_was_throttled() {
    const FLEET: &str = "<CreateFleetResponse><fleetId>fleet-1</fleetId></CreateFleetResponse>";
    let cases = [
        (None, ec2_error(500, "InternalError"), 1),
        (None, Reply::hang_up(), 1),
        (None, ec2_error(503, "RequestLimitExceeded"), 2),
        (Some("token"), ec2_error(500, "InternalError"), 2),
        (Some("token"), Reply::hang_up(), 2),
    ];
    for (token, reply, asked) in cases {
        let server = Server::start([reply, Reply::new(200, FLEET)]).await;
        let client_token = token.map(str::to_owned);
        let request = ec2::CreateFleetRequest { client_token, ..Default::default() };
        let result = client(&server).create_fleet(&request).await;
        assert_eq!(server.requests().len(), asked, "{token:?} {result:?}");
    }
}

#[tokio::test]
async fn a_clock_that_is_wrong_is_put_right_by_the_answer() {
    let date = Timestamp::now().strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
    let server = Server::start([
        ec2_error(403, "RequestExpired").with("date", &date),
        Reply::new(200, EMPTY).with("date", &date),
        Reply::new(200, EMPTY).with("date", &date),
    ])
    .await;
    let clock = Clock::starting_at(Timestamp::now() - SignedDuration::from_hours(3));
    let client = AwsClient::new(config(&server), clock, &Metrics::default());
    let begin = Instant::now();
    for _ in 0..2 {
        let result = client.describe_instances(&ec2::DescribeInstancesRequest::default()).await;
        assert!(result.is_ok(), "{result:?}");
    }
    assert!(begin.elapsed() < Duration::from_secs(5));
    let dated: Vec<Timestamp> = server
        .requests()
        .iter()
        .map(|request| {
            let date = request.header("x-amz-date").to_owned() + " +0000";
            Timestamp::strptime("%Y%m%dT%H%M%SZ %z", date).unwrap()
        })
        .collect();
    let off = |time: Timestamp| Timestamp::now().duration_since(time).as_mins();
    assert_eq!(dated.iter().map(|time| off(*time)).collect::<Vec<_>>(), [180, 0, 0]);
}

#[tokio::test]
async fn a_clock_that_is_right_is_not_blamed() {
    let server = Server::start([ec2_error(401, "AuthFailure")]).await;
    let error = client(&server)
        .describe_instances(&ec2::DescribeInstancesRequest::default())
        .await
        .unwrap_err();
    assert_eq!((server.requests().len(), error.meaning()), (1, Meaning::Unauthorized));
}

#[tokio::test]
async fn an_answer_that_does_not_come_is_a_time_out() {
    let server = Server::start([Reply::never()]).await;
    let config = Config { timeout: Duration::from_millis(200), max_attempts: 1, ..config(&server) };
    let client = AwsClient::new(config, Clock::system(), &Metrics::default());
    let error =
        client.describe_instances(&ec2::DescribeInstancesRequest::default()).await.unwrap_err();
    assert_eq!(error.failure, Failure::TimedOut { after: Duration::from_millis(200) });
}

#[tokio::test]
async fn an_endpoint_that_is_not_there_is_named() {
    let server = Server::start([]).await;
    let mut config = Config { max_attempts: 1, ..config(&server) };
    // A port that is closed again.
    config.endpoints.custom = Some(Server::closed_port().await);
    let client = AwsClient::new(config, Clock::system(), &Metrics::default());
    let error =
        client.describe_instances(&ec2::DescribeInstancesRequest::default()).await.unwrap_err();
    assert!(error.to_string().contains("cannot be reached"), "{error}");
    assert!(error.to_string().contains("127.0.0.1"), "{error}");
}

#[tokio::test]
async fn an_expired_token_is_renewed_at_once() {
    let expired = Reply::new(400, r#"{"__type":"com.amazon.coral.service#ExpiredTokenException"}"#);
    let server = Server::start([expired, Reply::new(200, "{}")]).await;
    let result = client(&server).receive_message(&sqs::ReceiveMessageRequest::default()).await;
    assert_eq!(result, Ok(sqs::ReceiveMessageResponse::default()));
    assert_eq!(server.requests().len(), 2);
}

#[tokio::test]
async fn all_pages_are_read() {
    let page = |id: &str, next: &str| {
        let body = format!(
            "<r><subnetSet><item><subnetId>{id}</subnetId></item></subnetSet><nextToken>{next}</nextToken></r>"
        );
        Reply::new(200, &body)
    };
    let server = Server::start([page("subnet-1", "a b"), page("subnet-2", "")]).await;
    let request = ec2::DescribeSubnetsRequest { max_results: Some(1), ..Default::default() };
    let subnets = all_pages(&client(&server), request).await.unwrap();
    let ids: Vec<_> = subnets.iter().filter_map(|subnet| subnet.subnet_id.as_deref()).collect();
    assert_eq!(ids, ["subnet-1", "subnet-2"]);
    assert!(server.requests()[1].body.ends_with("&MaxResults=1&NextToken=a+b"));
}

#[tokio::test]
async fn calls_are_counted_as_karpenter_counts_them() {
    let server = Server::start([ec2_error(503, "Unavailable"), Reply::new(200, EMPTY)]).await;
    let metrics = Metrics::default();
    let client = AwsClient::new(config(&server), Clock::system(), &metrics);
    client.describe_instances(&ec2::DescribeInstancesRequest::default()).await.unwrap();
    let text = metrics.text();
    for line in [
        "aws_sdk_go_request_total{service=\"EC2\",action=\"DescribeInstances\",code=\"200\"} 1",
        "aws_sdk_go_request_attempt_total{service=\"EC2\",action=\"DescribeInstances\",code=\"503\"} 1",
        "aws_sdk_go_request_attempt_total{service=\"EC2\",action=\"DescribeInstances\",code=\"200\"} 1",
        "aws_sdk_go_request_retry_count_sum{service=\"EC2\",action=\"DescribeInstances\",code=\"200\"} 1.0",
        "aws_sdk_go_request_duration_seconds_count{service=\"EC2\",action=\"DescribeInstances\",code=\"200\"} 1",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
}

#[tokio::test]
async fn a_call_that_changes_something_needs_the_lease() {
    let server = Server::start([Reply::new(200, EMPTY)]).await;
    let clock = Clock::system();
    let client = AwsClient::new(config(&server), clock.clone(), &Metrics::default());
    let client = client.fenced(Fence::closed(clock));
    client.describe_instances(&ec2::DescribeInstancesRequest::default()).await.unwrap();
    let error = client.create_fleet(&ec2::CreateFleetRequest::default()).await.unwrap_err();
    assert_eq!(error.failure, Failure::NotLeading(WriteRefused::NotLeading));
    assert_eq!(server.requests().len(), 1, "the fleet was not asked for");
}
