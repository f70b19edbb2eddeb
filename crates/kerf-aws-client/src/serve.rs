//! A stand-in for AWS behind HTTP.

use kerf_aws_wire::{
    DecodeError, ErrorResponse, Operation, Service, WireRequest, WireResponse, arc_zonal_shift,
    ec2, eks, find_operation, iam, pricing, sqs, ssm,
};

use crate::calls::{Aws, for_each_call};
use crate::error::{AwsError, Failure};

/// Answers a request as the service would whose call it is. A request that is none of our calls is refused.
pub async fn serve(aws: &dyn Aws, request: &WireRequest, request_id: &str) -> WireResponse {
    match find_operation(request) {
        Ok(Some((service, operation))) => {
            dispatch(aws, service, operation, request, request_id).await
        }
        Ok(None) => refuse(&ec2::SERVICE, 400, "InvalidAction", "no such call", request_id),
        Err(error) => malformed(&ec2::SERVICE, &error, request_id),
    }
}

macro_rules! dispatch {
    ($($method:ident: $request:ty => $response:ty,)*) => {
        async fn dispatch(
            aws: &dyn Aws,
            service: &Service,
            operation: &str,
            request: &WireRequest,
            request_id: &str,
        ) -> WireResponse {
            $(if *service == *<$request>::SERVICE && operation == <$request>::NAME {
                return match request.decode::<$request>() {
                    Ok(request) => answer::<$request>(aws.$method(&request).await, request_id),
                    Err(error) => malformed(service, &error, request_id),
                };
            })*
            refuse(service, 400, "InvalidAction", "no such call", request_id)
        }
    };
}

for_each_call!(dispatch);

fn answer<O: Operation>(result: Result<O::Response, AwsError>, request_id: &str) -> WireResponse {
    match result {
        Ok(response) => WireResponse::encode::<O>(&response, request_id),
        Err(AwsError { failure: Failure::Refused { status, code, message, .. }, .. }) => {
            refuse(O::SERVICE, status, &code, &message, request_id)
        }
        Err(error) => refuse(O::SERVICE, 500, "InternalError", &error.to_string(), request_id),
    }
}

fn malformed(service: &Service, error: &DecodeError, request_id: &str) -> WireResponse {
    refuse(service, 400, "SerializationException", &error.to_string(), request_id)
}

fn refuse(
    service: &Service,
    status: u16,
    code: &str,
    message: &str,
    request_id: &str,
) -> WireResponse {
    let error = ErrorResponse {
        code: Some(code.to_owned()),
        query_code: None,
        message: message.to_owned(),
        request_id: Some(request_id.to_owned()),
    };
    WireResponse::encode_error(service, status, &error)
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;
    use kerf_aws_wire::Method;

    use super::*;

    /// Has nothing, and refuses to end an instance.
    #[derive(Debug)]
    struct Empty;

    macro_rules! implement {
        ($($method:ident: $request:ty => $response:ty,)*) => {
            #[async_trait]
            impl Aws for Empty {
                $(async fn $method(&self, _: &$request) -> Result<$response, AwsError> {
                    match stringify!($method) {
                        "terminate_instances" => {
                            Err(AwsError::refused::<$request>(400, "InvalidInstanceID.NotFound", "none"))
                        }
                        _ => Ok(<$response>::default()),
                    }
                })*
            }

            /// Every call as an empty request, and what comes back.
            async fn call_all(mut check: impl FnMut(&str, WireResponse)) {
                $({
                    let mut request = WireRequest::encode(&<$request>::default());
                    // Without a name in its path it would be another path.
                    if request.method == Method::Get {
                        request.path.push_str("name");
                    }
                    let response = serve(&Empty, &request, "id-1").await;
                    if response.status == 200 {
                        assert_eq!(WireResponse::decode::<$request>(&response.body), Ok(<$response>::default()));
                    }
                    check(<$request>::NAME, response);
                })*
            }
        };
    }

    for_each_call!(implement);

    #[tokio::test]
    async fn every_call_reaches_its_method() {
        let mut calls = 0;
        call_all(|name, response| {
            calls += 1;
            let expect = if name == "TerminateInstances" { 400 } else { 200 };
            assert_eq!(response.status, expect, "{name}: {}", response.body);
        })
        .await;
        assert_eq!(calls, 33);
    }

    #[tokio::test]
    async fn what_is_no_call_is_refused() {
        let request = |body: &str| WireRequest {
            method: Method::Post,
            path: "/".to_owned(),
            content_type: None,
            target: None,
            body: body.to_owned(),
        };
        let cases = [
            ("Action=DescribeVpcs&Version=2016-11-15", "InvalidAction"),
            ("Action=DescribeInstances&Version=2016-11-15&MaxResults=x", "SerializationException"),
            ("%", "SerializationException"),
        ];
        for (body, expect) in cases {
            let response = serve(&Empty, &request(body), "id-1").await;
            let error = WireResponse::decode_error(&ec2::SERVICE, |_| None, &response.body);
            assert_eq!((response.status, error.code.as_deref()), (400, Some(expect)), "{body}");
        }
    }
}
