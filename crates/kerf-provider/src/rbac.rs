//! Rights in Kubernetes, as data. The chart grants what stands in these tables, and the stories on a real control plane run
//! with nothing else.

use std::fmt;

use k8s_openapi::api::rbac::v1::PolicyRule;

/// Verbs on resources of one API group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Empty for the core group.
    pub group: &'static str,
    pub resources: &'static [&'static str],
    pub verbs: &'static [&'static str],
    /// The only objects that it holds for; empty for all of them.
    pub names: &'static [&'static str],
    /// Where it holds.
    pub scope: Scope,
    /// Why no ordinary day shows it at work. `None`: every verb is used on every resource, and a test says so.
    pub rarely: Option<&'static str>,
}

/// Where a rule holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// In a `ClusterRole`.
    Cluster,
    /// In a Role of the operator's own namespace.
    Own,
    /// In a Role of this namespace.
    Namespace(&'static str),
}

impl Rule {
    /// In the whole cluster, for all objects, used every day.
    pub const fn new(
        group: &'static str,
        resources: &'static [&'static str],
        verbs: &'static [&'static str],
    ) -> Self {
        Self { group, resources, verbs, names: &[], scope: Scope::Cluster, rarely: None }
    }

    #[must_use]
    pub const fn rarely(self, why: &'static str) -> Self {
        Self { rarely: Some(why), ..self }
    }

    #[must_use]
    pub const fn only(self, names: &'static [&'static str]) -> Self {
        Self { names, ..self }
    }

    #[must_use]
    pub const fn within(self, scope: Scope) -> Self {
        Self { scope, ..self }
    }

    /// As a Role or `ClusterRole` has it.
    pub fn policy_rule(&self) -> PolicyRule {
        let texts = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect::<Vec<_>>();
        PolicyRule {
            api_groups: Some(vec![self.group.to_owned()]),
            resources: Some(texts(self.resources)),
            resource_names: Some(texts(self.names)).filter(|names| !names.is_empty()),
            verbs: texts(self.verbs),
            ..PolicyRule::default()
        }
    }

    /// Each verb on each resource.
    pub fn grants(&self) -> impl Iterator<Item = Grant> {
        let group = self.group;
        self.resources.iter().flat_map(move |&resource| {
            self.verbs.iter().map(move |&verb| Grant {
                group: group.to_owned(),
                resource: resource.to_owned(),
                verb: verb.to_owned(),
            })
        })
    }
}

/// One verb on one resource, subresources written as `pods/eviction`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Grant {
    pub group: String,
    pub resource: String,
    pub verb: String,
}

impl fmt::Display for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { group, resource, verb } = self;
        if group.is_empty() {
            write!(f, "{verb} {resource}")
        } else {
            write!(f, "{verb} {resource} ({group})")
        }
    }
}
