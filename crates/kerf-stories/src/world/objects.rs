//! What a story does with the objects of its cluster, as kubectl would.

use std::time::Duration;

use k8s_openapi::api::autoscaling::v1::Scale;
use kerf_api::decode;
use kerf_provider_kwok as kwok;
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams},
    core::{ApiResource, GroupVersionKind},
};
use serde_json::{Value, json};

use super::{Kind, Stage, World};
impl World {
    /// Creates an object; the one that is returned may have another name.
    pub async fn create<K: Kind>(&self, object: K) -> K {
        let value = serde_json::to_value(&object).and_then(|mut value| {
            self.of.translate(&mut value);
            if let Some(scope) = &self.scope {
                scope.rename(&mut value);
            }
            serde_json::from_value(value)
        });
        let value: DynamicObject =
            value.unwrap_or_else(|error| panic!("writing {object:?}: {error}"));
        let created = self.api::<K>(value.namespace()).create(&PostParams::default(), &value).await;
        self.typed(&created.unwrap_or_else(|error| panic!("creating {object:?}: {error}")))
    }

    /// The story's objects of a kind.
    pub async fn list<K: Kind>(&self) -> Vec<K> {
        let api: Api<DynamicObject> = Api::all_with(self.client(), &self.resource::<K>());
        let all = ListParams::default();
        let listed = persistently(|| api.list(&all)).await;
        let listed = listed.unwrap_or_else(|error| panic!("listing: {error}")).items;
        let own = |object: &&DynamicObject| self.scope.as_ref().is_none_or(|it| it.holds(object));
        listed.iter().filter(own).map(|object| self.typed(object)).collect()
    }

    /// The only object of its kind.
    pub async fn only<K: Kind>(&self) -> Result<K, String> {
        let mut all = self.list::<K>().await;
        match (all.pop(), all.len()) {
            (Some(only), 0) => Ok(only),
            (last, others) => {
                Err(format!("{} instead of one", others + usize::from(last.is_some())))
            }
        }
    }

    /// The object as it is now; nothing if it is gone.
    pub async fn get<K: Kind>(&self, object: &K) -> Option<K> {
        let (api, name) = (self.api_of(object), object.name_any());
        let found = persistently(|| api.get_opt(&name)).await;
        let found = found.unwrap_or_else(|error| panic!("reading {name}: {error}"));
        found.as_ref().map(|object| self.typed(object))
    }

    pub async fn delete<K: Kind>(&self, object: &K) {
        let deleted =
            self.api_of(object).delete(&object.name_any(), &DeleteParams::default()).await;
        deleted.unwrap_or_else(|error| panic!("deleting {}: {error}", object.name_any()));
    }

