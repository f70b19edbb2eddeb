//! Holding a case against an API server, the real one or the testbed's.

use kube::{
    Api, Client, Error,
    api::{ApiResource, DynamicObject, GroupVersionKind, PostParams},
};
use serde_json::{Value, json};

use crate::case::{Case, Kind};

pub(crate) fn objects(client: &Client, kind: Kind) -> Api<DynamicObject> {
    let (group, version) = kind.group_version();
    let kind = GroupVersionKind::gvk(group, version, kind.name());
    Api::all_with(client.clone(), &ApiResource::from_gvk(&kind))
}

pub(crate) fn parsed(object: &Value) -> DynamicObject {
    serde_json::from_value(object.clone()).unwrap()
}

/// What is wrong with the answers to a case, if anything. Objects of the name `base` have to be there.
pub(crate) async fn wrong_answer(client: &Client, case: &Case) -> Option<String> {
    let shown = |object: &Value| object.pointer(&case.at).cloned().unwrap_or_default();
    let wrong = |what: String| Some(format!("{:?}: {what}", case.constraint()));
    if let Err(error) = submit(client, case, &case.good).await {
        return wrong(format!("refused {} with {error}", shown(&case.good)));
    }
    let status = match submit(client, case, &case.bad).await {
        Ok(()) => return wrong(format!("accepted {}", shown(&case.bad))),
        Err(Error::Api(status)) => status,
        Err(error) => return wrong(error.to_string()),
    };
    let (field, message) = (case.field(), &case.message);
    let causes = status.details.map(|details| details.causes).unwrap_or_default();
    if causes.iter().any(|cause| cause.field == field && cause.message.contains(message)) {
        return None;
    }
    wrong(format!("refused {} with {causes:#?} and not {field} {message:?}", shown(&case.bad)))
}

/// Sends the object without having it stored: as a new one, as a new status, or as a change of an old one.
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
