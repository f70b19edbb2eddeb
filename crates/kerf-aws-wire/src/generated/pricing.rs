// Made by `cargo xtask generate` from AWS's service models and shapes.txt; do not edit.

use crate::operation::{Protocol, Service, operations};
use crate::shape::shape;

pub const SERVICE: Service = Service {
    id: "Pricing",
    endpoint_prefix: "api.pricing",
    signing_name: "pricing",
    version: "2017-10-15",
    protocol: Protocol::Json { version: "1.1", target: "AWSPriceListService" },
};

operations! {
    GetProducts: GetProductsRequest -> GetProductsResponse,
}

shape!(Filter {
    field: Option<String> = "Field",
    r#type: Option<String> = "Type",
    value: Option<String> = "Value",
});

shape!(GetProductsRequest {
    filters: Vec<Filter> = "Filters",
    format_version: Option<String> = "FormatVersion",
    max_results: Option<i32> = "MaxResults",
    next_token: Option<String> = "NextToken",
    service_code: Option<String> = "ServiceCode",
});

shape!(GetProductsResponse {
    format_version: Option<String> = "FormatVersion",
    next_token: Option<String> = "NextToken",
    price_list: Vec<String> = "PriceList",
});
