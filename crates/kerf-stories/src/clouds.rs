//! The providers that a story can be played with.

use std::sync::Arc;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kerf_model::InstanceType;
use kerf_provider::CloudProvider;
use kerf_provider_kwok::{self as kwok, KwokProvider};
use kube::{
    Resource,
    core::{ApiResource, GroupVersionKind},
};
use serde_json::Value;

use crate::example_provider as example;

/// Stories are told with KWOK's NodeClass. Played with another provider, it becomes that one's on its way to the API server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cloud {
    #[default]
    Kwok,
    Example,
}

impl Cloud {
    pub(crate) fn provider(self) -> fn(Arc<KwokProvider>) -> Arc<dyn CloudProvider> {
        match self {
            Self::Kwok => |kwok| kwok,
            Self::Example => example::connect,
        }
    }

    pub(crate) fn instance_types(self) -> Vec<InstanceType> {
        match self {
            Self::Kwok => kwok::generated(),
            Self::Example => example::instance_types(),
        }
    }

    /// Those that are not served anyway.
    pub(crate) fn crds(self) -> Vec<CustomResourceDefinition> {
        match self {
            Self::Kwok => Vec::new(),
            Self::Example => vec![example::crd()],
        }
    }

    pub(crate) fn resource<K: Resource<DynamicType = ()>>(self) -> ApiResource {
        if self == Self::Example && K::kind(&()) == kwok::KIND {
            let gvk = GroupVersionKind::gvk(example::GROUP, example::VERSION, example::KIND);
            return ApiResource::from_gvk_with_plural(&gvk, example::PLURAL);
        }
        ApiResource::erase::<K>(&())
    }

    /// Makes an object of KWOK, or one that refers to its NodeClass, one of this provider.
    pub(crate) fn translate(self, object: &mut Value) {
        if self == Self::Kwok {
            return;
        }
        if object["kind"] == kwok::KIND {
            object["apiVersion"] = format!("{}/{}", example::GROUP, example::VERSION).into();
            object["kind"] = example::KIND.into();
        }
        for pointer in ["/spec/template/spec/nodeClassRef", "/spec/nodeClassRef"] {
            if let Some(reference) = object.pointer_mut(pointer)
                && reference["group"] == kwok::GROUP
            {
                reference["group"] = example::GROUP.into();
                reference["kind"] = example::KIND.into();
            }
        }
        let labels = object.pointer_mut("/metadata/labels").and_then(Value::as_object_mut);
        if let Some(labels) = labels
            && let Some(name) = labels.remove(kwok::labels::NODE_CLASS)
        {
            let label = kerf_api::labels::node_class(example::GROUP, example::KIND);
            labels.insert(label, name);
        }
    }
}
