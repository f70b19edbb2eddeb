//! Why there is no allocation. Values, not text: a caller that wants text prints them.

use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;

use crate::claim::{ClaimId, Mode, RequestName, Rule};
use crate::device::DeviceId;
use crate::pool::Unusable;
use crate::selector::{Failure, Invalid};
use crate::slice::PoolId;

/// Why claims get no devices on a node.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error(
        "request {request} of claim {claim} asks for the DeviceClass {class}, which does not exist"
    )]
    NoDeviceClass { claim: ClaimId, request: RequestName, class: Arc<str> },
    #[error(
        "{place}, which request {request} of claim {claim} uses, cannot be evaluated: {invalid}"
    )]
    InvalidSelector { claim: ClaimId, request: RequestName, place: SelectorPlace, invalid: Invalid },
    #[error("claim {claim} asks for {devices} devices, and one claim can have {limit}")]
    TooManyDevices { claim: ClaimId, devices: u64, limit: usize },
    #[error("it has {claims} claims, and {limit} are searched for at once")]
    TooManyClaims { claims: usize, limit: usize },
    #[error(
        "request {request} of claim {claim} asks for all devices, and the pool {pool} cannot be used: {why}"
    )]
    AllOfUnusablePool { claim: ClaimId, request: RequestName, pool: PoolId, why: Unusable },
    #[error(
        "{place}, which request {request} of claim {claim} uses, fails for device {device}: {failure}"
    )]
    SelectorFailed {
        claim: ClaimId,
        request: RequestName,
        place: SelectorPlace,
        device: DeviceId,
        failure: Failure,
    },
    #[error(
        "request {request} of claim {claim} asks for all devices, and constraint {constraint} ({rule}) excludes {device}"
    )]
    AllAgainstConstraint {
        claim: ClaimId,
        request: RequestName,
        constraint: usize,
        rule: Rule,
        device: DeviceId,
    },
    /// One shortage per alternative of a request.
    #[error("claim {claim}: {}{}", join(shortages), Others(unusable))]
    TooFewDevices {
        claim: ClaimId,
        shortages: Vec<Shortage>,
        /// Pools that could have more, and are left out.
        unusable: Vec<(PoolId, Unusable)>,
    },
    /// Each request could be served alone.
    #[error(
        "no combination of devices satisfies all requests together: none was found for request {request} of claim {claim} ({steps} tries)"
    )]
    NoCombination { claim: ClaimId, request: RequestName, steps: u64 },
    /// Not proven that there is none.
    #[error("the search for a combination of devices was ended after {steps} tries")]
    SearchEnded { steps: u64 },
}

impl Refusal {
    /// How it is called in output that programs read.
    pub fn name(&self) -> &'static str {
        match self {
            Self::NoDeviceClass { .. } => "NoDeviceClass",
            Self::InvalidSelector { .. } => "InvalidSelector",
            Self::TooManyDevices { .. } => "TooManyDevices",
            Self::TooManyClaims { .. } => "TooManyClaims",
            Self::AllOfUnusablePool { .. } => "AllOfUnusablePool",
            Self::SelectorFailed { .. } => "SelectorFailed",
            Self::AllAgainstConstraint { .. } => "AllAgainstConstraint",
            Self::TooFewDevices { .. } => "TooFewDevices",
            Self::NoCombination { .. } => "NoCombination",
            Self::SearchEnded { .. } => "SearchEnded",
        }
    }

    /// Whether kube-scheduler gives the pod up for this, instead of trying another node. A node that is bought for such a pod
    /// does not help it.
    pub fn ends_scheduling(&self) -> bool {
        !matches!(
            self,
            Self::TooManyClaims { .. }
                | Self::TooFewDevices { .. }
                | Self::NoCombination { .. }
                | Self::SearchEnded { .. }
        )
    }
}

/// Where a selector stands. They are counted from one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SelectorPlace {
    Class { class: Arc<str>, selector: usize },
    Request { selector: usize },
}

impl fmt::Display for SelectorPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Class { class, selector } => {
                write!(f, "selector {selector} of DeviceClass {class}")
            }
            Self::Request { selector } => write!(f, "selector {selector} of the request"),
        }
    }
}

/// A request that a node has not enough devices for, whatever the others get.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shortage {
    pub request: RequestName,
    pub mode: Mode,
    pub tally: Tally,
}

/// What became of the devices of a node in the view of one request. Each is counted once, for the first reason.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub devices: u32,
    pub usable: u32,
    /// By the first selector that a device does not match.
    pub unmatched: Vec<(SelectorPlace, u32)>,
    /// They never had the capacity that is asked for.
    pub too_small: u32,
    pub in_use: u32,
    /// Others have too much of their capacity.
    pub capacity_in_use: u32,
    /// Others have too much of the counters that they share.
    pub counters_in_use: u32,
    pub tainted: u32,
}

impl Tally {
    pub(crate) fn note_unmatched(&mut self, by: &SelectorPlace) {
        match self.unmatched.iter_mut().find(|(place, _)| place == by) {
            Some((_, count)) => *count += 1,
            None => self.unmatched.push((by.clone(), 1)),
        }
    }
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Tally { devices, usable, .. } = &self.tally;
        let needed = match self.mode {
            Mode::Count(count) => count.to_string(),
            Mode::All => "all".to_owned(),
        };
        let is = if self.mode == Mode::Count(NonZeroU32::MIN) { "is" } else { "are" };
        let request = &self.request;
        write!(
            f,
            "request {request} needs {needed}, and {usable} of {devices} devices {is} usable"
        )?;
        let mut reasons: Vec<_> = self
            .tally
            .unmatched
            .iter()
            .map(|(place, count)| format!("{count} not matching {place}"))
            .collect();
        let counts = [
            (self.tally.too_small, "without the capacity"),
            (self.tally.in_use, "in use"),
            (self.tally.capacity_in_use, "with too much of the capacity in use"),
            (self.tally.counters_in_use, "with too much of the shared counters in use"),
            (self.tally.tainted, "tainted"),
        ];
        let counts = counts.iter().filter(|(count, _)| *count > 0);
        reasons.extend(counts.map(|(count, reason)| format!("{count} {reason}")));
        if reasons.is_empty() { Ok(()) } else { write!(f, " ({})", reasons.join(", ")) }
    }
}

fn join(shortages: &[Shortage]) -> String {
    shortages.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

struct Others<'a>(&'a [(PoolId, Unusable)]);

impl fmt::Display for Others<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (pool, why) in self.0 {
            write!(f, "; the pool {pool} cannot be used: {why}")?;
        }
        Ok(())
    }
}
