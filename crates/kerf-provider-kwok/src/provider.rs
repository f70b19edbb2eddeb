//! The provider as the binary lists it.

use std::sync::Arc;

use kerf_api::{NodeClass, NodePool, crd::Additions, labels::LabelRules};
use kerf_model::{InstanceType, repair::RepairPolicy};
use kerf_provider::{
    BoxError, Catalogue, CloudProvider, Connect, Flag, FlagValues, Launchable, NodeClassKind,
    Provider, UnknownTypes, rbac::Rule,
};

use crate::{
    GROUP, KIND, KwokProvider, REPAIR_POLICIES, from_file, generated, label_rules, node_class,
};

pub static INSTANCE_TYPES_FILE_PATH: Flag = Flag {
    name: "instance-types-file-path",
    env: "INSTANCE_TYPES_FILE_PATH",
    value: "PATH",
    heading: "KWOK (--provider=kwok)",
    help: "Instance types of the KWOK provider, as a JSON file; empty for the built-in ones",
    ..Flag::TEXT
};

/// The KWOK provider before it is connected.
#[derive(Clone, Copy, Debug)]
pub struct Kwok;

impl Provider for Kwok {
    fn name(&self) -> &'static str {
        "kwok"
    }

    fn node_classes(&self) -> Vec<NodeClassKind> {
        vec![node_class::kind()]
    }

    fn saved_fields(&self) -> &'static [&'static str] {
        &["spec.nodeRegistrationDelay", "status.conditions"]
    }

    fn additions(&self) -> Additions<'static> {
        node_class::additions()
    }

    /// Its instances are Nodes.
    fn rules(&self) -> &'static [Rule] {
        const RULES: &[Rule] = &[
            Rule::new(GROUP, &["kwoknodeclasses"], &["list", "watch"]),
            Rule::new(GROUP, &["kwoknodeclasses"], &["get"])
                .rarely("the watch has not brought the KWOKNodeClass of a new NodeClaim"),
            Rule::new("", &["nodes"], &["get", "create"]),
            Rule::new("", &["nodes/status"], &["patch"])
                .rarely("a node is rebooted, with the feature gate NodeRepair"),
        ];
        RULES
    }

    fn flags(&self) -> &'static [&'static Flag] {
        static FLAGS: [&Flag; 1] = [&INSTANCE_TYPES_FILE_PATH];
        &FLAGS
    }

    fn check(&self, flags: &FlagValues) -> Result<(), BoxError> {
        instance_types(flags).map(drop)
    }

    fn catalogue(&self, flags: &FlagValues) -> Result<Box<dyn Catalogue>, BoxError> {
        let types = instance_types(flags)?;
        Ok(Box::new(KwokCatalogue {
            rules: label_rules(&types),
            types: types.into_iter().map(Arc::new).collect(),
            is_given: !flags.get(&INSTANCE_TYPES_FILE_PATH).is_empty(),
        }))
    }

    fn connect(&self, with: Connect<'_>) -> Result<Arc<dyn CloudProvider>, BoxError> {
        Ok(Arc::new(KwokProvider::new(with.client, instance_types(with.flags)?)))
    }
}

fn instance_types(flags: &FlagValues) -> Result<Vec<InstanceType>, BoxError> {
    match flags.get(&INSTANCE_TYPES_FILE_PATH) {
        "" => Ok(generated()),
        path => Ok(from_file(path.as_ref())?),
    }
}

struct KwokCatalogue {
    rules: LabelRules,
    types: Vec<Arc<InstanceType>>,
    /// By a file. Whoever writes one says what there is for every pool, whatever cloud it comes from.
    is_given: bool,
}

impl Catalogue for KwokCatalogue {
    fn label_rules(&self) -> &LabelRules {
        &self.rules
    }

    fn repair_policies(&self) -> Vec<RepairPolicy> {
        REPAIR_POLICIES.to_vec()
    }

    fn instance_types(
        &self,
        pool: &NodePool,
        _class: Option<&NodeClass>,
    ) -> Result<Launchable, UnknownTypes> {
        let class = &pool.spec.template.spec.node_class_ref;
        let is_own = class.group == GROUP && class.kind == KIND;
        if self.is_given || is_own {
            Ok(Launchable { types: self.types.clone(), ..Launchable::default() })
        } else {
            Err(UnknownTypes::OtherProvider)
        }
    }
}
