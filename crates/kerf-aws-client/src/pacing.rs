//! EC2 counts the calls of an account and refuses what is too many. Kerf counts along, and waits instead.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use kerf_aws_wire::{Service, ec2};
use kerf_runtime::{Bucket, Tokens};

/// How many calls EC2 takes: it keeps one bucket per action, region and account. The numbers are those of Karpenter's model of
/// these limits, for accounts without a raised one. AWS's documentation was seen to say the same of describing actions, 20 a second
/// and 100 at once. `CreateFleet` counts as any action that changes something. No limit of another service is known that a
/// controller would reach.
pub fn bucket(service: &Service, operation: &str) -> Option<Bucket> {
    if *service != ec2::SERVICE {
        return None;
    }
    let (per_second, burst) = match operation {
        "RunInstances" => (2, 5),
        "TerminateInstances" => (5, 100),
        "CreateTags" => (10, 100),
        _ if operation.starts_with("Describe") || operation.starts_with("Get") => (20, 100),
        _ => (5, 50),
    };
    Some(Bucket { per_second, burst })
}

/// The buckets of this process, shared by all that call.
#[derive(Debug, Default)]
pub(crate) struct Pacing(Mutex<BTreeMap<&'static str, Tokens>>);

impl Pacing {
    /// How long a call has to wait for its turn, which is taken with this.
    pub(crate) fn turn(&self, service: &Service, operation: &'static str) -> Duration {
        self.tokens(service, operation, Tokens::take)
    }

    /// EC2 says that the bucket is empty: others in the account call as well. So it is empty for all of our calls.
    pub(crate) fn throttled(&self, service: &Service, operation: &'static str) {
        self.tokens(service, operation, Tokens::drain);
    }

    fn tokens<T: Default>(
        &self,
        service: &Service,
        operation: &'static str,
        act: impl FnOnce(&mut Tokens) -> T,
    ) -> T {
        let Some(bucket) = bucket(service, operation) else { return T::default() };
        let mut buckets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        act(buckets.entry(operation).or_insert_with(|| Tokens::full(bucket)))
    }
}

#[cfg(test)]
mod tests {
    use kerf_aws_wire::iam;

    use super::*;

    #[test]
    fn every_action_has_its_bucket() {
        let cases = [
            ("DescribeInstances", Some((20, 100))),
            ("GetConsoleOutput", Some((20, 100))),
            ("CreateFleet", Some((5, 50))),
            ("CreateLaunchTemplate", Some((5, 50))),
            ("RunInstances", Some((2, 5))),
            ("TerminateInstances", Some((5, 100))),
            ("CreateTags", Some((10, 100))),
        ];
        for (operation, expect) in cases {
            let bucket = bucket(&ec2::SERVICE, operation);
            assert_eq!(
                bucket.map(|bucket| (bucket.per_second, bucket.burst)),
                expect,
                "{operation}"
            );
        }
        assert_eq!(bucket(&iam::SERVICE, "CreateInstanceProfile"), None);
    }

    #[tokio::test(start_paused = true)]
    async fn fifty_fleets_go_at_once_and_then_five_a_second() {
        let pacing = Pacing::default();
        let turn = |operation| pacing.turn(&ec2::SERVICE, operation);
        let waits: Vec<_> = (0..60).map(|_| turn("CreateFleet")).collect();
        assert!(waits[..50].iter().all(Duration::is_zero));
        assert_eq!(waits[50], Duration::from_millis(200));
        assert_eq!(waits[59], Duration::from_secs(2));
        assert_eq!(turn("DescribeInstances"), Duration::ZERO, "each action has its own");
        assert_eq!(pacing.turn(&iam::SERVICE, "GetInstanceProfile"), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_empties_the_bucket_for_all() {
        let pacing = Pacing::default();
        pacing.throttled(&ec2::SERVICE, "DescribeInstances");
        assert_eq!(pacing.turn(&ec2::SERVICE, "DescribeInstances"), Duration::from_millis(50));
        tokio::time::advance(Duration::from_secs(10)).await;
        assert_eq!(pacing.turn(&ec2::SERVICE, "DescribeInstances"), Duration::ZERO);
    }
}
