//! AWS over HTTPS.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use aws_credential_types::Credentials;
use aws_smithy_http_client::Connector;
use aws_smithy_runtime_api::client::http::HttpConnector;
use aws_smithy_types::body::SdkBody;
use http_body_util::BodyExt;
use jiff::Timestamp;
use kerf_aws_wire::{
    Method, Operation, WireRequest, WireResponse, arc_zonal_shift, ec2, eks, iam, pricing, sqs, ssm,
};
use kerf_runtime::{Clock, Fence, Jitter, Metrics, WriteRefused};
use tokio::time::{Instant, sleep, timeout};
use tracing::debug;

use crate::calls::{Aws, for_each_call};
use crate::config::{Config, connector};
use crate::credentials::{CachedCredentials, with_sources};
use crate::endpoints::{Endpoint, Endpoints};
use crate::error::{AwsError, Failure};
use crate::metrics::CallMetrics;
use crate::pacing::{Pacing, Turn};
use crate::retry::{Cause, Quota, longest_wait};
use crate::signing::sign;
use crate::skew::{Skew, may_be_skew};

/// Calls AWS. One is enough for a process: what it knows of limits counts for all who call.
#[derive(Debug)]
pub struct AwsClient {
    connector: Connector,
    credentials: CachedCredentials,
    endpoints: Endpoints,
    clock: Clock,
    max_attempts: u32,
    timeout: Duration,
    pacing: Pacing,
    quota: Mutex<Quota>,
    jitter: Mutex<Jitter>,
    skew: Skew,
    metrics: CallMetrics,
    fence: Option<Fence>,
}

/// A shorter wait is the time that it takes to find out that there is none.
const WORTH_COUNTING: Duration = Duration::from_millis(1);

/// Who calls, as AWS's logs name it.
const USER_AGENT: &str = concat!("kerf/", env!("CARGO_PKG_VERSION"));

impl AwsClient {
    pub fn new(config: Config, clock: Clock, metrics: &Metrics) -> Self {
        Self {
            connector: connector(None),
            credentials: CachedCredentials::new(config.credentials),
            endpoints: config.endpoints,
            clock,
            max_attempts: config.max_attempts.max(1),
            timeout: config.timeout,
            pacing: Pacing::default(),
            quota: Mutex::new(Quota::full()),
            jitter: Mutex::new(Jitter::seeded(config.seed)),
            skew: Skew::default(),
            metrics: CallMetrics::register(metrics),
            fence: None,
        }
    }

    /// Registers the metrics of calls without a client: to document them, with a registry that shows examples.
    pub fn register_metrics(metrics: &Metrics) {
        CallMetrics::register(metrics);
    }

    /// Calls that change something go out only while this process may change something. It is looked at when a call has had its
    /// turn, which may be a minute after it was wished for.
    #[must_use]
    pub fn fenced(self, fence: Fence) -> Self {
        Self { fence: Some(fence), ..self }
    }

    pub fn region(&self) -> &str {
        &self.endpoints.region
    }

    async fn send<O: Operation>(&self, request: &O) -> Result<O::Response, AwsError> {
        let message = WireRequest::encode(request);
        let endpoint = self.endpoints.of(O::SERVICE);
        let begin = Instant::now();
        let mut attempts = 0;
        let mut retried = None;
        let result = loop {
            attempts += 1;
            let turn = self.turn::<O>().await;
            if let Err(refused) = self.may::<O>() {
                break Err(Failure::NotLeading(refused));
            }
            let outcome = self.attempt::<O>(&message, &endpoint, turn).await;
            let next = match outcome {
                Ok(response) => {
                    self.quota().succeeded(retried);
                    break Ok(response);
                }
                Err((failure, _)) if attempts >= self.max_attempts => break Err(failure),
                Err((failure, Remedy::Applied)) => (failure, Duration::ZERO),
                Err((failure, Remedy::None)) => match Cause::of(&failure) {
                    // Only a throttled call is known not to have been carried out.
                    Some(cause)
                        if (cause == Cause::Throttled || request.is_repeatable())
                            && self.quota().pay(cause) =>
                    {
                        retried = Some(cause);
                        (failure, self.jitter().any(longest_wait(attempts)))
                    }
                    _ => break Err(failure),
                },
            };
            let (failure, wait) = next;
            debug!(service = O::SERVICE.id, operation = O::NAME, attempts, ?wait, %failure, "a call of AWS is made again");
            sleep(wait).await;
        };
        let code = result.as_ref().map_or_else(Failure::status, |_| 200);
        self.metrics.called(O::SERVICE.id, O::NAME, code, begin.elapsed(), attempts);
        result.map_err(|failure| AwsError::new::<O>(failure, attempts))
    }

    async fn turn<O: Operation>(&self) -> Turn {
        let begin = Instant::now();
        let turn = self.pacing.turn(O::SERVICE, O::NAME).await;
        let waited = begin.elapsed();
        if waited >= WORTH_COUNTING {
            self.metrics.waited(O::SERVICE.id, O::NAME, waited);
        }
        turn
    }