    /// Deletes an object that others may have deleted already.
    pub async fn delete_if_there<K: Kind>(&self, object: &K) {
        let name = object.name_any();
        match self.api_of(object).delete(&name, &DeleteParams::default()).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => {}
            deleted => drop(deleted.unwrap_or_else(|error| panic!("deleting {name}: {error}"))),
        }
    }

    /// Changes an object by a merge patch.
    pub async fn patch<K: Kind>(&self, object: &K, mut patch: Value) -> K {
        self.of.translate(&mut patch);
        let api = self.api_of(object);
        let name = object.name_any();
        let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
        let patched = persistently(|| api.patch(&name, &params, &patch)).await;
        self.typed(&patched.unwrap_or_else(|error| panic!("patching {name}: {error}")))
    }

    pub async fn patch_status<K: Kind>(&self, object: &K, mut patch: Value) -> K {
        self.of.translate(&mut patch);
        let api = self.api_of(object);
        let name = object.name_any();
        let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
        let patched = persistently(|| api.patch_status(&name, &params, &patch)).await;
        self.typed(
            &patched.unwrap_or_else(|error| panic!("patching the status of {name}: {error}")),
        )
    }

    /// Writes something that no type of ours can hold, as a kubelet or a user may: lists are merged where Kubernetes does so.
    pub async fn spoil<K: Kind>(&self, object: &K, subresource: Option<&str>, mut patch: Value) {
        self.of.translate(&mut patch);
        let (api, name) = (self.api_of(object), object.name_any());
        let core = K::group(&()).is_empty();
        let patch = if core { Patch::Strategic(patch) } else { Patch::Merge(patch) };
        let params = PatchParams::default();
        let patched = match subresource {
            Some(subresource) => api.patch_subresource(subresource, &name, &params, &patch).await,
            None => api.patch(&name, &params, &patch).await,
        };
        patched.unwrap_or_else(|error| panic!("patching {name}: {error}"));
    }

    /// Scales an object as `kubectl scale` does; where there is one, with kubectl itself.
    pub async fn scale<K: Kind>(&self, object: &K, replicas: i32) {
        let name = object.name_any();
        let cluster = match &self.stage {
            Stage::Testbed { .. } => {
                let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
                let scaled =
                    self.api_of(object).patch_scale(&name, &PatchParams::default(), &patch).await;
                scaled.unwrap_or_else(|error| panic!("scaling {name}: {error}"));
                return;
            }
            Stage::Real(cluster) => cluster,
            Stage::Shared(shared) => &shared.cluster,
        };
        let (plural, replicas) = (K::plural(&()), format!("--replicas={replicas}"));
        let scaled = cluster.kubectl(&["scale", &plural, &name, &replicas]).await;
        let scaled = scaled.unwrap_or_else(|error| panic!("kubectl: {error}"));
        assert!(scaled.status.success(), "{}", String::from_utf8_lossy(&scaled.stderr));
    }

    pub async fn scale_of<K: Kind>(&self, object: &K) -> Scale {
        let scale = self.api_of(object).get_scale(&object.name_any()).await;
        scale.unwrap_or_else(|error| panic!("reading the scale of {}: {error}", object.name_any()))
    }

    /// What can be read of the object: a story may have spoilt it.
    fn typed<K: Kind>(&self, object: &DynamicObject) -> K {
        let value = serde_json::to_value(object);
        let mut value = value.unwrap_or_else(|error| panic!("reading {object:?}: {error}"));
        self.of.translate_back(&mut value);
        let read = decode::decode(&K::kind(&()), value).object();
        read.unwrap_or_else(|| panic!("reading {object:?}"))
    }

    /// The object as the API server has it, in the words of its cloud: hashes are made of those.
    pub fn served<K: Kind>(&self, object: &K) -> K {
        let value = serde_json::to_value(object).and_then(|mut value| {
            self.of.translate(&mut value);
            serde_json::from_value(value)
        });
        value.unwrap_or_else(|error| panic!("writing {object:?}: {error}"))
    }

    /// KWOK's NodeClass stands for that of any cloud.
    fn resource<K: Kind>(&self) -> ApiResource {
        if K::kind(&()) != kwok::KIND {
            return ApiResource::erase::<K>(&());
        }
        let class = self.of.node_class();
        let gvk = GroupVersionKind::gvk(&class.group, &class.version, &class.kind);
        ApiResource::from_gvk_with_plural(&gvk, &class.plural)
    }

    /// Whether a kind has namespaces is known to its type; here it follows from the object, so that one helper serves all.
    fn api_of<K: Kind>(&self, object: &K) -> Api<DynamicObject> {
        self.api::<K>(object.namespace())
    }

    fn api<K: Kind>(&self, namespace: Option<String>) -> Api<DynamicObject> {
        let resource = self.resource::<K>();
        match namespace {
            Some(namespace) => Api::namespaced_with(self.client(), &namespace, &resource),
            None => Api::all_with(self.client(), &resource),
        }
    }
}

/// Asks again what a server under load did not answer. Only for what may be asked twice.
async fn persistently<T, F>(mut ask: impl FnMut() -> F) -> kube::Result<T>
where
    F: Future<Output = kube::Result<T>>,
{
    let mut tries = 1;
    loop {
        match ask().await {
            Err(error) if is_passing(&error) && tries < 5 => {
                tokio::time::sleep(Duration::from_millis(200 * tries)).await;
                tries += 1;
            }
            answer => return answer,
        }
    }
}

fn is_passing(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(status) => matches!(status.code, 429 | 500 | 503 | 504),
        kube::Error::HyperError(_) | kube::Error::Service(_) => true,
        _ => false,
    }
}
