//! Every constraint of our resources, enforced by the testbed as the API server enforces it.
#![allow(clippy::unwrap_used, reason = "tests")]

#[path = "api_rules/case.rs"]
mod case;
#[path = "api_rules/cases.rs"]
mod cases;
#[path = "api_rules/constraints.rs"]
#[allow(dead_code, reason = "that all constraints have a case is checked with the real API server")]
mod constraints;
#[path = "api_rules/ec2_node_class.rs"]
mod ec2_node_class;
#[path = "api_rules/ec2_node_class_parts.rs"]
mod ec2_node_class_parts;
#[path = "api_rules/node_overlay.rs"]
mod node_overlay;
#[path = "api_rules/submission.rs"]
mod submission;

use case::{Kind, base, crds};
use cases::cases;
use kerf_testbed::Testbed;
use kube::api::PostParams;
use submission::{objects, parsed, wrong_answer};

#[test]
fn the_testbed_enforces_every_constraint() {
    Testbed::in_virtual_time(async {
        let testbed = Testbed::builder().with_crds(crds()).start().unwrap();
        let client = testbed.client();
        for kind in Kind::ALL {
            let object = parsed(&kind.object("base", &base(kind)));
            objects(&client, kind).create(&PostParams::default(), &object).await.unwrap();
        }
        let mut wrong = Vec::new();
        for case in cases() {
            wrong.extend(wrong_answer(&client, &case).await);
        }
        let (bad, all) = (wrong.len(), cases().len());
        assert!(wrong.is_empty(), "{bad} of {all} cases:\n{}", wrong.join("\n"));
    })
    .unwrap();
}
