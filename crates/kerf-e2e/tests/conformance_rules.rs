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

use case::{Case, Kind, base, crds};
use cases::cases;
use kerf_testbed::Testbed;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, PostParams};
use kube::{Api, Client, Error};
use serde_json::{Value, json};

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
            wrong.extend(check(&client, &case).await);
        }
        let (bad, all) = (wrong.len(), cases().len());
        assert!(wrong.is_empty(), "{bad} of {all} cases:\n{}", wrong.join("\n"));
    })
    .unwrap();
}

fn objects(client: &Client, kind: Kind) -> Api<DynamicObject> {
    let (group, version) = kind.group_version();
    let kind = GroupVersionKind::gvk(group, version, kind.name());
    Api::all_with(client.clone(), &ApiResource::from_gvk(&kind))
}

fn parsed(object: &Value) -> DynamicObject {
    serde_json::from_value(object.clone()).unwrap()
}

async fn check(client: &Client, case: &Case) -> Option<String> {
    let wrong = |what: String| Some(format!("{:?}: {what}", case.constraint()));
    if let Err(error) = submit(client, case, &case.good).await {
        return wrong(format!("refused {:?} with {error}", case.good.pointer(&case.at)));
    }
    let status = match submit(client, case, &case.bad).await {
        Ok(()) => return wrong(format!("accepted {:?}", case.bad.pointer(&case.at))),
        Err(Error::Api(status)) => status,
        Err(error) => return wrong(error.to_string()),
    };
    let causes = status.details.map(|details| details.causes).unwrap_or_default();
    let named = causes.iter().any(|c| c.field == case.field() && c.message.contains(&case.message));
    if named {
        return None;
    }
    wrong(format!("refused with {causes:#?} and not {} {:?}", case.field(), case.message))
}

/// Sends an object as a new one, as a new status, or in the place of an old one; nothing is stored.
async fn submit(client: &Client, case: &Case, object: &Value) -> Result<(), Error> {
    let objects = objects(client, case.kind);
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    let mut new = parsed(object);
    if let Some(old) = &case.old {
        let name = format!("old-{}", case.number);
        let mut old = old.clone();
        old["metadata"]["name"] = json!(name);
        if objects.get_opt(&name).await?.is_none() {
            objects.create(&PostParams::default(), &parsed(&old)).await?;
        }
        new.metadata = objects.get(&name).await?.metadata;
        return objects.replace(&name, &dry, &new).await.map(drop);
    }
    if case.at.starts_with("/status") {
        new.metadata = objects.get("base").await?.metadata;
        return objects.replace_status("base", &dry, &new).await.map(drop);
    }
    objects.create(&dry, &new).await.map(drop)
}
