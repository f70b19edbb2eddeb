//! Offerings that EC2 has not got now, and for how long they are left alone.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::catalogue::TypeFacts;

/// How long an offering is left alone after it could not be had. Karpenter stops here.
const FIRST: SignedDuration = SignedDuration::from_mins(3);
/// The time doubles with each further failure, up to this.
const LONGEST: SignedDuration = SignedDuration::from_mins(24);
/// With so many of its sizes out, a family counts as out in the zone.
const SIZES_OF_A_FAMILY: usize = 3;

/// Where an instance of a type would come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Source<'a> {
    pub capacity_type: &'a str,
    pub zone: &'a str,
    pub placement: Placement<'a>,
}

/// Instances outside of a placement group are not short because those inside are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Placement<'a> {
    #[default]
    Anywhere,
    Group(&'a str),
    Partition(&'a str, u32),
}

/// Why an offering is left alone.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Shortage {
    #[error("EC2 had none, {strikes} times in a row; tried again after {until}")]
    Marked { strikes: u32, until: Timestamp },
    #[error("EC2 had no {smaller}, which is smaller; tried again after {until}")]
    SmallerIsOut { smaller: String, until: Timestamp },
    #[error("EC2 had none of {sizes} sizes of the family; tried again after {until}")]
    FamilyIsOut { sizes: usize, until: Timestamp },
    #[error("{capacity_type} cannot be launched at all; tried again after {until}")]
    CapacityType { capacity_type: String, until: Timestamp },
    #[error("no subnet of the zone has free addresses; tried again after {until}")]
    Subnets { until: Timestamp },
}

/// What could not be had, by family: a shortage of one size tells about others.
///
/// A launch names many offerings and its answer only one or a few that failed. Karpenter forgets each after three minutes, so
/// that in a shortage thousands of claims are made and deleted. Here the time grows while failures go on; a larger size is left
/// alone with a smaller one; and with three sizes out the family is out in that zone.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Unavailable {
    families: BTreeMap<String, Family>,
    capacity_types: BTreeMap<String, Timestamp>,
    subnets: BTreeMap<String, Timestamp>,
    /// Counts changes that are not about one family.
    #[serde(skip)]
    version: u64,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Family {
    /// By capacity type, zone and placement.
    pools: BTreeMap<String, BTreeMap<String, Mark>>,
    #[serde(skip)]
    version: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Mark {
    vcpus: u32,
    strikes: u32,
    since: Timestamp,
    /// What versions know of it.
    #[serde(skip)]
    told: Phase,
}

/// What a mark means as time goes by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    /// The type is out, and other sizes are inferred to be.
    #[default]
    Teaching,
    /// Only the type itself is out. What is inferred is not inferred for longer than a first failure holds.
    Out,
    /// It is tried again; another failure would be one more in a row.
    Watched,
    Forgotten,
}

impl Mark {
    /// When each phase ends.
    fn ends(&self) -> [(Phase, Timestamp); 3] {
        let patience = patience(self.strikes);
        [
            (Phase::Teaching, saturating_add(self.since, FIRST)),
            (Phase::Out, self.until()),
            (Phase::Watched, saturating_add(self.until(), patience)),
        ]
    }

    fn phase(&self, now: Timestamp) -> Phase {
        let current = self.ends().into_iter().find(|(_, end)| now < *end);
        current.map_or(Phase::Forgotten, |(phase, _)| phase)
    }

    fn until(&self) -> Timestamp {
        saturating_add(self.since, patience(self.strikes))
    }

    fn teaches_until(&self) -> Timestamp {
        saturating_add(self.since, FIRST)
    }
}

fn patience(strikes: u32) -> SignedDuration {
    let doubled = FIRST.checked_mul(1 << strikes.saturating_sub(1).min(10));
    doubled.unwrap_or(LONGEST).min(LONGEST)
}

fn saturating_add(time: Timestamp, duration: SignedDuration) -> Timestamp {
    time.checked_add(duration).unwrap_or(Timestamp::MAX)
}

impl Source<'_> {
    fn key(&self) -> String {
        let Self { capacity_type, zone, placement } = self;
        match placement {
            Placement::Anywhere => format!("{capacity_type}:{zone}"),
            Placement::Group(group) => format!("{capacity_type}:{zone}:{group}"),
            Placement::Partition(group, partition) => {
                format!("{capacity_type}:{zone}:{group}:{partition}")
            }
        }
    }
}

impl Unavailable {
    /// EC2 had none. Failures of launches that ran side by side are one failure.
    pub fn mark(&mut self, facts: &TypeFacts, source: Source<'_>, now: Timestamp) {
        let family = self.families.entry(facts.family().to_owned()).or_default();
        family.version += 1;
        let marks = family.pools.entry(source.key()).or_default();
        let strikes = match marks.get(&facts.name).map(|mark| (mark.phase(now), mark.strikes)) {
            Some((Phase::Teaching | Phase::Out, strikes)) => strikes,
            Some((Phase::Watched, strikes)) => strikes.saturating_add(1),
            Some((Phase::Forgotten, _)) | None => 1,
        };
        let mark = Mark { vcpus: facts.vcpus, strikes, since: now, told: Phase::Teaching };
        marks.insert(facts.name.clone(), mark);
    }

