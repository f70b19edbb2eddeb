//! Objects of a scenario on their way to the API server.

use kerf_testbed::Testbed;
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams},
    core::{ApiResource, GroupVersionKind},
};
use serde_json::{Value, json};

use crate::{ledger::text, play::PlayError};

/// Writes for a run under one policy, whose name is part of what is told when something is refused.
#[derive(Clone, Debug)]
pub(crate) struct Writer {
    testbed: Testbed,
    policy: String,
}

impl Writer {
    pub(crate) fn new(testbed: &Testbed, policy: &str) -> Self {
        Self { testbed: testbed.clone(), policy: policy.to_owned() }
    }

    /// Creates an object, or changes it to this.
    pub(crate) async fn apply(&self, object: &Value) -> Result<DynamicObject, PlayError> {
        let parameters = PatchParams::apply("kerf-simulation").force().validation_strict();
        let name = text(object, "/metadata/name");
        let applied = self.api(object).patch(name, &parameters, &Patch::Apply(object)).await;
        applied.map_err(|error| self.refused(&shown(object), &error))
    }

    /// Creates an object together with its status, which the API server takes separately.
    pub(crate) async fn create(&self, object: &Value) -> Result<DynamicObject, PlayError> {
        let refused = |error| self.refused(&shown(object), &error);
        let parsed = serde_json::from_value(object.clone());
        let parsed: DynamicObject =
            parsed.map_err(|error| refused(kube::Error::SerdeError(error)))?;
        let api = self.api(object);
        let created = api.create(&PostParams::default(), &parsed).await.map_err(refused)?;
        let Some(status) = object.get("status") else { return Ok(created) };
        let patch = Patch::Merge(json!({"status": status}));
        let patched = api.patch_status(&created.name_any(), &PatchParams::default(), &patch).await;
        patched.map_err(refused)
    }

    /// Merges a change into an object. `what` is how errors call it.
    pub(crate) async fn change(&self, object: &Value, what: &str) -> Result<(), PlayError> {
        let parameters = PatchParams::default().validation_strict();
        let name = text(object, "/metadata/name");
        let changed = self.api(object).patch(name, &parameters, &Patch::Merge(object)).await;
        changed.map_err(|error| self.refused(what, &error))?;
        Ok(())
    }

    /// Deletes an object. One that is not there any more is no error.
    pub(crate) async fn delete(&self, object: &Value) -> Result<(), PlayError> {
        let name = text(object, "/metadata/name");
        match self.api(object).delete(name, &DeleteParams::default()).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            Err(error) => Err(self.refused(&shown(object), &error)),
        }
    }

    fn api(&self, object: &Value) -> Api<DynamicObject> {
        let api_version = text(object, "/apiVersion");
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let kind = GroupVersionKind::gvk(group, version, text(object, "/kind"));
        let resource = ApiResource::from_gvk(&kind);
        match text(object, "/metadata/namespace") {
            "" => Api::all_with(self.testbed.client(), &resource),
            namespace => Api::namespaced_with(self.testbed.client(), namespace, &resource),
        }
    }

    fn refused(&self, what: &str, error: &kube::Error) -> PlayError {
        let problem = match error {
            kube::Error::Api(status) => status.message.clone(),
            other => other.to_string(),
        };
        PlayError::Refused { what: what.to_owned(), policy: self.policy.clone(), problem }
    }
}

fn shown(object: &Value) -> String {
    format!("{} {}", text(object, "/kind"), text(object, "/metadata/name"))
}
