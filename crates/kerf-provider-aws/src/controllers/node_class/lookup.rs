//! What a class selects in the network and in the capacity of the account.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use jiff::Timestamp;
use kerf_aws_api::{
    CapacityReservation, Ec2NodeClass, SecurityGroup, Subnet,
    conditions::{
        AMIS_READY, CAPACITY_RESERVATIONS_READY, INSTANCE_PROFILE_READY, NotReady,
        PLACEMENT_GROUP_READY, SECURITY_GROUPS_READY, SUBNETS_READY,
    },
};
use kerf_aws_client::{Aws, AwsError, Paged, all_pages};
use kerf_aws_model::{class_status, errors::Meaning, instance_types::PlacementGroup};
use kerf_runtime::{Fence, WriteRefused};

use super::{images::FoundImages, validation::Verdict};
use crate::{cloud::AwsCloud, errors};

/// How long an answer of EC2 holds where no flag says it.
const HOLDS: Duration = Duration::from_mins(1);

/// What was looked up for a class, so that a change of the class that is no edit asks for nothing.
#[derive(Debug, Default)]
pub(super) struct Memory {
    uid: Option<String>,
    generation: Option<i64>,
    subnets: Kept<Vec<(Subnet, i64)>>,
    security_groups: Kept<Vec<SecurityGroup>>,
    reservations: Kept<Vec<(CapacityReservation, u32)>>,
    placement: Kept<Option<PlacementGroup>>,
    pub(super) images: Kept<FoundImages>,
    pub(super) profile: Kept<String>,
    pub(super) verdict: Kept<Verdict>,
}

impl Memory {
    pub(super) fn of(class: &Ec2NodeClass) -> Self {
        let (uid, generation) = (class.metadata.uid.clone(), class.metadata.generation);
        Self { uid, generation, ..Self::default() }
    }

    pub(super) fn is_of(&self, class: &Ec2NodeClass) -> bool {
        self.uid == class.metadata.uid && self.generation == class.metadata.generation
    }
}

/// An answer and its time.
#[derive(Debug)]
pub(super) struct Kept<T>(Mutex<Option<(Timestamp, T)>>);

impl<T> Default for Kept<T> {
    fn default() -> Self {
        Self(Mutex::new(None))
    }
}

impl<T: Clone> Kept<T> {
    pub(super) fn get(&self, now: Timestamp, holds: Duration) -> Option<T> {
        let kept = self.lock();
        let (at, value) = kept.as_ref()?;
        let age = Duration::try_from(now.duration_since(*at)).unwrap_or_default();
        (age < holds).then(|| value.clone())
    }

    pub(super) fn keep(&self, now: Timestamp, value: &T) {
        *self.lock() = Some((now, value.clone()));
    }

    fn lock(&self) -> MutexGuard<'_, Option<(Timestamp, T)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why a part of a class is not known.
#[derive(Debug)]
pub(super) enum Obstacle {
    /// Somebody has to do something.
    Refused(NotReady),
    /// The next call may succeed.
    Failed(AwsError),
    /// Another process leads, perhaps.
    NotLeading(WriteRefused),
}

impl From<NotReady> for Obstacle {
    fn from(refusal: NotReady) -> Self {
        Self::Refused(refusal)
    }
}

impl From<WriteRefused> for Obstacle {
    fn from(refused: WriteRefused) -> Self {
        Self::NotLeading(refused)
    }
}

impl Obstacle {
    /// A call for this condition failed.
    pub(super) fn of(condition: &'static str, error: AwsError) -> Self {
        match error.meaning() {
            Meaning::Unauthorized => Self::Refused(NotReady::LookUpDenied {
                condition,
                action: errors::action(&error),
                error: errors::told(&error),
            }),
            _ => Self::Failed(error),
        }
    }

    pub(super) fn of_subnets(error: AwsError) -> Self {
        Self::of(SUBNETS_READY, error)
    }

    pub(super) fn of_images(error: AwsError) -> Self {
        Self::of(AMIS_READY, error)
    }

    pub(super) fn of_profile(error: AwsError) -> Self {
        Self::of(INSTANCE_PROFILE_READY, error)
    }
}

/// One class that is looked into.
#[derive(Clone, Copy)]
pub(super) struct Look<'a> {
    pub(super) cloud: &'a AwsCloud,
    pub(super) class: &'a Ec2NodeClass,
    pub(super) memory: &'a Memory,
    pub(super) fence: &'a Fence,
    pub(super) now: Timestamp,
}

