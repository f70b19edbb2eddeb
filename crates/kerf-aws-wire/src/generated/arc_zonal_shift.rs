// Made by `cargo xtask generate` from AWS's service models and shapes.txt; do not edit.

use jiff::Timestamp;

use crate::operation::{Protocol, Service, operations};
use crate::shape::shape;

pub const SERVICE: Service = Service {
    id: "ARC Zonal Shift",
    endpoint_prefix: "arc-zonal-shift",
    signing_name: "arc-zonal-shift",
    version: "2022-10-30",
    protocol: Protocol::RestJson,
};

operations! {
    GetManagedResource["/managedresources/{resourceIdentifier}"]: GetManagedResourceRequest -> GetManagedResourceResponse,
}

shape!(AutoshiftInResource {
    applied_status: Option<String> = "appliedStatus",
    away_from: Option<String> = "awayFrom",
    start_time: Option<Timestamp> = "startTime",
});

shape!(GetManagedResourceRequest {
    resource_identifier: Option<String> = "resourceIdentifier",
});

shape!(GetManagedResourceResponse {
    arn: Option<String> = "arn",
    autoshifts: Vec<AutoshiftInResource> = "autoshifts",
    name: Option<String> = "name",
    zonal_shifts: Vec<ZonalShiftInResource> = "zonalShifts",
});

shape!(ZonalShiftInResource {
    applied_status: Option<String> = "appliedStatus",
    away_from: Option<String> = "awayFrom",
    expiry_time: Option<Timestamp> = "expiryTime",
    resource_identifier: Option<String> = "resourceIdentifier",
    start_time: Option<Timestamp> = "startTime",
    zonal_shift_id: Option<String> = "zonalShiftId",
});
