//! What is known of a provider before it is connected to anything.

use std::{collections::BTreeMap, fmt, sync::Arc};

use kerf_api::{NodeClaim, NodeClass, NodePool, crd::Additions, labels::LabelRules};
use kerf_model::{InstanceType, repair::RepairPolicy};
use kerf_runtime::{Clock, Fence, Metrics};
use kube::Client;

use crate::{BoxError, CloudProvider, NodeClassKind, rbac::Rule};

/// A provider as the binary lists it. This is all that the binary has to know of a cloud.
pub trait Provider: Send + Sync {
    /// The value of `--provider` that chooses it.
    fn name(&self) -> &'static str;

    /// The kinds of its NodeClasses; the first is the default.
    fn node_classes(&self) -> Vec<NodeClassKind>;

    /// The fields of its NodeClasses that are written into snapshots: those that instance types follow from, and none that may
    /// hold a secret.
    fn saved_fields(&self) -> &'static [&'static str];

    /// What it adds to the CRDs.
    fn additions(&self) -> Additions<'static>;

    /// The rights in Kubernetes that it needs beside the operator's own.
    fn rules(&self) -> &'static [Rule];

    /// Its own flags; they stand under a heading of their own in the help.
    fn flags(&self) -> &'static [&'static Flag] {
        &[]
    }

    /// Refuses values of its flags, and what they name, before anything is connected.
    fn check(&self, _flags: &FlagValues) -> Result<(), BoxError> {
        Ok(())
    }

    /// What it knows of its instance types without a cloud, for `kerf plan` and `kerf explain`.
    fn catalogue(&self, flags: &FlagValues) -> Result<Box<dyn Catalogue>, BoxError>;

    /// Registers all metrics that it would have at work: to document them, with a registry that shows examples.
    fn register_metrics(&self, _metrics: &Metrics) {}

    /// The provider at work. Whatever takes a network belongs into [`CloudProvider::start`].
    fn connect(&self, with: Connect<'_>) -> Result<Arc<dyn CloudProvider>, BoxError>;
}

impl fmt::Debug for dyn Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What a provider is given to work with.
pub struct Connect<'a> {
    pub client: Client,
    pub clock: Clock,
    /// Whether the cloud may be changed now: to be checked right before each call that does.
    pub fence: Fence,
    /// Where its own metrics go.
    pub metrics: &'a Metrics,
    /// The certificates by which the API server is known, as PEM and as they are written where they come from.
    pub cluster_ca: Option<Vec<u8>>,
    /// The feature gate `ReservedCapacity`.
    pub reserved_capacity: bool,
    pub flags: &'a FlagValues,
}

impl fmt::Debug for Connect<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connect").field("flags", &self.flags).finish_non_exhaustive()
    }
}

/// Instance types without a cloud.
pub trait Catalogue: Send + Sync {
    fn label_rules(&self) -> &LabelRules;

    /// As the provider at work has them.
    fn repair_policies(&self) -> Vec<RepairPolicy>;

    /// What the pool could launch. The class is missing where the objects do not have it.
    fn instance_types(
        &self,
        pool: &NodePool,
        class: Option<&NodeClass>,
    ) -> Result<Launchable, UnknownTypes>;

    /// How the claim's machine differs from what would be launched with the class as it is among the objects, as far as that
    /// can be told without the cloud. `types` are those of the claim's pool.
    fn drifted(
        &self,
        _claim: &NodeClaim,
        _class: &NodeClass,
        _types: &[Arc<InstanceType>],
    ) -> ForeseenDrift {
        ForeseenDrift::default()
    }
}

/// What can be told of drift without a cloud.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ForeseenDrift {
    pub drift: Option<CloudDrift>,
    /// What cannot be told, in a sentence for the user.
    pub note: Option<String>,
}

/// Why a machine is not what its cloud would launch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CloudDrift {
    /// The reason of the condition `Drifted`.
    pub reason: &'static str,
    pub because: String,
}

/// What a pool could launch.
#[derive(Clone, Debug, Default)]
pub struct Launchable {
    pub types: Vec<Arc<InstanceType>>,
    /// What is assumed about them, in sentences for the user.
    pub notes: Vec<String>,
}

/// Why it is not known what a pool could launch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UnknownTypes {
    /// The NodeClass of the pool is another provider's.
    OtherProvider,
    /// The NodeClass is missing, or cannot be used.
    NodeClass(String),
}

/// A flag of the command line, with its environment variable and default.
#[derive(Debug)]
pub struct Flag {
    pub name: &'static str,
    pub env: &'static str,
    pub default: &'static str,
    pub kind: FlagKind,
    /// What stands for the value in the help.
    pub value: &'static str,
    pub heading: &'static str,
    pub help: &'static str,
    /// Completes "expected ..." when the value is refused.
    pub expected: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlagKind {
    Bool,
    /// An environment variable that is set and empty means the empty text.
    Text,
    /// Numbers and durations: an environment variable that is set and empty counts as unset.
    Number,
}

impl Flag {
    pub const BOOL: Self = Self {
        name: "",
        env: "",
        default: "false",
        kind: FlagKind::Bool,
        value: "true|false",
        heading: "",
        help: "",
        expected: "true or false",
    };
    pub const NUMBER: Self = Self { kind: FlagKind::Number, value: "NUMBER", ..Self::BOOL };
    pub const TEXT: Self = Self {
        kind: FlagKind::Text,
        value: "TEXT",
        default: "",
        expected: "any text",
        ..Self::BOOL
    };
}

/// A provider's flag has a value that it does not understand.
#[derive(Debug, thiserror::Error)]
#[error(
    "invalid value {value:?} for --{name} or {env}: expected {expected}",
    name = flag.name, env = flag.env, expected = flag.expected
)]
pub struct InvalidFlag {
    value: String,
    flag: &'static Flag,
}

/// What a provider's flags were set to, defaults included. Those of kind [`FlagKind::Bool`] are `true` or `false`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FlagValues(BTreeMap<&'static str, String>);

impl FlagValues {
    pub fn new(values: impl IntoIterator<Item = (&'static str, String)>) -> Self {
        Self(values.into_iter().collect())
    }

    /// The value as `read` understands it.
    pub fn read<T>(
        &self,
        flag: &'static Flag,
        read: impl FnOnce(&str) -> Option<T>,
    ) -> Result<T, InvalidFlag> {
        let value = self.get(flag);
        read(value).ok_or_else(|| InvalidFlag { value: value.to_owned(), flag })
    }

    /// Empty where the flag is not set, which is as much as the empty text.
    pub fn get(&self, flag: &Flag) -> &str {
        self.0.get(flag.name).map_or(flag.default, String::as_str)
    }
}