impl Look<'_> {
    pub(super) fn aws(&self) -> &dyn Aws {
        self.cloud.aws()
    }

    pub(super) async fn subnets(&self) -> Result<Vec<(Subnet, i64)>, Obstacle> {
        let holds = self.cloud.options().subnet_refresh_interval;
        if let Some(known) = self.memory.subnets.get(self.now, holds) {
            return Ok(known);
        }
        let requests = class_status::subnet_requests(&self.class.spec.subnet_selector_terms);
        let found = self.all(requests).await.map_err(Obstacle::of_subnets)?;
        let found = class_status::subnets(found);
        if found.is_empty() {
            return Err(NotReady::SubnetsNotFound.into());
        }
        self.count_addresses(&found);
        self.memory.subnets.keep(self.now, &found);
        Ok(found)
    }

    /// Launches count down from what EC2 says. Whoever plans hears of it when a subnet is full or has room again.
    fn count_addresses(&self, found: &[(Subnet, i64)]) {
        let offers = self.cloud.offers();
        let cni = offers.settings().cni;
        let differs = offers.note(|market, now| {
            let mut differs = false;
            for (subnet, free) in found {
                let id = [subnet.id.clone()];
                let before = market.addresses.suffice(&id, cni);
                market.addresses.read(&subnet.id, *free, now);
                differs |= before != market.addresses.suffice(&id, cni);
            }
            differs
        });
        if differs {
            offers.change(|_, _| ());
        }
    }

    pub(super) async fn security_groups(&self) -> Result<Vec<SecurityGroup>, Obstacle> {
        if let Some(known) = self.memory.security_groups.get(self.now, HOLDS) {
            return Ok(known);
        }
        let terms = &self.class.spec.security_group_selector_terms;
        let requests = class_status::security_group_requests(terms);
        let denied = |error| Obstacle::of(SECURITY_GROUPS_READY, error);
        let found = class_status::security_groups(self.all(requests).await.map_err(denied)?);
        if found.is_empty() {
            return Err(NotReady::SecurityGroupsNotFound.into());
        }
        self.memory.security_groups.keep(self.now, &found);
        Ok(found)
    }

    /// None are no mistake: they may end.
    pub(super) async fn reservations(&self) -> Result<Vec<(CapacityReservation, u32)>, Obstacle> {
        let lasts = |(one, _): &(CapacityReservation, u32)| {
            one.end_time.as_ref().is_none_or(|end| end.0 > self.now)
        };
        // The class is looked at when a reservation ends. An older answer would have it for another minute.
        if let Some(known) = self.memory.reservations.get(self.now, HOLDS)
            && known.iter().all(lasts)
        {
            return Ok(known);
        }
        let terms = &self.class.spec.capacity_reservation_selector_terms;
        let mut found = Vec::new();
        for request in class_status::reservation_requests(terms) {
            match all_pages(self.aws(), request).await {
                Ok(some) => found.extend(some),
                Err(error) if error.is_not_found() => {}
                Err(error) => return Err(Obstacle::of(CAPACITY_RESERVATIONS_READY, error)),
            }
        }
        let found = class_status::reservations(found, self.now);
        let offers = self.cloud.offers();
        let differs = offers.note(|market, now| {
            let before = market.reservations.version();
            for (reservation, left) in &found {
                market.reservations.read(&reservation.id, *left, now);
            }
            before != market.reservations.version()
        });
        if differs {
            offers.change(|_, _| ());
        }
        self.memory.reservations.keep(self.now, &found);
        Ok(found)
    }

    pub(super) async fn placement(&self) -> Result<Option<PlacementGroup>, Obstacle> {
        let Some(selector) = &self.class.spec.placement_group_selector else { return Ok(None) };
        if let Some(known) = self.memory.placement.get(self.now, HOLDS) {
            return Ok(known);
        }
        let name = || selector.id.clone().or_else(|| selector.name.clone()).unwrap_or_default();
        let request = class_status::placement_group_request(selector);
        let found = match self.aws().describe_placement_groups(&request).await {
            Ok(response) => class_status::placement_group(response.placement_groups),
            Err(error) if error.is_not_found() => None,
            // EC2 has said no, and will again.
            Err(error) if error.code().is_some() && error.meaning() == Meaning::Other => {
                let (selector, error) = (name(), errors::told(&error));
                return Err(NotReady::PlacementGroupResolutionFailed { selector, error }.into());
            }
            Err(error) => return Err(Obstacle::of(PLACEMENT_GROUP_READY, error)),
        };
        if found.is_none() {
            return Err(NotReady::PlacementGroupNotFound { selector: name() }.into());
        }
        self.memory.placement.keep(self.now, &found);
        Ok(found)
    }

    pub(super) async fn all<R: Paged>(&self, requests: Vec<R>) -> Result<Vec<R::Item>, AwsError> {
        let mut all = Vec::new();
        for request in requests {
            all.extend(all_pages(self.aws(), request).await?);
        }
        Ok(all)
    }
}
