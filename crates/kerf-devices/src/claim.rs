//! ResourceClaims and DeviceClasses: which devices a pod asks for.

use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;

use crate::capacity::Amounts;
use crate::device::{AttributeName, Toleration};

mod from_api;
pub mod pod;
pub mod standing;

pub use from_api::{ClaimDefect, MalformedClaim};

/// What a claim asks for. All of it has to be allocated at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    pub id: ClaimId,
    pub requests: Vec<Request>,
    pub constraints: Vec<Constraint>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClaimId {
    pub namespace: Arc<str>,
    pub name: Arc<str>,
}

impl fmt::Display for ClaimId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    pub name: Arc<str>,
    pub wish: Wish,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wish {
    Exactly(Wanted),
    /// The first of these that can be had, with their names.
    FirstAvailable(Vec<(Arc<str>, Wanted)>),
}

/// Some devices of a class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    pub class: Arc<str>,
    /// CEL expressions, all of which a device has to match beside those of the class.
    pub selectors: Vec<Arc<str>>,
    pub mode: Mode,
    /// To watch devices that others use. It takes nothing away from them.
    pub admin_access: bool,
    pub tolerations: Vec<Toleration>,
    pub capacity: Amounts,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Count(NonZeroU32),
    /// All that match on the node, at least one.
    All,
}

/// Something that the devices of several requests have to have in common, or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Constraint {
    /// Names of requests, or `request/alternative`. None stands for all.
    pub requests: Vec<Arc<str>>,
    pub rule: Rule,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rule {
    MatchAttribute(AttributeName),
    DistinctAttribute(AttributeName),
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MatchAttribute(name) => write!(f, "matchAttribute {name}"),
            Self::DistinctAttribute(name) => write!(f, "distinctAttribute {name}"),
        }
    }
}

impl Constraint {
    pub fn concerns(&self, request: &RequestName) -> bool {
        self.requests.is_empty()
            || self.requests.iter().any(|one| match &request.alternative {
                None => *one == request.request,
                Some(alternative) => {
                    *one == request.request
                        || one.split_once('/') == Some((&request.request, alternative))
                }
            })
    }
}

/// A request, and which of its alternatives if it has some.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequestName {
    pub request: Arc<str>,
    pub alternative: Option<Arc<str>>,
}

impl fmt::Display for RequestName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.alternative {
            None => f.write_str(&self.request),
            Some(alternative) => write!(f, "{}/{alternative}", self.request),
        }
    }
}

/// The selectors of a DeviceClass, all of which a device of the class matches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceClass {
    pub selectors: Vec<Arc<str>>,
    /// The extended resource that stands for devices of this class.
    pub extended_resource: Option<Arc<str>>,
}

pub type DeviceClasses = BTreeMap<Arc<str>, DeviceClass>;
