//! What EC2 offers now, and the instance types that follow from it for each class.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use jiff::{SignedDuration, Timestamp};
use kerf_api::{NodeClass, labels};
use kerf_aws_api::{Ec2NodeClass, KIND};
use kerf_aws_client::AwsError;
use kerf_aws_model::{
    catalogue::{Region, TypeFacts},
    class_types::TypesOfClasses,
    instance_types::{ClassShape, DiscoveredMemory, PlacementGroup, Settings},
    offerings,
    prices::Prices,
    reservations::ReservationCounts,
    subnets::FreeAddresses,
    unavailable::Unavailable,
};
use kerf_model::{InstanceType, Price};
use kerf_provider::{InstanceTypes, ProviderError};
use kerf_runtime::Clock;
use tokio::{
    sync::{Notify, watch},
    time::sleep,
};
use tokio_util::sync::CancellationToken;

use crate::market::{self, NotRead, OnDemand, Spot};

/// The market, shared by planning, launching and the controllers that keep it up to date.
pub(crate) struct Offers {
    clock: Clock,
    settings: Settings,
    market: Mutex<Market>,
    changes: watch::Sender<u64>,
    /// Something was marked, and comes back at some time.
    marked: Notify,
}

/// What is known of EC2 and changes.
pub(crate) struct Market {
    pub(crate) region: Arc<Region>,
    pub(crate) prices: Prices,
    pub(crate) unavailable: Unavailable,
    pub(crate) reservations: ReservationCounts,
    pub(crate) addresses: FreeAddresses,
    /// Ids of zones that traffic is shifted away from.
    pub(crate) shifted_zones: BTreeSet<String>,
    pub(crate) overlay_prices: BTreeMap<String, Price>,
    /// By the name of the class.
    pub(crate) placement_groups: BTreeMap<String, PlacementGroup>,
    /// When images were published, by id.
    pub(crate) published: BTreeMap<String, Timestamp>,
    read_at: ReadAt,
    classes: BTreeMap<String, Known>,
    types: TypesOfClasses,
}

/// When AWS was last asked, as far as it was.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ReadAt {
    pub(crate) types: Option<Timestamp>,
    pub(crate) on_demand: Option<Timestamp>,
    pub(crate) spot: Option<Timestamp>,
}

/// A class as it was last seen.
struct Known {
    /// UID and resource version.
    version: (Option<String>, Option<String>),
    class: Arc<Ec2NodeClass>,
    placement: Option<PlacementGroup>,
}

/// A class and what can be launched with it.
#[derive(Clone)]
pub(crate) struct OfClass {
    pub(crate) class: Arc<Ec2NodeClass>,
    pub(crate) types: InstanceTypes,
    pub(crate) placement: Option<PlacementGroup>,
}

impl OfClass {
    /// As the subnets of the class say it.
    pub(crate) fn zone_id(&self, zone: &str) -> Option<&str> {
        let subnets = self.class.status.iter().flat_map(|status| &status.subnets);
        subnets.filter(|subnet| subnet.zone == zone).find_map(|subnet| subnet.zone_id.as_deref())
    }

    pub(crate) fn instance_type(&self, name: &str) -> Option<&Arc<InstanceType>> {
        // Sorted by name, as the region is.
        let at = self.types.binary_search_by(|one| one.name().cmp(name)).ok()?;
        self.types.get(at)
    }
}

