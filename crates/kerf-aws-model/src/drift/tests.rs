use kerf_model::KnownLabels;
use serde_json::{Value, json};

use super::*;
use crate::{
    instance::State,
    test_launch::{claim, class, instance_type, known_labels},
};

fn now() -> Timestamp {
    "2026-11-16T12:00:00Z".parse().unwrap()
}

fn instance() -> Instance {
    Instance {
        id: "i-1".to_owned(),
        instance_type: "m5.large".to_owned(),
        zone: "us-west-2a".to_owned(),
        zone_id: None,
        image: "ami-x86".to_owned(),
        subnet: Some("subnet-a".to_owned()),
        security_groups: ["sg-1".to_owned(), "sg-2".to_owned()].into(),
        launched_at: Some(now()),
        state: State::Running,
        capacity_type: "on-demand",
        reservation: None,
        tenancy: "default".to_owned(),
        efa_interfaces: 0,
        partition: None,
        tags: BTreeMap::new(),
    }
}

struct Case {
    claim: NodeClaim,
    class: Ec2NodeClass,
    instance: Instance,
    placement_group: Option<&'static str>,
    rollout: Rollout,
    registration_healthy: bool,
}

impl Case {
    fn new() -> Self {
        let mut claim = claim(&json!({}));
        claim.status.get_or_insert_default().image_id = "ami-x86".to_owned();
        Self {
            claim,
            class: class(&json!({})),
            instance: instance(),
            placement_group: None,
            rollout: Rollout::default(),
            registration_healthy: true,
        }
    }

    fn with(change: impl FnOnce(&mut Self)) -> Self {
        let mut case = Self::new();
        change(&mut case);
        case
    }

    fn answer(&self) -> Result<Verdict, Undecided> {
        let labels: KnownLabels = known_labels();
        let images = Images::new(&self.class.status.as_ref().unwrap().amis, &labels);
        let published =
            [("ami-x86".to_owned(), now() - jiff::SignedDuration::from_hours(1))].into();
        let first_seen = FirstSeen::default();
        DriftQuestion {
            claim: &self.claim,
            class: &self.class,
            images: &images,
            instance_type: &instance_type("m5.large", "amd64", json!({}), &[]),
            instance: &self.instance,
            placement_group: self.placement_group,
            rollout: &RolloutState {
                settings: self.rollout,
                published: &published,
                first_seen: &first_seen,
                registration_healthy: self.registration_healthy,
            },
            now: now(),
        }
        .answer()
    }

    fn reason(&self) -> Option<&'static str> {
        self.answer().unwrap().drift.map(|drift| drift.reason())
    }
}

fn hashes(hash: &str, version: &str) -> BTreeMap<String, String> {
    [(annotations::NODE_CLASS_HASH, hash), (annotations::NODE_CLASS_HASH_VERSION, version)]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into()
}

#[test]
fn what_is_as_it_was_has_not_drifted() {
    assert_eq!(Case::new().answer(), Ok(Verdict::default()));
}

#[test]
fn hashes_count_if_they_were_computed_the_same_way() {
    for (of_class, of_claim, expected) in [
        (Some(hashes("1", "v5")), Some(hashes("2", "v5")), Some("NodeClassDrift")),
        (Some(hashes("1", "v5")), Some(hashes("1", "v5")), None),
        (Some(hashes("1", "v5")), Some(hashes("2", "v6")), None),
        (Some(hashes("1", "v5")), None, None),
        (None, Some(hashes("2", "v5")), None),
    ] {
        let case = Case::with(|case| {
            case.class.metadata.annotations = of_class;
            case.claim.metadata.annotations = of_claim;
        });
        assert_eq!(case.reason(), expected);
    }
}

type Change<'a> = &'a dyn Fn(&mut Case);

fn image(case: &mut Case, id: &str) {
    case.claim.status.as_mut().unwrap().image_id = id.to_owned();
}

fn reserve(case: &mut Case, id: &str) {
    let market = crate::launch_template::ReservationMarket::Default;
    case.instance.reservation =
        Some(crate::launch_template::Reservation { id: id.to_owned(), market });
}

