//! The providers that a story can be played with.

use std::{fmt::Debug, sync::Arc};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kerf_model::InstanceType;
use kerf_provider::{CloudProvider, NodeClassKind, Provider};
use kerf_provider_kwok::{self as kwok, KwokProvider};
use kerf_testbed::Testbed;
use serde_json::Value;

use crate::example_provider as example;

/// Stories are told with KWOK's NodeClass. Played with another provider, it becomes that one's on its way to the API server.
pub trait Cloud: Debug + Send + Sync {
    /// What an operator that is started works with. It may use KWOK's machines or have its own.
    fn connect(&self, kwok: Arc<KwokProvider>) -> Arc<dyn CloudProvider>;

    fn node_class(&self) -> NodeClassKind;

    /// What stories that change the catalogue start from.
    fn instance_types(&self) -> Vec<InstanceType>;

    /// All that the API server is to serve.
    fn crds(&self) -> Vec<CustomResourceDefinition>;

    /// Brings to life what the cloud has in the cluster besides the operator.
    fn begin(&self, _testbed: &Testbed) {}

    /// Makes an object of KWOK, or one that refers to its NodeClass, one of this provider.
    fn translate(&self, object: &mut Value);

    /// Makes an object that was read what a story calls it.
    fn translate_back(&self, _object: &mut Value) {}
}

/// KWOK itself.
#[derive(Clone, Copy, Debug)]
pub struct Kwok;

impl Cloud for Kwok {
    fn connect(&self, kwok: Arc<KwokProvider>) -> Arc<dyn CloudProvider> {
        kwok
    }

    fn node_class(&self) -> NodeClassKind {
        kwok::Kwok.node_classes().remove(0)
    }

    fn instance_types(&self) -> Vec<InstanceType> {
        kwok::generated()
    }

    fn crds(&self) -> Vec<CustomResourceDefinition> {
        kwok::crds()
    }

    fn translate(&self, _object: &mut Value) {}
}

/// The provider of [`example`].
#[derive(Clone, Copy, Debug)]
pub struct Example;

impl Cloud for Example {
    fn connect(&self, kwok: Arc<KwokProvider>) -> Arc<dyn CloudProvider> {
        example::connect(kwok)
    }

    fn node_class(&self) -> NodeClassKind {
        example::node_class()
    }

    fn instance_types(&self) -> Vec<InstanceType> {
        example::instance_types()
    }

    fn crds(&self) -> Vec<CustomResourceDefinition> {
        let mut crds = kwok::crds();
        crds.push(example::crd());
        crds
    }

    fn translate(&self, object: &mut Value) {
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
