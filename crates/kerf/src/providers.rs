//! The clouds that this binary knows. One more is one more line here.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kerf_provider::{BoxError, Catalogue, Flag, FlagValues, NodeClassKind, Provider};
use kube::api::{ApiResource, GroupVersionKind};

/// The first is the default.
static ALL: [&dyn Provider; COUNT] = [
    &kerf_provider_kwok::Kwok,
    #[cfg(feature = "aws")]
    &kerf_provider_aws::Aws,
];
const COUNT: usize = if cfg!(feature = "aws") { 2 } else { 1 };

pub(crate) const DEFAULT: &str = "kwok";

/// All of them.
#[cfg(any(feature = "simulate", all(test, feature = "aws")))]
pub(crate) fn all() -> [&'static dyn Provider; COUNT] {
    ALL
}

pub(crate) fn named(name: &str) -> Option<&'static dyn Provider> {
    ALL.into_iter().find(|provider| provider.name() == name)
}

/// The names of all, in a sentence.
pub(crate) fn names() -> String {
    ALL.map(Provider::name).join(" or ")
}

/// The flags of all of them: which one is chosen is known only when the command line has been read.
pub(crate) fn flags() -> impl Iterator<Item = &'static Flag> {
    ALL.into_iter().flat_map(|provider| provider.flags().iter().copied())
}

/// The provider whose NodeClasses are of this kind.
pub(crate) fn of_node_class(group: &str, kind: &str) -> Option<&'static dyn Provider> {
    let is_own = |class: &NodeClassKind| class.group == group && class.kind == kind;
    ALL.into_iter().find(|provider| provider.node_classes().iter().any(is_own))
}

/// A kind of NodeClass, and which of its fields may be written into a snapshot.
pub(crate) fn node_class(
    group: &str,
    kind: &str,
) -> Option<(ApiResource, &'static [&'static str])> {
    let provider = of_node_class(group, kind)?;
    let class = provider.node_classes().into_iter().find(|class| class.kind == kind)?;
    Some((resource(&class), provider.saved_fields()))
}

/// The same of all kinds.
#[cfg(feature = "simulate")]
pub(crate) fn node_classes() -> Vec<(ApiResource, &'static [&'static str])> {
    let of_provider = |provider: &&'static dyn Provider| {
        let fields = provider.saved_fields();
        provider.node_classes().into_iter().map(move |class| (resource(&class), fields))
    };
    ALL.iter().flat_map(of_provider).collect()
}

fn resource(class: &NodeClassKind) -> ApiResource {
    let of_version = GroupVersionKind::gvk(&class.group, &class.version, &class.kind);
    ApiResource::from_gvk_with_plural(&of_version, &class.plural)
}

/// The CRDs with those of all of them.
pub(crate) fn crds() -> Vec<CustomResourceDefinition> {
    kerf_api::crd::crds(&ALL.map(Provider::additions))
}

/// A provider and what its flags were set to.
#[derive(Clone, Debug)]
pub(crate) struct Chosen {
    pub(crate) provider: &'static dyn Provider,
    pub(crate) flags: FlagValues,
}

impl Chosen {
    pub(crate) fn catalogue(&self) -> Result<Box<dyn Catalogue>, BoxError> {
        self.provider.catalogue(&self.flags)
    }
}

impl PartialEq for Chosen {
    fn eq(&self, other: &Self) -> bool {
        (self.provider.name(), &self.flags) == (other.provider.name(), &other.flags)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kerf_model::repair::RepairRules;

    /// Otherwise no operator would start with the gate `NodeRepair`.
    #[test]
    fn the_repair_policies_of_all_can_be_used() {
        for provider in ALL {
            let catalogue = provider.catalogue(&FlagValues::default()).unwrap();
            let rules = RepairRules::new(&catalogue.repair_policies(), 20);
            assert!(rules.is_ok(), "{}: {rules:?}", provider.name());
        }
    }

    #[test]
    fn the_default_is_the_first_and_names_are_their_own() {
        assert_eq!(ALL[0].name(), DEFAULT);
        for provider in ALL {
            assert_eq!(named(provider.name()).map(Provider::name), Some(provider.name()));
            assert!(!provider.node_classes().is_empty(), "{}", provider.name());
            let headings = provider.flags().iter().map(|flag| flag.heading);
            let own = format!("(--provider={})", provider.name());
            assert!(headings.into_iter().all(|heading| heading.ends_with(&own)), "{own}");
        }
    }
}