    fn may<O: Operation>(&self) -> Result<(), WriteRefused> {
        let reads = ["Describe", "Get", "List", "Receive"];
        match &self.fence {
            Some(fence) if !reads.iter().any(|read| O::NAME.starts_with(read)) => fence.check(),
            _ => Ok(()),
        }
    }

    async fn attempt<O: Operation>(
        &self,
        message: &WireRequest,
        endpoint: &Endpoint,
        turn: Turn,
    ) -> Result<O::Response, (Failure, Remedy)> {
        let now = self.skew.correct(self.clock.now());
        let credentials = self.credentials.get(SystemTime::from(now)).await;
        let credentials =
            credentials.map_err(|reason| (Failure::Credentials(reason), Remedy::None))?;
        let request = prepare::<O>(message, endpoint, &credentials, now)
            .map_err(|reason| (Failure::Unsigned(reason), Remedy::None))?;
        let begin = Instant::now();
        let answer = match timeout(self.timeout, self.exchange(request)).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(reason)) => Err(Failure::Unreachable { endpoint: endpoint.url.clone(), reason }),
            Err(_) => Err(Failure::TimedOut { after: self.timeout }),
        };
        let status = answer.as_ref().map_or_else(Failure::status, |answer| answer.status);
        self.metrics.attempted(O::SERVICE.id, O::NAME, status, begin.elapsed());
        let answer = answer.map_err(|failure| (failure, Remedy::None))?;

        let skewed = self.skew.learn(self.clock.now(), answer.header("date"));
        if (200..300).contains(&answer.status) {
            let response = WireResponse::decode::<O>(&answer.body);
            return response.map_err(|error| (Failure::Unreadable(error), Remedy::None));
        }
        let failure = answer.refusal::<O>();
        if Cause::of(&failure) == Some(Cause::Throttled) {
            turn.throttled();
        }
        if skewed && may_be_skew(&failure) {
            return Err((failure, Remedy::Applied));
        }
        if let Failure::Refused { code, .. } = &failure
            && matches!(code.as_str(), "ExpiredToken" | "ExpiredTokenException")
        {
            self.credentials.forget(&credentials).await;
            return Err((failure, Remedy::Applied));
        }
        Err((failure, Remedy::None))
    }

    async fn exchange(&self, request: http::Request<SdkBody>) -> Result<Answer, String> {
        let request = request.try_into().map_err(|error| with_sources(&error))?;
        let response = self.connector.call(request).await.map_err(|error| with_sources(&error))?;
        let response = response.try_into_http1x().map_err(|error| with_sources(&error))?;
        let (parts, body) = response.into_parts();
        let body = body.collect().await.map_err(|error| with_sources(&*error))?.to_bytes();
        Ok(Answer {
            status: parts.status.as_u16(),
            headers: parts.headers,
            body: String::from_utf8_lossy(&body).into_owned(),
        })
    }

    fn quota(&self) -> std::sync::MutexGuard<'_, Quota> {
        self.quota.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn jitter(&self) -> std::sync::MutexGuard<'_, Jitter> {
        self.jitter.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether something was set right after which the call may be made again at once.
enum Remedy {
    Applied,
    None,
}

struct Answer {
    status: u16,
    headers: http::HeaderMap,
    body: String,
}

impl Answer {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    fn refusal<O: Operation>(&self) -> Failure {
        let error = WireResponse::decode_error(O::SERVICE, |name| self.header(name), &self.body);
        Failure::Refused {
            status: self.status,
            code: error.code.or(error.query_code).unwrap_or_default(),
            message: error.message,
            request_id: error.request_id,
        }
    }
}

/// A signed request.
fn prepare<O: Operation>(
    message: &WireRequest,
    endpoint: &Endpoint,
    credentials: &Credentials,
    now: Timestamp,
) -> Result<http::Request<SdkBody>, String> {
    let method = match message.method {
        Method::Get => http::Method::GET,
        Method::Post => http::Method::POST,
    };
    let mut request = http::Request::builder()
        .method(method)
        .uri(format!("{}{}", endpoint.url, message.path))
        .header(http::header::USER_AGENT, USER_AGENT);
    if let Some(content_type) = message.content_type {
        request = request.header(http::header::CONTENT_TYPE, content_type);
    }
    if let Some(target) = &message.target {
        request = request.header("x-amz-target", target);
    }
    let mut request = request.body(message.body.clone()).map_err(|error| with_sources(&error))?;
    let signing_name = O::SERVICE.signing_name;
    sign(&mut request, credentials, signing_name, &endpoint.signing_region, now.into())?;
    Ok(request.map(SdkBody::from))
}

macro_rules! implement {
    ($($method:ident: $request:ty => $response:ty,)*) => {
        #[async_trait]
        impl Aws for AwsClient {
            $(async fn $method(&self, request: &$request) -> Result<$response, AwsError> {
                self.send(request).await
            })*
        }
    };
}

for_each_call!(implement);
