//! The ways in which a cloud may fail.

use std::{fmt, time::Duration};

/// Why a cloud did not do what it was asked for. What the operator makes of each when it launches stands in one table, in
/// `kerf-controllers/src/claim/lifecycle/launch_failure.rs`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProviderError {
    /// The instance is gone.
    #[error("nodeclaim not found, {0}")]
    NotFound(String),
    /// None of the wanted offerings can be had now; others may be.
    #[error("insufficient capacity, {message}{}", listed(.unavailable))]
    InsufficientCapacity {
        /// Those that were tried; none if the provider had nothing to try.
        unavailable: Vec<UnavailableOffering>,
        message: String,
    },
    #[error("{kind} {name} does not exist")]
    NodeClassNotFound { kind: String, name: String },
    /// The provider's own settings cannot be used yet.
    #[error("NodeClassRef not ready, {0}")]
    NodeClassNotReady(String),
    /// The launch failed in a way that has a name.
    #[error("creating nodeclaim, {message}")]
    Create { reason: String, message: String },
    /// The cloud answers no calls of this kind for a while, whatever they are about.
    // The time is left out: conditions hold this text, and it would be another one at each look.
    #[error("the cloud limits the rate of calls, {message}")]
    Throttled { retry_after: Duration, message: String },
    /// The action has to be allowed first, by a policy of the cloud.
    #[error("not allowed to call {action}, {message}")]
    Unauthorized { action: String, message: String },
    /// The cloud was not asked, because this process may not change anything now.
    #[error("the call to the cloud was not sent, {0}")]
    NotLeading(String),
    /// The provider cannot restart machines.
    #[error("reboot is not implemented by this cloud provider")]
    RebootNotImplemented,
    /// The machine cannot be restarted, and asking again is of no use.
    #[error("{0}")]
    RebootRejected(String),
    /// Anything else.
    #[error("{0}")]
    Other(String),
}

impl ProviderError {
    /// Nothing that suits can be had, and nothing was tried.
    pub fn insufficient_capacity(message: impl Into<String>) -> Self {
        Self::InsufficientCapacity { unavailable: Vec::new(), message: message.into() }
    }
}

/// An offering that a cloud has not got now.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct UnavailableOffering {
    pub instance_type: String,
    pub zone: String,
    pub capacity_type: String,
    /// The cloud's own word for it.
    pub code: String,
}

impl fmt::Display for UnavailableOffering {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { instance_type, zone, capacity_type, code } = self;
        write!(f, "{instance_type} {capacity_type} in {zone} ({code})")
    }
}

/// A fleet can be refused in hundreds of offerings; an event has room for a few.
const LISTED: usize = 3;

fn listed(unavailable: &[UnavailableOffering]) -> String {
    let shown: Vec<_> = unavailable.iter().take(LISTED).map(ToString::to_string).collect();
    match unavailable.len() {
        0 => String::new(),
        all if all > LISTED => format!(": {} and {} more", shown.join(", "), all - LISTED),
        _ => format!(": {}", shown.join(", ")),
    }
}

impl ProviderError {
    /// There is no NodeClass by this reference.
    pub fn no_node_class(reference: &kerf_api::NodeClassReference) -> Self {
        Self::NodeClassNotFound { kind: reference.kind.clone(), name: reference.name.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_offerings_that_cannot_be_had_are_named() {
        let offering = |zone: &str| UnavailableOffering {
            instance_type: "m5.large".into(),
            zone: zone.into(),
            capacity_type: "spot".into(),
            code: "NoCapacity".into(),
        };
        for (zones, expected) in [
            (&[][..], "insufficient capacity, none left"),
            (&["a"], "insufficient capacity, none left: m5.large spot in a (NoCapacity)"),
            (
                &["a", "b", "c", "d", "e"],
                "insufficient capacity, none left: m5.large spot in a (NoCapacity), m5.large spot in b (NoCapacity), \
                 m5.large spot in c (NoCapacity) and 2 more",
            ),
        ] {
            let unavailable = zones.iter().map(|zone| offering(zone)).collect();
            let error =
                ProviderError::InsufficientCapacity { unavailable, message: "none left".into() };
            assert_eq!(error.to_string(), expected);
        }
    }
}
