//! What the variables of AWS do. They belong to a process, so each case is a process of its own: this program again, with one test.

use std::process::Command;

use kerf_aws_client::{Aws, AwsClient, Config};
use kerf_aws_wire::ec2;
use kerf_runtime::{Clock, Metrics};

use super::EMPTY;
use super::server::{Reply, Server};

/// Says that this process is the inner one.
const INNER: &str = "KERF_TEST_INNER";

/// Makes one call with what the environment says.
#[tokio::test]
async fn inner_process() {
    if std::env::var_os(INNER).is_none() {
        return;
    }
    let config = Config::from_environment(None, 7).await.expect("the environment is complete");
    let client = AwsClient::new(config, Clock::system(), &Metrics::default());
    client
        .describe_instances(&ec2::DescribeInstancesRequest::default())
        .await
        .expect("the call goes well");
}

async fn call_with(variables: &[(&str, &str)]) {
    let mut inner = Command::new(std::env::current_exe().expect("a program has a path"));
    inner.args(["--exact", "environment::inner_process", "--nocapture"]);
    inner.env_clear().env(INNER, "1").env("AWS_EC2_METADATA_DISABLED", "true");
    inner.env("AWS_REGION", "eu-central-1").envs(variables.iter().copied());
    let output = tokio::task::spawn_blocking(move || inner.output()).await;
    let output = output.expect("it does not panic").expect("it starts");
    assert!(
        output.status.success(),
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

#[tokio::test]
async fn keys_and_endpoints_come_from_variables() {
    let (ec2, other) = (Server::start([Reply::new(200, EMPTY)]).await, Server::start([]).await);
    call_with(&[
        ("AWS_ACCESS_KEY_ID", "AKIDVARIABLE"),
        ("AWS_SECRET_ACCESS_KEY", "secret"),
        ("AWS_ENDPOINT_URL", &other.url()),
        ("AWS_ENDPOINT_URL_EC2", &ec2.url()),
    ])
    .await;
    let authorization = ec2.requests()[0].header("authorization").to_owned();
    assert!(authorization.contains("Credential=AKIDVARIABLE/"), "{authorization}");
    assert!(authorization.contains("/eu-central-1/ec2/"), "{authorization}");
}

#[tokio::test]
async fn pod_identity_gives_credentials() {
    let aws = Server::start([Reply::new(200, EMPTY)]).await;
    let agent = Server::start([Reply::new(
        200,
        r#"{"AccessKeyId":"AKIDPOD","SecretAccessKey":"secret","Token":"session","Expiration":"2999-01-01T00:00:00Z"}"#,
    )])
    .await;
    let home = tempfile::tempdir().expect("there is a directory for temporary files");
    let token = home.path().join("token");
    std::fs::write(&token, "of-the-pod").expect("it can be written");
    call_with(&[
        ("AWS_CONTAINER_CREDENTIALS_FULL_URI", &format!("{}/v1/credentials", agent.url())),
        ("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", &token.to_string_lossy()),
        ("AWS_ENDPOINT_URL", &aws.url()),
    ])
    .await;
    assert_eq!(agent.requests()[0].path, "/v1/credentials");
    assert_eq!(agent.requests()[0].header("authorization"), "of-the-pod");
    assert_eq!(aws.requests()[0].header("x-amz-security-token"), "session");
    assert!(aws.requests()[0].header("authorization").contains("Credential=AKIDPOD/"));
}

#[tokio::test]
async fn a_service_account_gives_credentials() {
    let aws = Server::start([Reply::new(200, EMPTY)]).await;
    let sts = Server::start([Reply::new(
        200,
        r"<AssumeRoleWithWebIdentityResponse><AssumeRoleWithWebIdentityResult><Credentials>
            <AccessKeyId>AKIDROLE</AccessKeyId><SecretAccessKey>secret</SecretAccessKey>
            <SessionToken>session</SessionToken><Expiration>2999-01-01T00:00:00Z</Expiration>
        </Credentials></AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>",
    )])
    .await;
    let home = tempfile::tempdir().expect("there is a directory for temporary files");
    let token = home.path().join("token");
    std::fs::write(&token, "of-the-account").expect("it can be written");
    call_with(&[
        ("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/kerf"),
        ("AWS_WEB_IDENTITY_TOKEN_FILE", &token.to_string_lossy()),
        ("AWS_ENDPOINT_URL", &aws.url()),
        ("AWS_ENDPOINT_URL_STS", &sts.url()),
    ])
    .await;
    let asked = sts.requests()[0].body.clone();
    assert!(asked.contains("Action=AssumeRoleWithWebIdentity"), "{asked}");
    assert!(asked.contains("WebIdentityToken=of-the-account"), "{asked}");
    assert!(aws.requests()[0].header("authorization").contains("Credential=AKIDROLE/"));
}
