//! Capacity: pools of instances that run dry and fill again, and the vCPUs that an account may have.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::filters::matches;
use crate::refused::Refused;
use crate::settings::Quotas;

/// How an instance is bought.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Market {
    OnDemand,
    Spot,
}

/// Pools of some types, zones and markets; all that it does not say.
#[derive(Clone, Debug, Default)]
pub struct PoolSelector {
    /// With `*` and `?`: `m5.*`
    pub instance_type: Option<String>,
    pub zone: Option<String>,
    pub market: Option<Market>,
}

/// How much a pool has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    Endless,
    /// So many when it is full. What is launched is missing until it ends, or until others give one back, which they do this often.
    Limited {
        instances: u32,
        one_back_every: Option<Duration>,
    },
}

impl Depth {
    pub const DRY: Self = Self::Limited { instances: 0, one_back_every: None };
}

/// A type in a zone on a market.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PoolKey {
    pub(crate) instance_type: String,
    pub(crate) zone: String,
    pub(crate) market: Market,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Pools {
    /// The last that fits a pool counts. Without any it is endless.
    rules: Vec<(PoolSelector, Depth)>,
    levels: BTreeMap<PoolKey, Level>,
}

#[derive(Clone, Copy, Debug)]
struct Level {
    free: u32,
    /// When the last one came back.
    at: Timestamp,
}

impl PoolSelector {
    pub fn all() -> Self {
        Self::default()
    }

    pub fn zone(zone: &str) -> Self {
        Self { zone: Some(zone.to_owned()), ..Self::default() }
    }

    pub fn instance_type(pattern: &str) -> Self {
        Self { instance_type: Some(pattern.to_owned()), ..Self::default() }
    }

    pub fn on(mut self, market: Market) -> Self {
        self.market = Some(market);
        self
    }

    pub fn within(mut self, zone: &str) -> Self {
        self.zone = Some(zone.to_owned());
        self
    }

    fn fits(&self, key: &PoolKey) -> bool {
        self.instance_type.as_ref().is_none_or(|pattern| matches(pattern, &key.instance_type))
            && self.zone.as_ref().is_none_or(|zone| *zone == key.zone)
            && self.market.is_none_or(|market| market == key.market)
    }
}

impl Pools {
    /// Pools that fit are full to this depth from now on.
    pub(crate) fn set(&mut self, selector: PoolSelector, depth: Depth) {
        self.levels.retain(|key, _| !selector.fits(key));
        self.rules.push((selector, depth));
    }

    fn depth(&self, key: &PoolKey) -> Depth {
        let rule = self.rules.iter().rev().find(|(selector, _)| selector.fits(key));
        rule.map_or(Depth::Endless, |(_, depth)| *depth)
    }

    pub(crate) fn free(&mut self, key: &PoolKey, now: Timestamp) -> u32 {
        let Depth::Limited { instances, one_back_every } = self.depth(key) else { return u32::MAX };
        let level = self.levels.entry(key.clone()).or_insert(Level { free: instances, at: now });
        let every = one_back_every.and_then(|every| SignedDuration::try_from(every).ok());
        if let Some(every) = every.filter(SignedDuration::is_positive) {
            let came = now.duration_since(level.at).as_millis() / every.as_millis().max(1);
            let came = i32::try_from(came).unwrap_or(i32::MAX);
            level.at = level.at.checked_add(every * came).unwrap_or(now);
            level.free = level.free.saturating_add(came.unsigned_abs()).min(instances);
        }
        level.free
    }

    /// Takes one if there is one.
    pub(crate) fn take(&mut self, key: &PoolKey, now: Timestamp) -> bool {
        if self.free(key, now) == 0 {
            return false;
        }
        if let Some(level) = self.levels.get_mut(key) {
            level.free = level.free.saturating_sub(1);
        }
        true
    }

    pub(crate) fn give_back(&mut self, key: &PoolKey) {
        let depth = self.depth(key);
        if let (Some(level), Depth::Limited { instances, .. }) = (self.levels.get_mut(key), depth) {
            level.free = (level.free + 1).min(instances);
        }
    }
}

/// vCPUs in use, by market and group of families.
#[derive(Clone, Debug, Default)]
pub(crate) struct VcpusInUse(BTreeMap<(Market, String), u32>);