    /// An instance was launched: there is capacity for this size, and so for the smaller ones.
    pub fn launched(&mut self, facts: &TypeFacts, source: Source<'_>) {
        let Some(family) = self.families.get_mut(facts.family()) else { return };
        let Some(marks) = family.pools.get_mut(&source.key()) else { return };
        let before = marks.len();
        marks.retain(|_, mark| mark.vcpus > facts.vcpus);
        if marks.len() != before {
            family.version += 1;
        }
    }

    /// Nothing of this capacity type can be launched, as spot without its service-linked role.
    pub fn mark_capacity_type(&mut self, capacity_type: &str, now: Timestamp) {
        self.capacity_types.insert(capacity_type.to_owned(), saturating_add(now, FIRST));
        self.version += 1;
    }

    /// The subnet has no free address.
    pub fn mark_subnet(&mut self, subnet: &str, now: Timestamp) {
        self.subnets.insert(subnet.to_owned(), saturating_add(now, FIRST));
        self.version += 1;
    }

    /// Why the type is not to be launched from there now, if so. `subnets` are those of the class in the zone.
    pub fn shortage(
        &self,
        facts: &TypeFacts,
        source: Source<'_>,
        subnets: &[String],
        now: Timestamp,
    ) -> Option<Shortage> {
        let elsewhere = Source { placement: Placement::Anywhere, ..source };
        let in_group = match source.placement {
            Placement::Partition(group, _) => {
                Some(Source { placement: Placement::Group(group), ..source })
            }
            Placement::Anywhere | Placement::Group(_) => None,
        };
        // What is out everywhere is out in a group, too.
        let scopes = [Some(elsewhere), in_group, Some(source)];
        self.of_capacity_type(source.capacity_type, now)
            .or_else(|| self.of_subnets(subnets, now))
            .or_else(|| {
                scopes.into_iter().flatten().find_map(|scope| self.in_pool(facts, scope, now))
            })
    }

    fn of_capacity_type(&self, capacity_type: &str, now: Timestamp) -> Option<Shortage> {
        let until = *self.capacity_types.get(capacity_type).filter(|until| now < **until)?;
        Some(Shortage::CapacityType { capacity_type: capacity_type.to_owned(), until })
    }

    /// A zone is out when all of the class's subnets there are.
    fn of_subnets(&self, subnets: &[String], now: Timestamp) -> Option<Shortage> {
        let marked = |subnet| self.subnets.get(subnet).copied().filter(|until| now < *until);
        let untils: Option<Vec<_>> = subnets.iter().map(marked).collect();
        Some(Shortage::Subnets { until: untils?.into_iter().min()? })
    }

    fn in_pool(&self, facts: &TypeFacts, source: Source<'_>, now: Timestamp) -> Option<Shortage> {
        let family = self.families.get(facts.family())?;
        let marks = family.pools.get(&source.key())?;
        let own = marks.get(&facts.name).filter(|mark| mark.phase(now) <= Phase::Out);
        if let Some(mark) = own {
            return Some(Shortage::Marked { strikes: mark.strikes, until: mark.until() });
        }
        let teaching = || marks.iter().filter(|(_, mark)| mark.phase(now) == Phase::Teaching);
        let smaller = teaching().filter(|(_, mark)| mark.vcpus < facts.vcpus);
        if let Some((name, mark)) = smaller.max_by_key(|(_, mark)| mark.since) {
            let until = mark.teaches_until();
            return Some(Shortage::SmallerIsOut { smaller: name.clone(), until });
        }
        let sizes = teaching().count();
        let until = teaching().map(|(_, mark)| mark.teaches_until()).min()?;
        (sizes >= SIZES_OF_A_FAMILY).then_some(Shortage::FamilyIsOut { sizes, until })
    }

    /// Changes whenever what [`Self::shortage`] says of the type may have changed, as far as [`Self::expire`] was called.
    pub fn version(&self, facts: &TypeFacts) -> u64 {
        self.version + self.families.get(facts.family()).map_or(0, |family| family.version)
    }

    /// Lets time pass: forgets what is over, and lets versions tell that something can be had again. Gives the time at which
    /// that has to be done again.
    pub fn expire(&mut self, now: Timestamp) -> Option<Timestamp> {
        let mut next: Option<Timestamp> = None;
        let mut at = |time: Timestamp| next = Some(next.map_or(time, |soonest| soonest.min(time)));
        for plain in [&mut self.capacity_types, &mut self.subnets] {
            let before = plain.len();
            plain.retain(|_, until| now < *until);
            self.version += u64::from(plain.len() != before);
            plain.values().copied().for_each(&mut at);
        }
        for family in self.families.values_mut() {
            for mark in family.pools.values_mut().flat_map(BTreeMap::values_mut) {
                let phase = mark.phase(now);
                family.version += u64::from(phase != mark.told);
                mark.told = phase;
                mark.ends()
                    .into_iter()
                    .map(|(_, end)| end)
                    .filter(|end| now < *end)
                    .for_each(&mut at);
            }
            for marks in family.pools.values_mut() {
                marks.retain(|_, mark| mark.told != Phase::Forgotten);
            }
            family.pools.retain(|_, marks| !marks.is_empty());
        }
        next
    }
}

#[cfg(test)]
mod tests;
