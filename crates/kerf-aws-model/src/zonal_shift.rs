//! Zones that traffic of the cluster is shifted away from.

use std::collections::BTreeSet;

use jiff::Timestamp;
use kerf_aws_wire::arc_zonal_shift::GetManagedResourceResponse;

const APPLIED: &str = "APPLIED";

/// The ids of zones that a shift is applied to now: one that somebody started, until it ends, or one that AWS started.
/// Karpenter looks at the former only.
pub fn shifted_zones(resource: &GetManagedResourceResponse, now: Timestamp) -> BTreeSet<String> {
    let is_applied = |status: &Option<String>| status.as_deref() == Some(APPLIED);
    let by_hand = resource.zonal_shifts.iter().filter(|shift| {
        is_applied(&shift.applied_status) && shift.expiry_time.is_none_or(|end| now < end)
    });
    let by_aws = resource.autoshifts.iter().filter(|shift| is_applied(&shift.applied_status));
    let zones = by_hand.map(|shift| &shift.away_from).chain(by_aws.map(|shift| &shift.away_from));
    zones.flatten().cloned().collect()
}

#[cfg(test)]
mod tests {
    use kerf_aws_wire::arc_zonal_shift::{AutoshiftInResource, ZonalShiftInResource};

    use super::*;

    #[test]
    fn a_zone_is_shifted_while_a_shift_is_applied() {
        let now: Timestamp = "2026-11-16T12:00:00Z".parse().unwrap();
        let text = |text: &str| Some(text.to_owned());
        let shift = |zone: &str, status: &str, end: Option<i64>| ZonalShiftInResource {
            away_from: text(zone),
            applied_status: text(status),
            expiry_time: end.map(|seconds| now + jiff::SignedDuration::from_secs(seconds)),
            ..ZonalShiftInResource::default()
        };
        let resource = GetManagedResourceResponse {
            zonal_shifts: vec![
                shift("az1", "APPLIED", Some(1)),
                shift("az2", "APPLIED", Some(0)),
                shift("az3", "NOT_APPLIED", Some(60)),
                shift("az4", "APPLIED", None),
            ],
            autoshifts: vec![
                AutoshiftInResource {
                    applied_status: text("APPLIED"),
                    away_from: text("az5"),
                    start_time: None,
                },
                AutoshiftInResource {
                    applied_status: text("NOT_APPLIED"),
                    away_from: text("az6"),
                    start_time: None,
                },
            ],
            ..GetManagedResourceResponse::default()
        };
        let zones = shifted_zones(&resource, now);
        assert_eq!(zones.iter().map(String::as_str).collect::<Vec<_>>(), ["az1", "az4", "az5"]);
    }
}
