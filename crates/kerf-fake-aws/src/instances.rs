//! Instances and their life: pending, running, shutting down, terminated.

mod calls;
mod describe;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kerf_aws_model::catalogue::TypeFacts;
use kerf_aws_model::messages::{Notice, Terminated};
use kerf_aws_wire::ec2;

use crate::chance;
use crate::cloud::{Cloud, Due};
use crate::filters::Tags;
use crate::pools::{Market, PoolKey};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Pending,
    Running,
    ShuttingDown,
    Terminated,
}

impl State {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Running => "running",
            Self::ShuttingDown => "shutting-down",
            Self::Terminated => "terminated",
        }
    }

    fn code(self) -> i32 {
        match self {
            Self::Pending => 0,
            Self::Running => 16,
            Self::ShuttingDown => 32,
            Self::Terminated => 48,
        }
    }

    pub(crate) fn is_alive(self) -> bool {
        matches!(self, Self::Pending | Self::Running)
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Instance {
    pub(crate) id: String,
    pub(crate) facts: Arc<TypeFacts>,
    pub(crate) image: String,
    pub(crate) template: Arc<ec2::RequestLaunchTemplateData>,
    pub(crate) market: Market,
    pub(crate) zone: String,
    pub(crate) subnet: String,
    pub(crate) address: String,
    /// Addresses of the subnet that it has.
    pub(crate) addresses: u32,
    pub(crate) profile_arn: Option<String>,
    pub(crate) reservation: Option<String>,
    pub(crate) spot_request: Option<String>,
    pub(crate) partition: Option<i32>,
    pub(crate) client_token: String,
    pub(crate) tags: Tags,
    pub(crate) launched: Timestamp,
    /// From then on calls know of it.
    pub(crate) visible: Timestamp,
    pub(crate) state: State,
    /// Why, and when it began.
    pub(crate) end: Option<(End, Timestamp)>,
    pub(crate) impaired: Option<(Impairment, Timestamp)>,
    /// What AWS will do to it.
    pub(crate) scheduled: Vec<ec2::InstanceStatusEvent>,
    /// What a screen would show.
    pub(crate) console: String,
}

/// Why an instance ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// By a call of `TerminateInstances`.
    Asked,
    SpotTaken,
    ReservationTaken,
    /// Its capacity block ends.
    BlockEnds,
    /// Somebody did it in the console, or the machine broke.
    Failed,
}

impl End {
    fn reason(self) -> (&'static str, &'static str) {
        match self {
            Self::Asked => ("Client.UserInitiatedShutdown", "User initiated shutdown"),
            Self::SpotTaken => ("Server.SpotInstanceTermination", "Spot instance termination"),
            Self::ReservationTaken | Self::BlockEnds => {
                ("Server.CapacityReservationTermination", "Capacity reservation termination")
            }
            Self::Failed => ("Server.InternalError", "Internal error"),
        }
    }
}

/// From when to when an instance lived. Calls tell it later, and less of it.
#[derive(Clone, Debug)]
pub struct Life {
    pub id: String,
    pub tags: Tags,
    pub launched: Timestamp,
    /// When it began to shut down.
    pub ended: Option<Timestamp>,
}

/// Which check of an instance fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Impairment {
    Instance,
    System,
}

impl Instance {
    pub(crate) fn pool(&self) -> PoolKey {
        PoolKey {
            instance_type: self.facts.name.clone(),
            zone: self.zone.clone(),
            market: self.market,
        }
    }

    pub(crate) fn life(&self) -> Life {
        Life {
            id: self.id.clone(),
            tags: self.tags.clone(),
            launched: self.launched,
            ended: self.end.map(|(_, at)| at),
        }
    }

    /// `ip-10-0-0-4.us-west-2.compute.internal`
    pub(crate) fn dns_name(&self, region: &str) -> String {
        let domain = match region {
            "us-east-1" => "ec2.internal".to_owned(),
            region => format!("{region}.compute.internal"),
        };
        format!("ip-{}.{domain}", self.address.replace('.', "-"))
    }
}

impl Cloud {
    /// Takes in an instance that was launched, and plans its start.
    pub(crate) fn begin(&mut self, instance: Instance) {
        let id = instance.id.clone();
        self.schedule(self.settings.delays.instance_starts, Due::Runs(id.clone()));
        if instance.market == Market::Spot
            && let Some(life) = self.settings.spot_life
        {
            // Spot instances go by chance, as many in their first hour as in their tenth.
            let share = chance::share(self.settings.seed, &["life", &id]);
            let life = life.mul_f64(-(1.0 - share).ln());
            self.schedule(life, Due::WarnsSpot(id.clone()));
        }
        self.notify_state(&id, State::Pending);
        self.instances.insert(id, instance);
        self.changed();
    }

    pub(crate) fn runs(&mut self, id: &str) {
        let Some(instance) = self.instances.get_mut(id) else { return };
        if instance.state == State::Pending {
            instance.state = State::Running;
            self.notify_state(id, State::Running);
            self.changed();
        }
    }

    /// Begins the end of an instance, unless it has begun.
    pub(crate) fn end(&mut self, id: &str, end: End) {
        let now = self.now;
        let Some(instance) = self.instances.get_mut(id) else { return };
        if instance.state.is_alive() {
            instance.state = State::ShuttingDown;
            instance.end = Some((end, now));
            self.schedule(self.settings.delays.instance_ends, Due::Terminated(id.to_owned()));
            self.notify_state(id, State::ShuttingDown);
            self.changed();
        }
    }

    /// What the instance had goes back to where it came from.
    pub(crate) fn terminated(&mut self, id: &str) {
        let Some(instance) = self.instances.get_mut(id) else { return };
        instance.state = State::Terminated;
        let instance = instance.clone();
        if let Some(reservation) = &instance.reservation {
            if let Some(one) = self.reservations.get_mut(reservation) {
                one.available = (one.available + 1).min(one.total);
            }
        } else {
            self.pools.give_back(&instance.pool());
            let facts = &instance.facts;
            self.vcpus.remove(instance.market, &facts.name, facts.vcpus);
        }
        if let Some(subnet) = self.network.subnets.get_mut(&instance.subnet) {
            subnet.free_addresses += instance.addresses;
        }
        self.schedule(self.settings.delays.instance_remembered, Due::Forgotten(id.to_owned()));
        self.notify_state(id, State::Terminated);
        self.changed();
    }

    /// Says that EC2 will take a spot instance, and plans it.
    pub(crate) fn warn_spot(&mut self, id: &str) {
        self.warn(
            id,
            Notice::SpotInterruption { instance: id.to_owned() },
            self.settings.delays.spot_warning,
            End::SpotTaken,
        );
    }

    pub(crate) fn warn(&mut self, id: &str, notice: Notice, ahead: Duration, end: End) {
        if self.instances.get(id).is_some_and(|instance| instance.state.is_alive()) {
            self.notify(notice);
            self.schedule(ahead, Due::Ends(id.to_owned(), end));
        }
    }

    fn notify_state(&mut self, id: &str, state: State) {
        let instance = id.to_owned();
        match state {
            State::Pending | State::Running => self.notify_of_start(id, state.name()),
            State::ShuttingDown => self
                .notify(Notice::InstanceTerminated { instance, state: Terminated::ShuttingDown }),
            State::Terminated => {
                self.notify(Notice::InstanceTerminated { instance, state: Terminated::Terminated });
            }
        }
    }
}
