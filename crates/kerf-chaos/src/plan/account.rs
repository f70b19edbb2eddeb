//! What goes wrong in an account of AWS besides what goes wrong in any cloud.

use kerf_testbed::Random;
use serde::{Deserialize, Serialize};

use super::{Action, MINUTE, choose};

/// Times are in milliseconds. All of it ends with the next calm.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum AccountFault {
    /// So many instances are left of these, and one comes back every so often.
    Pools {
        instance_type: String,
        zone: Option<String>,
        spot: bool,
        left: u32,
        back_every: Option<u64>,
    },
    /// There is enough of everything again.
    Refill,
    /// AWS takes this spot instance, and half of all others.
    Interrupt {
        which: u64,
    },
    /// AWS says that a spot instance may be taken soon.
    Rebalance {
        which: u64,
    },
    /// AWS Health announces maintenance of an instance.
    Maintenance {
        which: u64,
    },
    /// EC2 lists the retirement of an instance.
    Retires {
        which: u64,
    },
    /// The status checks of an instance fail.
    Impair {
        which: u64,
    },
    /// The subnets of a zone have so many addresses left.
    Addresses {
        zone: String,
        free: u32,
    },
    /// The role may not do this for so long.
    Deny {
        action: String,
    },
    Allow {
        action: String,
    },
    /// The shares of calls that are refused, and of those that are done and not answered.
    Calls {
        refused: f64,
        unanswered: f64,
        lost: f64,
    },
    /// The next calls of an operation are done, and their answers are lost.
    LostAnswers {
        operation: String,
        times: u32,
    },
    /// There is a newer image.
    Release {
        name: String,
    },
    /// Something that nobody understands is in the queue.
    Message(String),
    /// AWS moves traffic away from a zone, or back to it.
    Shift {
        away: bool,
    },
}

const ZONES: [&str; 4] = ["us-west-2a", "us-west-2b", "us-west-2c", "us-west-2d"];
const DENIED: [&str; 8] = [
    "ec2:CreateFleet",
    "ec2:RunInstances",
    "ec2:CreateLaunchTemplate",
    "ec2:DescribeInstances",
    "ec2:TerminateInstances",
    "ec2:CreateTags",
    "ssm:GetParameter",
    "sqs:ReceiveMessage",
];
const LOST: [&str; 4] = ["CreateFleet", "TerminateInstances", "CreateLaunchTemplate", "CreateTags"];

pub(super) fn act(random: &mut Random) -> Vec<(u64, Action)> {
    use AccountFault as Is;
    let which = random.next_u64();
    let until = 1_000 + random.below(60 * MINUTE);
    let zone = (*choose(random, &ZONES)).to_owned();
    let of = |fault| Action::Account(fault);
    let pair = |fault, end| vec![(0, of(fault)), (until, of(end))];
    match random.below(17) {
        0..4 => {
            let instance_type = (*choose(random, &["c-*", "s-*", "m-*", "*"])).to_owned();
            let zone = (random.chance(0.5) || instance_type == "*").then_some(zone);
            let (spot, left) = (random.chance(0.5), u32::try_from(random.below(3)).unwrap_or(0));
            let back_every = random.chance(0.5).then_some(20 * MINUTE);
            pair(Is::Pools { instance_type, zone, spot, left, back_every }, Is::Refill)
        }
        4..6 => vec![(0, of(Is::Interrupt { which }))],
        6 => vec![(0, of(Is::Rebalance { which }))],
        7 => vec![(0, of(Is::Maintenance { which }))],
        8 => vec![(0, of(Is::Retires { which }))],
        9 => vec![(0, of(Is::Impair { which }))],
        10 => {
            let free = |free| Is::Addresses { zone: zone.clone(), free };
            pair(free(u32::try_from(random.below(3)).unwrap_or(0)), free(65_000))
        }
        11 | 12 => {
            let action = (*choose(random, &DENIED)).to_owned();
            pair(Is::Deny { action: action.clone() }, Is::Allow { action })
        }
        13 => {
            let rates = |refused, unanswered, lost| Is::Calls { refused, unanswered, lost };
            let rate = *choose(random, &[0.02, 0.1, 0.3]);
            pair(rates(rate, rate / 2.0, rate / 2.0), rates(0.0, 0.0, 0.0))
        }
        14 => {
            let operation = (*choose(random, &LOST)).to_owned();
            let times = 1 + u32::try_from(random.below(3)).unwrap_or(0);
            vec![(0, of(Is::LostAnswers { operation, times }))]
        }
        15 => {
            let name = format!("v2026{:04}", 1201 + random.below(30));
            vec![(0, of(Is::Release { name }))]
        }
        _ if random.chance(0.5) => pair(Is::Shift { away: true }, Is::Shift { away: false }),
        _ => {
            let what = choose(random, &["", "{", "[1]", r#"{"source":"aws.ec2","detail":null}"#]);
            vec![(0, of(Is::Message((*what).to_owned())))]
        }
    }
}
