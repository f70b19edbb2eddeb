//! The account that both sides find.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::Result;
use kerf_aws_client::Aws;
use kerf_aws_model::catalogue::Catalogue;
use kerf_aws_wire::iam::{AddRoleToInstanceProfileRequest, CreateInstanceProfileRequest};
use kerf_fake_aws::{
    Depth, FakeAws, Market, PlacementGroup, PoolSelector, Reservation, ReservationKind, Settings,
    Strategy,
};
use kerf_runtime::Clock;

use crate::case::{CLUSTER, ROLE};

pub(crate) const REGION: &str = "us-west-2";
/// The last version with images of AL2. EKS says it, and not the API server.
const KUBERNETES: &str = "1.32";
pub(crate) const ENDPOINT: &str = "https://cluster.example.com";
pub(crate) const CA_BUNDLE: &str = "Y2VydGlmaWNhdGU=";

/// How the cloud answers.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Pace {
    /// At once, and never that there were too many calls.
    Instant,
    /// With the delays of the real one and its limits of calls.
    Real,
}

/// A new account, always the same.
pub(crate) async fn open(pace: Pace) -> Result<FakeAws> {
    let settings = match pace {
        Pace::Instant => Settings::instant(),
        Pace::Real => Settings::default(),
    };
    let settings = Settings {
        region: REGION.to_owned(),
        cluster: CLUSTER.to_owned(),
        queue: CLUSTER.to_owned(),
        kubernetes_version: KUBERNETES.to_owned(),
        endpoint: ENDPOINT.to_owned(),
        ca_bundle: CA_BUNDLE.to_owned(),
        roles: vec![ROLE.to_owned()],
        ..settings
    };
    let aws = FakeAws::new(settings, Arc::new(Catalogue::built_in()?), Clock::system());
    let tags = |case: &str| BTreeMap::from([("case".to_owned(), case.to_owned())]);
    aws.add_image("custom-x86", "x86_64", tags("custom"));
    aws.add_image("custom-arm", "arm64", tags("custom"));
    aws.add_subnet("us-west-2b", "second-b", 500, tags("subnets"));
    aws.add_subnet("us-west-2b", "third-b", 900, tags("subnets"));
    for (id, instance_type, kind, case) in [
        ("cr-0000000000000001", "m5.xlarge", ReservationKind::Default, "reserved"),
        ("cr-0000000000000002", "p5.48xlarge", ReservationKind::CapacityBlock, "block"),
        ("cr-0000000000000003", "m5.2xlarge", ReservationKind::Interruptible, "interruptible"),
    ] {
        let end = (kind == ReservationKind::CapacityBlock)
            .then(|| "2099-01-01T00:00:00Z".parse())
            .transpose()?;
        let reservation = Reservation::new(id, instance_type, "us-west-2a", 10);
        aws.add_reservation(Reservation { kind, end, tags: tags(case), ..reservation });
    }
    for (id, name, strategy) in [
        ("pg-00000000000000001", "cluster-group", Strategy::Cluster),
        ("pg-00000000000000002", "partition-group", Strategy::Partition { count: 3 }),
        ("pg-00000000000000003", "spread-group", Strategy::Spread),
    ] {
        let (id, name) = (id.to_owned(), name.to_owned());
        aws.add_placement_group(PlacementGroup { id, name, strategy, tags: BTreeMap::new() });
    }
    let own_profile = || Some("own-profile".to_owned());
    let create = CreateInstanceProfileRequest {
        instance_profile_name: own_profile(),
        ..CreateInstanceProfileRequest::default()
    };
    aws.create_instance_profile(&create).await?;
    let add = AddRoleToInstanceProfileRequest {
        instance_profile_name: own_profile(),
        role_name: Some(ROLE.to_owned()),
    };
    aws.add_role_to_instance_profile(&add).await?;
    // Spot has none of these, so that a launch has to come back for another.
    let dry = PoolSelector {
        instance_type: Some("r5.large".to_owned()),
        zone: None,
        market: Some(Market::Spot),
    };
    aws.set_pools(dry, Depth::DRY);
    Ok(aws)
}