impl Offers {
    pub(crate) fn new(clock: Clock, settings: Settings, region: Region, prices: Prices) -> Self {
        let mut region = region;
        region.types.sort_by(|one, other| one.facts.name.cmp(&other.facts.name));
        let market = Market {
            region: Arc::new(region),
            prices,
            unavailable: Unavailable::default(),
            reservations: ReservationCounts::default(),
            addresses: FreeAddresses::default(),
            shifted_zones: BTreeSet::new(),
            overlay_prices: BTreeMap::new(),
            placement_groups: BTreeMap::new(),
            published: BTreeMap::new(),
            read_at: ReadAt::default(),
            classes: BTreeMap::new(),
            types: TypesOfClasses::default(),
        };
        Self {
            clock,
            settings,
            market: Mutex::new(market),
            changes: watch::Sender::new(0),
            marked: Notify::new(),
        }
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// The class with its types: the same list while nothing changed, whoever asks.
    pub(crate) fn of(&self, class: &NodeClass) -> Result<OfClass, ProviderError> {
        let now = self.clock.now();
        let mut market = self.market();
        let market = &mut *market;
        market.learn(class)?;
        // Versions tell of what is over only after this.
        market.unavailable.expire(now);
        let name = &class.reference.name;
        let offered = offerings::Market {
            prices: &market.prices,
            unavailable: &market.unavailable,
            reservations: &market.reservations,
            addresses: &market.addresses,
            shifted_zones: &market.shifted_zones,
            overlay_prices: &market.overlay_prices,
            now,
        };
        let types = market.types.refresh(name, &market.region, &self.settings, offered);
        let (Some(known), Some(types)) = (market.classes.get(name), types) else {
            return Err(unusable(name, &"it is not known"));
        };
        let (class, placement) = (Arc::clone(&known.class), known.placement.clone());
        Ok(OfClass { class, types: Arc::clone(types), placement })
    }

    /// Changes the market in a way that instance types may follow from, and says so to whoever plans by them.
    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut Market, Timestamp) -> T) -> T {
        let result = self.note(change);
        self.changes.send_modify(|changes| *changes += 1);
        self.marked.notify_one();
        result
    }

    /// Changes what plans need not be made anew for, such as the free addresses that a launch takes.
    pub(crate) fn note<T>(&self, change: impl FnOnce(&mut Market, Timestamp) -> T) -> T {
        let now = self.clock.now();
        change(&mut self.market(), now)
    }

    pub(crate) fn read_at(&self) -> ReadAt {
        self.market().read_at
    }

    pub(crate) fn was_read(&self, read_at: ReadAt) {
        self.market().read_at = read_at;
    }

    /// How old prices are, by capacity type. `None`: they were not read yet, and the catalogue's serve.
    pub(crate) fn ages_of_prices(&self) -> [(&'static str, Option<SignedDuration>); 2] {
        let (read_at, now) = (self.read_at(), self.clock.now());
        let age = |read: Option<Timestamp>| Some(now.duration_since(read?));
        [
            (labels::CAPACITY_TYPE_ON_DEMAND, age(read_at.on_demand)),
            (labels::CAPACITY_TYPE_SPOT, age(read_at.spot)),
        ]
    }

    /// The class as it was last asked for, by name.
    pub(crate) fn last(&self, class: &str) -> Option<OfClass> {
        let market = self.market();
        let (known, types) = (market.classes.get(class)?, market.types.last(class)?);
        let (class, placement) = (Arc::clone(&known.class), known.placement.clone());
        Some(OfClass { class, types: Arc::clone(types), placement })
    }

    /// The class is gone, and nothing was launched with it that is left.
    pub(crate) fn forget(&self, class: &str) {
        let mut market = self.market();
        market.classes.remove(class);
        market.types.forget(class);
        market.placement_groups.remove(class);
    }

    /// The zones that a class has a subnet in.
    pub(crate) fn zones_in_use(&self) -> Vec<String> {
        let market = self.market();
        let statuses = market.classes.values().filter_map(|known| known.class.status.as_ref());
        let zones = statuses.flat_map(|status| &status.subnets).map(|subnet| subnet.zone.clone());
        zones.collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// Whether it is another one than before.
    pub(crate) fn take_region(&self, region: Region) -> bool {
        let is_new = self.note(|market, now| {
            market.read_at.types = Some(now);
            let is_new = *market.region != region;
            if is_new {
                market.region = Arc::new(region);
            }
            is_new
        });
        self.changed_if(is_new)
    }

    /// How many types cost something else now.
    pub(crate) fn take_on_demand(
        &self,
        read: Result<Option<OnDemand>, AwsError>,
    ) -> Result<usize, NotRead> {
        let changed = self.note(|market, now| {
            let changed = market::take_on_demand(&mut market.prices, read)?;
            market.read_at.on_demand = Some(now);
            Ok::<_, NotRead>(changed.len())
        })?;
        self.changed_if(changed > 0);
        Ok(changed)
    }

    /// How many types cost something else now.
    pub(crate) fn take_spot(&self, read: Result<Spot, AwsError>) -> Result<usize, NotRead> {
        let changed = self.note(|market, now| {
            let changed = market::take_spot(&mut market.prices, read, now)?;
            market.read_at.spot = Some(now);
            Ok::<_, NotRead>(changed.len())
        })?;
        self.changed_if(changed > 0);
        Ok(changed)
    }

    fn changed_if(&self, changed: bool) -> bool {
        if changed {
            self.changes.send_modify(|changes| *changes += 1);
        }
        changed
    }

    /// Says when something that could not be had may be tried again.
    pub(crate) async fn follow_time(&self, stop: CancellationToken) {
        loop {
            let (next, now) = self.note(|market, now| (market.unavailable.expire(now), now));
            let wait = next.map(|next| next.duration_since(now));
            let wait = wait.and_then(|wait| Duration::try_from(wait).ok());
            let over = async {
                match wait {
                    Some(wait) => sleep(wait).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = self.marked.notified() => {}
                () = over => self.changes.send_modify(|changes| *changes += 1),
            }
        }
    }

    fn market(&self) -> MutexGuard<'_, Market> {
        self.market.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Market {
    pub(crate) fn facts(&self, instance_type: &str) -> Option<Arc<TypeFacts>> {
        let types = &self.region.types;
        let at = types.binary_search_by(|one| one.facts.name.as_str().cmp(instance_type)).ok()?;
        types.get(at).map(|one| Arc::clone(&one.facts))
    }

    /// Reads the class, unless it is the one that was read last.
    fn learn(&mut self, class: &NodeClass) -> Result<(), ProviderError> {
        let name = &class.reference.name;
        let metadata = &class.object().metadata;
        let version = (metadata.uid.clone(), metadata.resource_version.clone());
        let placement = self.placement_groups.get(name);
        if let Some(known) = self.classes.get(name)
            && version.1.is_some()
            && known.version == version
            && known.placement.as_ref() == placement
        {
            return Ok(());
        }
        let placement = placement.cloned();
        let class = Ec2NodeClass::read(class).map_err(|error| {
            unusable(name, &format!("field {} cannot be read: {}", error.field, error.reason))
        })?;
        if class.spec.placement_group_selector.is_some() && placement.is_none() {
            return Err(unusable(name, &"its placement group has not been looked up yet"));
        }
        let shape = ClassShape::new(&class, placement.clone());
        let shape = shape.map_err(|error| unusable(name, &error))?;
        self.types.set(name, shape, DiscoveredMemory::of(&class));
        self.classes.insert(name.clone(), Known { version, class: Arc::new(class), placement });
        Ok(())
    }
}

fn unusable(class: &str, why: &dyn fmt::Display) -> ProviderError {
    ProviderError::NodeClassNotReady(format!("{KIND} {class}: {why}"))
}

impl fmt::Debug for Offers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Offers").field("settings", &self.settings).finish_non_exhaustive()
    }
}