impl VcpusInUse {
    pub(crate) fn check(
        &self,
        quotas: &Quotas,
        market: Market,
        instance_type: &str,
        vcpus: u32,
    ) -> Result<(), Refused> {
        let in_use = self.0.get(&(market, quota_group(instance_type))).copied().unwrap_or(0);
        match market {
            Market::OnDemand if in_use + vcpus > quotas.on_demand_vcpus => {
                let message = format!(
                    "You have requested more vCPU capacity than your current vCPU limit of {} allows for the instance bucket that the specified instance type belongs to.",
                    quotas.on_demand_vcpus
                );
                Err(Refused::new("VcpuLimitExceeded", message))
            }
            Market::Spot if in_use + vcpus > quotas.spot_vcpus => {
                let message = "Max spot instance count exceeded";
                Err(Refused::new("MaxSpotInstanceCountExceeded", message))
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn add(&mut self, market: Market, instance_type: &str, vcpus: u32) {
        *self.0.entry((market, quota_group(instance_type))).or_default() += vcpus;
    }

    pub(crate) fn remove(&mut self, market: Market, instance_type: &str, vcpus: u32) {
        if let Some(in_use) = self.0.get_mut(&(market, quota_group(instance_type))) {
            *in_use = in_use.saturating_sub(vcpus);
        }
    }
}

/// Families that share a quota have the same name here.
fn quota_group(instance_type: &str) -> String {
    let letters: String = instance_type.chars().take_while(char::is_ascii_alphabetic).collect();
    match letters.as_str() {
        "a" | "c" | "d" | "h" | "i" | "im" | "is" | "m" | "r" | "t" | "z" => "standard".to_owned(),
        "g" | "gr" | "vt" => "g".to_owned(),
        _ => letters,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(instance_type: &str, zone: &str, market: Market) -> PoolKey {
        PoolKey { instance_type: instance_type.to_owned(), zone: zone.to_owned(), market }
    }

    #[test]
    fn the_last_rule_that_fits_a_pool_counts() {
        let limited = |instances| Depth::Limited { instances, one_back_every: None };
        let mut pools = Pools::default();
        let start = Timestamp::UNIX_EPOCH;
        pools.set(PoolSelector::zone("a"), limited(5));
        pools.set(PoolSelector::instance_type("m5.*").on(Market::Spot), limited(2));
        pools.set(PoolSelector::instance_type("m5.metal").within("a"), Depth::DRY);
        for (name, zone, market, free) in [
            ("c5.large", "b", Market::OnDemand, u32::MAX),
            ("c5.large", "a", Market::OnDemand, 5),
            ("m5.large", "a", Market::OnDemand, 5),
            ("m5.large", "a", Market::Spot, 2),
            ("m5.large", "b", Market::Spot, 2),
            ("m5.metal", "a", Market::Spot, 0),
            ("m5.metal", "b", Market::OnDemand, u32::MAX),
        ] {
            assert_eq!(pools.free(&key(name, zone, market), start), free, "{name} {zone}");
        }
    }

    #[test]
    fn a_pool_runs_dry_and_fills_again() {
        let mut pools = Pools::default();
        let start = Timestamp::UNIX_EPOCH;
        let minute = Duration::from_mins(1);
        pools.set(
            PoolSelector::all(),
            Depth::Limited { instances: 3, one_back_every: Some(minute) },
        );
        let key = key("m5.large", "a", Market::Spot);
        let at = |seconds| start + SignedDuration::from_secs(seconds);
        assert_eq!((0..5).filter(|_| pools.take(&key, start)).count(), 3);
        assert_eq!(pools.free(&key, at(59)), 0);
        assert_eq!(pools.free(&key, at(60)), 1);
        assert_eq!(pools.free(&key, at(119)), 1);
        assert_eq!(pools.free(&key, at(120)), 2);
        pools.give_back(&key);
        pools.give_back(&key);
        assert_eq!(pools.free(&key, at(121)), 3, "never more than when it was full");
        assert_eq!(pools.free(&key, at(1000)), 3);
    }

    #[test]
    fn quotas_count_vcpus_by_group_and_market() {
        let quotas = Quotas { on_demand_vcpus: 10, spot_vcpus: 4, ..Quotas::default() };
        let mut in_use = VcpusInUse::default();
        in_use.add(Market::OnDemand, "m5.xlarge", 4);
        in_use.add(Market::OnDemand, "c5.xlarge", 4);
        let check = |market, name, vcpus| {
            in_use.check(&quotas, market, name, vcpus).map_err(|refused| refused.code)
        };
        for (market, name, vcpus, expect) in [
            (Market::OnDemand, "r5.large", 2, None),
            (Market::OnDemand, "im4gn.xlarge", 4, Some("VcpuLimitExceeded")),
            (Market::OnDemand, "p3.2xlarge", 8, None),
            (Market::OnDemand, "inf1.2xlarge", 8, None),
            (Market::Spot, "m5.xlarge", 4, None),
            (Market::Spot, "m5.2xlarge", 8, Some("MaxSpotInstanceCountExceeded")),
        ] {
            assert_eq!(check(market, name, vcpus).err().as_deref(), expect, "{name}");
        }
    }
}
