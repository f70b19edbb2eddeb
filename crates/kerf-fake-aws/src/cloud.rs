//! All that the stand-in knows, and what is about to happen in it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kerf_aws_model::catalogue::Catalogue;
use kerf_aws_model::messages::Notice;
use kerf_aws_wire::Operation;

use crate::faults::Faults;
use crate::fleet::Made;
use crate::images::Images;
use crate::instances::{End, Instance};
use crate::network::Network;
use crate::pools::{Pools, VcpusInUse};
use crate::prices::SpotPrices;
use crate::profiles::Profiles;
use crate::queue::Queue;
use crate::refused::Refused;
use crate::requests::Requests;
use crate::reservations::{PlacementGroup, Reservation};
use crate::settings::Settings;
use crate::templates::Templates;

/// A call that the stand-in can answer.
pub(crate) trait Answer: Operation + Clone + Send + Sync + 'static {
    fn is_dry_run(&self) -> bool {
        false
    }

    /// What is wrong with the request, whether it is a dry run or not.
    fn check(&self, _: &Cloud) -> Result<(), Refused> {
        Ok(())
    }

    fn answer(&self, cloud: &mut Cloud) -> Result<Self::Response, Refused>;

    /// How long an empty answer is held back.
    fn patience(&self) -> Duration {
        Duration::ZERO
    }

    fn is_empty(_: &Self::Response) -> bool {
        false
    }
}

#[derive(Debug)]
pub(crate) struct Cloud {
    pub(crate) settings: Settings,
    pub(crate) now: Timestamp,
    pub(crate) catalogue: Arc<Catalogue>,
    pub(crate) network: Network,
    pub(crate) images: Images,
    pub(crate) profiles: Profiles,
    pub(crate) templates: Templates,
    pub(crate) reservations: BTreeMap<String, Reservation>,
    pub(crate) placement_groups: Vec<PlacementGroup>,
    pub(crate) spot_prices: SpotPrices,
    pub(crate) pools: Pools,
    pub(crate) vcpus: VcpusInUse,
    pub(crate) instances: BTreeMap<String, Instance>,
    pub(crate) instances_made: u64,
    /// By the token of their caller.
    pub(crate) fleets: BTreeMap<String, Made>,
    pub(crate) fleets_made: u64,
    pub(crate) queue: Queue,
    /// Ids of zones.
    pub(crate) shifted_zones: BTreeSet<String>,
    pub(crate) faults: Faults,
    pub(crate) requests: Requests,
    agenda: BTreeMap<(Timestamp, u64), Due>,
    scheduled: u64,
    /// Grows with everything that someone may wait for.
    version: u64,
}

/// What happens by itself when its time has come.
#[derive(Clone, Debug)]
pub(crate) enum Due {
    Runs(String),
    WarnsSpot(String),
    Ends(String, End),
    Terminated(String),
    Forgotten(String),
    /// Instances of a plain reservation go on without it.
    ReservationEnds(String),
    /// Instances of a capacity block end before it does.
    BlockEnds(String),
}

impl Cloud {
    pub(crate) fn new(settings: Settings, catalogue: Arc<Catalogue>, now: Timestamp) -> Self {
        let zones = catalogue.zones(&settings.region);
        let zones = zones.map(|zones| zones.names(&settings.region)).unwrap_or_default();
        let mut profiles = Profiles::default();
        profiles.roles.extend(settings.roles.iter().cloned());
        Self {
            network: Network::new(&settings, &zones),
            images: Images::new(&settings, now),
            profiles,
            templates: Templates::default(),
            reservations: BTreeMap::new(),
            placement_groups: Vec::new(),
            spot_prices: SpotPrices::default(),
            pools: Pools::default(),
            vcpus: VcpusInUse::default(),
            instances: BTreeMap::new(),
            instances_made: 0,
            fleets: BTreeMap::new(),
            fleets_made: 0,
            queue: Queue::default(),
            shifted_zones: BTreeSet::new(),
            faults: Faults::default(),
            requests: Requests::default(),
            agenda: BTreeMap::new(),
            scheduled: 0,
            version: 0,
            settings,
            now,
            catalogue,
        }
    }

    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    pub(crate) fn changed(&mut self) {
        self.version += 1;
    }

