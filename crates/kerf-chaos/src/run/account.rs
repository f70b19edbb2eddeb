//! The account of AWS of a run: what goes wrong in it, and which instances it has.

use std::sync::Arc;
use std::time::Duration;

use kerf_fake_aws::{Depth, Fault, FaultRates, Impairment, Market, PoolSelector, Release};
use kerf_stories::clouds::Cloud;
use kerf_stories_aws::AwsStage;

use crate::checker::Instance;
use crate::plan::AccountFault;

const CLAIM_UID: &str = "karpenter.sh/nodeclaim-uid";
const ADDRESSES: u32 = 65_000;
/// The zone of which traffic may be shifted away.
const SHIFTED: &str = "usw2-az1";

#[derive(Clone, Debug)]
pub(super) struct Account {
    stage: Arc<AwsStage>,
    denied: Vec<String>,
}

/// The cloud of this seed, and its account.
pub(super) fn begin(seed: u64) -> (Arc<dyn Cloud>, Option<Account>) {
    let stage = Arc::new(AwsStage::lifelike(seed));
    (Arc::clone(&stage) as _, Some(Account { stage, denied: Vec::new() }))
}

impl Account {
    /// All instances that AWS remembers. Looked at every few seconds, so only at what it takes.
    pub(super) fn instances(&self) -> Vec<Instance> {
        let all = self.stage.aws().lives().into_iter().map(|mut one| Instance {
            is_alive: one.ended.is_none(),
            claim_uid: one.tags.remove(CLAIM_UID).unwrap_or_default(),
            id: one.id,
        });
        all.collect()
    }

    /// An instance ends without a call.
    pub(super) fn fail(&self, provider_id: &str) {
        self.stage.aws().fail_instance(provider_id.rsplit('/').next().unwrap_or_default());
    }

    fn alive(&self, spot_only: bool) -> Vec<String> {
        let aws = self.stage.aws();
        let alive = aws.alive();
        let is_spot = |id: &String| {
            aws.instances().iter().any(|one| {
                one.instance_id.as_ref() == Some(id)
                    && one.instance_lifecycle.as_deref() == Some("spot")
            })
        };
        alive.into_iter().filter(|id| !spot_only || is_spot(id)).collect()
    }

    fn pick(&self, which: u64, spot_only: bool) -> Option<String> {
        let mut all = self.alive(spot_only);
        let place = which.checked_rem(all.len() as u64)?;
        Some(all.swap_remove(usize::try_from(place).ok()?))
    }

    pub(super) fn meet(&mut self, fault: &AccountFault) {
        let aws = self.stage.aws().clone();
        match fault {
            AccountFault::Pools { instance_type, zone, spot, left, back_every } => {
                let mut pools = PoolSelector::instance_type(instance_type);
                if let Some(zone) = zone {
                    pools = pools.within(zone);
                }
                if *spot {
                    pools = pools.on(Market::Spot);
                }
                let one_back_every = back_every.map(Duration::from_millis);
                aws.set_pools(pools, Depth::Limited { instances: *left, one_back_every });
            }
            AccountFault::Refill => aws.set_pools(PoolSelector::all(), Depth::Endless),
            AccountFault::Interrupt { which } => {
                let first = self.pick(*which, true);
                for (place, id) in self.alive(true).into_iter().enumerate() {
                    // Each bit of the number decides on one.
                    if first.as_ref() == Some(&id) || which >> (place % 64) & 1 == 1 {
                        aws.interrupt_spot(&id);
                    }
                }
            }
            AccountFault::Rebalance { which } => {
                if let Some(id) = self.pick(*which, true) {
                    aws.recommend_rebalance(&id);
                }
            }
            AccountFault::Maintenance { which } => {
                if let Some(id) = self.pick(*which, false) {
                    aws.schedule_change(&[id]);
                }
            }
            AccountFault::Retires { which } => {
                if let Some(id) = self.pick(*which, false) {
                    aws.schedule_event(&id, "instance-retirement", "the host is degraded");
                }
            }
            AccountFault::Impair { which } => {
                let kind = if which % 2 == 0 { Impairment::Instance } else { Impairment::System };
                if let Some(id) = self.pick(*which, false) {
                    aws.impair(&id, Some(kind));
                }
            }
            AccountFault::Addresses { zone, free } => {
                for subnet in aws.subnets_of(zone) {
                    aws.set_free_addresses(&subnet, *free);
                }
            }
            AccountFault::Deny { action } => {
                aws.deny(action);
                self.denied.push(action.clone());
            }
            AccountFault::Allow { action } => aws.allow(action),
            AccountFault::Calls { refused, unanswered, lost } => {
                aws.set_fault_rates(FaultRates {
                    internal: refused / 2.0,
                    unavailable: refused / 2.0,
                    no_answer: *unanswered,
                    lost_answer: *lost,
                });
            }
            AccountFault::LostAnswers { operation, times } => {
                aws.fail_next(operation, *times, Fault::LostAnswer);
            }
            AccountFault::Release { name } => aws.publish(Release::Al2023(name)),
            AccountFault::Message(body) => aws.send_message(body),
            AccountFault::Shift { away } => aws.shift_zone(SHIFTED, *away),
        }
    }

    /// All is well again.
    pub(super) fn calm(&mut self) {
        let aws = self.stage.aws().clone();
        // Nobody asks for them, and a day makes many.
        aws.forget_requests();
        aws.set_pools(PoolSelector::all(), Depth::Endless);
        aws.set_fault_rates(FaultRates::default());
        aws.shift_zone(SHIFTED, false);
        for action in std::mem::take(&mut self.denied) {
            aws.allow(&action);
        }
        for subnet in aws.zones().iter().flat_map(|zone| aws.subnets_of(zone)) {
            aws.set_free_addresses(&subnet, ADDRESSES);
        }
        for id in aws.alive() {
            aws.impair(&id, None);
        }
    }
}