fn status(case: &mut Case, key: &str, value: Value) {
    let mut class = serde_json::to_value(&case.class).unwrap();
    class["status"][key] = value;
    case.class = serde_json::from_value(class).unwrap();
}

#[test]
fn each_difference_has_its_reason_and_the_first_is_named() {
    let reservation = json!([{
        "availabilityZone": "a", "id": "cr-1", "instanceMatchCriteria": "open",
        "instanceType": "m5.large", "ownerID": "1",
    }]);
    let group = |case: &mut Case, id: &str| {
        let labels = case.claim.metadata.labels.get_or_insert_default();
        labels.insert(aws_labels::PLACEMENT_GROUP_ID.to_owned(), id.to_owned());
    };
    let groups = |case: &mut Case| case.instance.security_groups = ["sg-1".to_owned()].into();
    let subnet = |case: &mut Case| case.instance.subnet = Some("subnet-z".to_owned());
    let rows: [(Change<'_>, Option<&str>); 14] = [
        (&|case| image(case, "ami-old"), Some("AMIDrift")),
        (&|case| image(case, "ami-arm"), Some("AMIDrift")),
        (&groups, Some("SecurityGroupDrift")),
        (&|case| case.instance.security_groups.clear(), None),
        (&subnet, Some("SubnetDrift")),
        (&|case| case.instance.subnet = None, None),
        (&|case| reserve(case, "cr-1"), Some("CapacityReservationDrift")),
        (
            &|case| {
                reserve(case, "cr-1");
                status(case, "capacityReservations", reservation.clone());
            },
            None,
        ),
        (&|case| group(case, "pg-1"), Some("PlacementGroupDrift")),
        (&|case| case.placement_group = Some("pg-1"), Some("PlacementGroupDrift")),
        (
            &|case| {
                group(case, "pg-1");
                case.placement_group = Some("pg-1");
            },
            None,
        ),
        (&|case| group(case, ""), None),
        (
            &|case| {
                image(case, "ami-old");
                groups(case);
            },
            Some("AMIDrift"),
        ),
        (
            &|case| {
                subnet(case);
                groups(case);
            },
            Some("SecurityGroupDrift"),
        ),
    ];
    for (index, (change, expected)) in rows.into_iter().enumerate() {
        assert_eq!(Case::with(change).reason(), expected, "row {index}");
    }
}

#[test]
fn an_empty_status_is_no_drift() {
    let undecided = |change: &dyn Fn(&mut Case)| Case::with(change).answer().unwrap_err();
    assert_eq!(undecided(&|case| status(case, "amis", json!([]))), Undecided::NoImages);
    assert_eq!(undecided(&|case| image(case, "")), Undecided::NoImageOfClaim);
    let no_groups = |case: &mut Case| status(case, "securityGroups", json!([]));
    assert_eq!(undecided(&no_groups), Undecided::NoSecurityGroups);
    assert_eq!(undecided(&|case| status(case, "subnets", json!([]))), Undecided::NoSubnets);
}

#[test]
fn a_new_image_waits_for_its_turn_and_other_drift_does_not() {
    let soak = Rollout { soak: std::time::Duration::from_hours(24), pace: None };
    let waiting = Case::with(|case| {
        image(case, "ami-old");
        case.rollout = soak;
    });
    let verdict = waiting.answer().unwrap();
    assert_eq!(verdict.drift, None);
    let (drift, held) = verdict.held.unwrap();
    assert_eq!(
        format!("{drift}; {held}"),
        "the AMI is ami-x86, the instance was launched with ami-old; the AMI soaks until 2026-11-17T11:00:00Z"
    );
    let other = Case::with(|case| {
        image(case, "ami-old");
        case.rollout = soak;
        case.instance.subnet = Some("subnet-z".to_owned());
    });
    let verdict = other.answer().unwrap();
    assert_eq!(verdict.drift.map(|drift| drift.reason()), Some("SubnetDrift"));
    assert!(verdict.held.is_some());
}