    pub(crate) fn after(&self, delay: Duration) -> Timestamp {
        let delay = SignedDuration::try_from(delay).unwrap_or(SignedDuration::MAX);
        self.now.checked_add(delay).unwrap_or(Timestamp::MAX)
    }

    pub(crate) fn schedule(&mut self, delay: Duration, due: Due) {
        self.schedule_at(self.after(delay), due);
    }

    pub(crate) fn schedule_at(&mut self, at: Timestamp, due: Due) {
        self.scheduled += 1;
        self.agenda.insert((at, self.scheduled), due);
        self.changed();
    }

    /// When something happens by itself next.
    pub(crate) fn next_due(&self) -> Option<Timestamp> {
        self.agenda.keys().next().map(|(at, _)| *at)
    }

    /// Lets everything happen that is due, each at its own time.
    pub(crate) fn advance(&mut self, now: Timestamp) {
        while let Some(entry) = self.agenda.first_entry()
            && entry.key().0 <= now
        {
            let ((at, _), due) = entry.remove_entry();
            self.now = self.now.max(at);
            self.happen(due);
        }
        // A clock that was set back does not undo anything.
        self.now = self.now.max(now);
    }

    fn happen(&mut self, due: Due) {
        match due {
            Due::Runs(id) => self.runs(&id),
            Due::WarnsSpot(id) => self.warn_spot(&id),
            Due::Ends(id, end) => self.end(&id, end),
            Due::Terminated(id) => self.terminated(&id),
            Due::Forgotten(id) => {
                self.instances.remove(&id);
            }
            Due::ReservationEnds(id) => {
                for instance in self.instances.values_mut() {
                    if instance.reservation.as_ref() == Some(&id) {
                        instance.reservation = None;
                        let facts = &instance.facts;
                        self.vcpus.add(instance.market, &facts.name, facts.vcpus);
                    }
                }
            }
            Due::BlockEnds(id) => {
                let inside = self.instances.values();
                let inside = inside.filter(|one| one.reservation.as_ref() == Some(&id));
                let ids: Vec<_> = inside.map(|one| one.id.clone()).collect();
                for id in ids {
                    self.end(&id, End::BlockEnds);
                }
            }
        }
    }

    pub(crate) fn zones_offering(&self, instance_type: &str) -> Vec<String> {
        let region = &self.settings.region;
        let zones = self.catalogue.zones(region);
        zones.map(|zones| zones.offering(region, instance_type)).unwrap_or_default()
    }

    /// Whether any zone of the region has the type.
    pub(crate) fn offers(&self, instance_type: &str) -> bool {
        self.catalogue.get(instance_type).is_some()
            && !self.zones_offering(instance_type).is_empty()
    }

    /// Puts a message on the queue, as `EventBridge` does.
    pub(crate) fn notify(&mut self, notice: Notice) {
        if let Some(body) = self.message(notice) {
            self.send(body);
        }
    }

    /// Rules of `EventBridge` let all changes of state through, so that those lie on the queue too that call for nothing.
    pub(crate) fn notify_of_start(&mut self, instance: &str, state: &str) {
        use kerf_aws_model::messages::Terminated;
        let notice = Notice::InstanceTerminated {
            instance: instance.to_owned(),
            state: Terminated::Terminated,
        };
        let Some(body) = self.message(notice) else { return };
        if let Ok(mut body) = serde_json::from_str::<serde_json::Value>(&body) {
            body["detail"]["state"] = state.into();
            self.send(body.to_string());
        }
    }

    fn message(&self, notice: Notice) -> Option<String> {
        let message = kerf_aws_model::messages::Message { time: Some(self.now), notice };
        let settings = &self.settings;
        let id = format!("event-{}", self.version);
        message.write(&settings.account, &settings.region, &id)
    }

    pub(crate) fn send(&mut self, body: String) {
        if !self.settings.queue.is_empty() {
            self.queue.send(body, self.now);
            self.changed();
        }
    }
}
