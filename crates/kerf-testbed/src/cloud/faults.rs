//! What goes wrong in a cloud, by rate or by script, and what the cloud remembers of it.

use crate::faults::When;
use crate::random::Random;
use kerf_model::{InstanceType, Offering};
use kerf_provider::Launched;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// The faults of one cloud. Cloning shares them: a test keeps a handle and changes them as it goes, and they outlive
/// the operator, as a cloud does.
#[derive(Clone, Debug)]
pub struct CloudFaults(Arc<Mutex<State>>);

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CloudFault {
    /// Nothing that the claim allows can be had; see [`CloudFaults::exhaust`] for single offerings.
    InsufficientCapacity,
    /// The launch is refused for some other reason: a quota, say.
    LaunchRefused,
    /// The cloud answers no launches for this long.
    Throttled(Duration),
    /// The operator's account may not launch.
    Unauthorized,
    /// What is launched is the dearest that the cloud has, whatever types the claim asks for.
    LaunchDear,
    /// The answer to a launch comes this much later.
    LaunchSlow(Duration),
    /// The instance is launched, but the caller hears of an error only.
    LaunchAnswerLost,
    /// The instance is launched and paid for, but no node ever comes of it.
    NeverRegisters,
    /// The node appears, but its kubelet never reports.
    NeverReady,
    /// A termination is refused; the instance stays.
    TerminationRefused,
    /// The instance takes this long to go once it was asked to.
    TerminationSlow(Duration),
    /// The cloud cannot be reached for a reboot.
    RebootFailed,
    /// The cloud refuses a reboot for good.
    RebootRejected,
    /// The machine is restarted, but the caller hears of an error only.
    RebootAnswerLost,
    /// The cloud accepts a reboot, and the machine goes on as before; whoever plays it restarts it.
    RebootUndone,
    /// Instances cannot be read or listed.
    ReadRefused,
    /// The instance types cannot be read.
    CatalogueRefused,
    /// The provider cannot start.
    StartRefused,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Call {
    Launch,
    Termination,
    Reboot,
    Read,
    Catalogue,
    Start,
}

impl CloudFault {
    fn strikes(&self) -> Call {
        match self {
            Self::InsufficientCapacity
            | Self::LaunchRefused
            | Self::Throttled(_)
            | Self::Unauthorized
            | Self::LaunchDear
            | Self::LaunchSlow(_)
            | Self::LaunchAnswerLost
            | Self::NeverRegisters
            | Self::NeverReady => Call::Launch,
            Self::TerminationRefused | Self::TerminationSlow(_) => Call::Termination,
            Self::RebootFailed
            | Self::RebootRejected
            | Self::RebootAnswerLost
            | Self::RebootUndone => Call::Reboot,
            Self::ReadRefused => Call::Read,
            Self::CatalogueRefused => Call::Catalogue,
            Self::StartRefused => Call::Start,
        }
    }
}

/// Offerings of a cloud; what is not named matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Offered {
    instance_type: Option<String>,
    zone: Option<String>,
    capacity_type: Option<String>,
}

impl Offered {
    pub fn any() -> Self {
        Self::default()
    }

    pub fn instance_type(self, name: impl Into<String>) -> Self {
        Self { instance_type: Some(name.into()), ..self }
    }

    pub fn zone(self, name: impl Into<String>) -> Self {
        Self { zone: Some(name.into()), ..self }
    }

    pub fn capacity_type(self, name: impl Into<String>) -> Self {
        Self { capacity_type: Some(name.into()), ..self }
    }

    pub(super) fn matches(&self, instance_type: &InstanceType, offering: &Offering) -> bool {
        let fits = |wanted: &Option<String>, actual: Option<&str>| {
            wanted.is_none() || wanted.as_deref() == actual
        };
        fits(&self.instance_type, Some(instance_type.name()))
            && fits(&self.zone, offering.zone())
            && fits(&self.capacity_type, offering.capacity_type())
    }
}

