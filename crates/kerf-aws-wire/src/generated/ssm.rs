// Made by `cargo xtask generate` from AWS's service models and shapes.txt; do not edit.

use jiff::Timestamp;

use crate::operation::{Protocol, Service, operations};
use crate::shape::shape;

pub const SERVICE: Service = Service {
    id: "SSM",
    endpoint_prefix: "ssm",
    signing_name: "ssm",
    version: "2014-11-06",
    protocol: Protocol::Json { version: "1.1", target: "AmazonSSM" },
};

operations! {
    GetParameter: GetParameterRequest -> GetParameterResponse,
}

shape!(GetParameterRequest {
    name: Option<String> = "Name",
    with_decryption: Option<bool> = "WithDecryption",
});

shape!(GetParameterResponse {
    parameter: Option<Parameter> = "Parameter",
});

shape!(Parameter {
    arn: Option<String> = "ARN",
    last_modified_date: Option<Timestamp> = "LastModifiedDate",
    name: Option<String> = "Name",
    r#type: Option<String> = "Type",
    value: Option<String> = "Value",
    version: Option<i64> = "Version",
});
