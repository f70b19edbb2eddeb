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