#[derive(Debug)]
pub(super) struct State {
    random: Random,
    rules: Vec<Rule>,
    pub(super) exhausted: BTreeSet<Offered>,
    /// Those of the exhausted that a launch has come upon: they are listed as unavailable.
    pub(super) found_out: BTreeSet<Offered>,
    /// Instances without a node, by provider id.
    pub(super) nodeless: BTreeMap<String, Launched>,
    /// Instances that vanished, by provider id.
    pub(super) vanished: BTreeSet<String>,
    /// Instances that are no longer what the cloud would launch, by provider id, and why.
    pub(super) drifted: BTreeMap<String, String>,
    /// Instances that were asked to go, and when they are gone.
    pub(super) going: BTreeMap<String, Instant>,
}

#[derive(Debug)]
struct Rule {
    fault: CloudFault,
    when: When,
    seen: u64,
}

impl CloudFaults {
    /// Nothing goes wrong until a rule says so. Rates draw from the seed.
    pub fn seeded(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(State {
            random: Random::seeded(seed),
            rules: Vec::new(),
            exhausted: BTreeSet::new(),
            found_out: BTreeSet::new(),
            nodeless: BTreeMap::new(),
            vanished: BTreeSet::new(),
            drifted: BTreeMap::new(),
            going: BTreeMap::new(),
        })))
    }

    /// Of the calls that the fault is for, about this share meets it.
    pub fn at_rate(&self, rate: f64, fault: CloudFault) {
        self.add(fault, When::Rate(rate));
    }

    /// The `nth` call from now on that the fault is for, counted from 1, meets it.
    pub fn on_call(&self, nth: u64, fault: CloudFault) {
        self.add(fault, When::Between(nth, nth));
    }

    /// Each of the next `count` calls that the fault is for meets it.
    pub fn on_next(&self, count: u64, fault: CloudFault) {
        self.add(fault, When::Between(1, count));
    }

    /// The cloud has no more of these. That is found out as in life: they are listed as available until a launch has
    /// tried them. A launch that allows others gets one of those.
    pub fn exhaust(&self, offered: Offered) {
        self.state().exhausted.insert(offered);
    }

    /// There is plenty of everything again.
    pub fn restock(&self) {
        let mut state = self.state();
        state.exhausted.clear();
        state.found_out.clear();
    }

    /// The instance is gone, whoever did that. Its node stays behind; its kubelet is another matter, see
    /// [`crate::actors::Running::kill_node`].
    pub fn vanish(&self, provider_id: impl Into<String>) {
        let mut state = self.state();
        let provider_id = provider_id.into();
        state.nodeless.remove(&provider_id);
        state.vanished.insert(provider_id);
    }

    /// The cloud would launch something else today, for this reason; `None`: it would not.
    pub fn drift(&self, provider_id: impl Into<String>, reason: Option<&str>) {
        let mut state = self.state();
        match reason {
            Some(reason) => state.drifted.insert(provider_id.into(), reason.to_owned()),
            None => state.drifted.remove(&provider_id.into()),
        };
    }

    /// An instance without a node that was launched by somebody else.
    pub fn plant(&self, launched: Launched) {
        self.state().nodeless.insert(launched.provider_id.clone(), launched);
    }

    /// The instances that exist without a node.
    pub fn nodeless(&self) -> Vec<Launched> {
        self.state().nodeless.values().cloned().collect()
    }

    /// No call fails any more. What has happened to instances has happened.
    pub fn clear(&self) {
        self.state().rules.clear();
        self.restock();
    }

    fn add(&self, fault: CloudFault, when: When) {
        self.state().rules.push(Rule { fault, when, seen: 0 });
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The first fault that strikes this call.
    pub(super) fn judge(&self, call: Call) -> Option<CloudFault> {
        let mut state = self.state();
        let State { random, rules, .. } = &mut *state;
        let mut chosen = None;
        // Each rule counts and draws for each call it is for, so that one fault does not shift another.
        for rule in rules.iter_mut().filter(|rule| rule.fault.strikes() == call) {
            rule.seen += 1;
            if rule.when.strikes(rule.seen, random) && chosen.is_none() {
                chosen = Some(rule.fault.clone());
            }
        }
        chosen
    }
}
