//! The pods that are to be placed.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use bench_bound::Sort;
use serde_json::{Value, json};

use super::dice::Dice;
use super::market::ZONES;
use crate::bench::problem::{HOSTNAME, ZONE, affinity, pod_json, spread};

/// What kind of pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mix {
    /// Services of up to a core and 2 GiB.
    Small,
    /// Half of them rich in cores, half rich in memory.
    Opposed,
    /// 4 to 32 cores.
    Large,
    /// A tenth of a core to 16 cores, half a GiB to 16 GiB for each.
    Wide,
    /// The same, every second Deployment spread over zones.
    Zones,
    /// The same, every third Deployment with at most one pod on a node.
    Apart,
    /// As in the trace openb.
    Openb,
    /// Those of `--trace`.
    Trace,
}

/// Equal pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Deployment {
    pub(super) millicores: u64,
    pub(super) mebibytes: u64,
    pub(super) replicas: u32,
    rule: Rule,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    None,
    /// Spread over zones, with a difference of one at most.
    Zones,
    /// On nodes of their own.
    Apart,
}

/// Millicores and MiB of a pod.
type Size = (u64, u64);

impl Mix {
    pub(super) const GENERATED: [Self; 7] = [
        Self::Small,
        Self::Opposed,
        Self::Large,
        Self::Wide,
        Self::Zones,
        Self::Apart,
        Self::Openb,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Small => "small",
            Self::Opposed => "opposed",
            Self::Large => "large",
            Self::Wide => "wide",
            Self::Zones => "zones",
            Self::Apart => "apart",
            Self::Openb => "openb",
            Self::Trace => "trace",
        }
    }

    /// So many pods; `trace` is drawn from where the mix is that.
    pub(super) fn draw(self, pods: u32, seed: u64, trace: &[Size]) -> Vec<Deployment> {
        let dice = &mut Dice::named(self.name(), seed);
        match self {
            Self::Openb => alike(openb(pods, dice)),
            Self::Trace => alike((0..pods).map(|_| dice.pick(trace)).collect()),
            _ => self.deployments(pods, dice),
        }
    }

    /// Deployments of one pod to twice the square root of all, small ones more often.
    fn deployments(self, pods: u32, dice: &mut Dice) -> Vec<Deployment> {
        let mut all = Vec::new();
        let mut left = pods;
        while left > 0 {
            let most = 2.0 * f64::from(pods).sqrt();
            let replicas = whole(most * dice.share().powi(2)).max(1);
            let replicas = u32::try_from(replicas).unwrap_or(left).min(left);
            left -= replicas;
            let (millicores, mebibytes) = self.size(dice);
            let rule = match self {
                Self::Zones if all.len() % 2 == 1 => Rule::Zones,
                Self::Apart if all.len() % 3 == 2 => Rule::Apart,
                _ => Rule::None,
            };
            all.push(Deployment { millicores, mebibytes, replicas, rule });
        }
        all
    }

    fn size(self, dice: &mut Dice) -> Size {
        match self {
            Self::Small => (
                dice.pick(&[50, 100, 200, 250, 500, 1000]),
                dice.pick(&[64, 128, 256, 512, 1024, 2048]),
            ),
            Self::Opposed if dice.below(2) == 0 => {
                sized(dice.doubling(1.0, 8.0), dice.doubling(0.5, 1.5))
            }
            Self::Opposed => sized(dice.doubling(0.25, 1.0), dice.doubling(8.0, 24.0)),
            Self::Large => sized(dice.doubling(4.0, 32.0), dice.doubling(1.0, 10.0)),
            _ => sized(dice.doubling(0.1, 16.0), dice.doubling(0.5, 16.0)),
        }
    }
}

/// People write round numbers: steps of a twentieth of a core and of 64 MiB.
fn sized(cores: f64, gib_per_core: f64) -> Size {
    let millicores = 50 * whole(cores * 20.0).max(1);
    (millicores, 64 * whole(cores * gib_per_core * 16.0).max(1))
}

fn whole(number: f64) -> u64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "float casts saturate, and nothing here is negative"
    )]
    let number = number.round() as u64;
    number
}

/// The pods of Alibaba's trace openb (cluster-trace-gpu-v2023, 8,152 pods of a production cluster), drawn from a distribution that
/// is fitted to five facts of `openb_pod_list_default.csv`; no line of the trace is here:
///
/// * 103 pairs of cores and memory occur, so there are 100 sizes;
/// * the most frequent of them has 20 % of the pods, the first five have 54 %, the first fourteen 78 %: Zipf's law with the
///   exponent 1.1 gives 23, 50 and 69 %;
/// * the cores of a pod are as in [`CORES`];
/// * the GiB for each core are as in [`GIB_PER_CORE`];
/// * amounts are not round (3,152 millicores, 30,517 MiB), so they are not rounded here.
///
/// Cores and GiB per core are drawn independently. GPUs, which seven of eight pods ask for, are left out: what is asked is how
/// cores and memory are packed.
fn openb(pods: u32, dice: &mut Dice) -> Vec<Size> {
    let sizes: Vec<Size> = (0..100)
        .map(|_| {
            let cores = quantile(&CORES, dice.share());
            let gib = cores * quantile(&GIB_PER_CORE, dice.share());
            (whole(1000.0 * cores), whole(1024.0 * gib))
        })
        .collect();
    let mut sum = 0.0;
    let up_to: Vec<f64> = (1..=sizes.len())
        .map(|rank| {
            sum += (rank as f64).powf(-1.1);
            sum
        })
        .collect();
    let one = |dice: &mut Dice| {
        let at = dice.share() * sum;
        let at = up_to.iter().position(|up_to| at < *up_to).unwrap_or(0);
        sizes[at]
    };
    (0..pods).map(|_| one(dice)).collect()
}

/// Shares of pods, and what so many have at most.
const CORES: [(f64, f64); 8] = [
    (0.0, 1.0),
    (0.1, 3.15),
    (0.25, 4.0),
    (0.5, 11.3),
    (0.75, 12.0),
    (0.9, 16.4),
    (0.99, 32.0),
    (1.0, 120.0),
];
const GIB_PER_CORE: [(f64, f64); 8] = [
    (0.0, 0.5),
    (0.1, 1.7),
    (0.25, 1.75),
    (0.5, 3.7),
    (0.75, 4.1),
    (0.9, 4.5),
    (0.99, 7.5),
    (1.0, 10.7),
];

/// Straight lines between what is known.
fn quantile(known: &[(f64, f64)], share: f64) -> f64 {
    let lines = known.windows(2).find(|two| share <= two[1].0);
    lines.map_or(0.0, |two| {
        let ((from, least), (to, most)) = (two[0], two[1]);
        least + (most - least) * (share - from) / (to - from)
    })
}

/// Equal sizes are one Deployment.
fn alike(sizes: Vec<Size>) -> Vec<Deployment> {
    let mut counts: BTreeMap<Size, u32> = BTreeMap::new();
    for size in sizes {
        *counts.entry(size).or_default() += 1;
    }
    let all = counts.into_iter().map(|((millicores, mebibytes), replicas)| Deployment {
        millicores,
        mebibytes,
        replicas,
        rule: Rule::None,
    });
    all.collect()
}

/// Cores and memory of the pods of a list such as openb's: comma-separated, with a heading that has `cpu_milli` and `memory_mib`.
pub(super) fn read_trace(file: &Path) -> Result<Vec<Size>> {
    let text = fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))?;
    trace(&text).with_context(|| format!("reading the pods of {}", file.display()))
}

fn trace(text: &str) -> Result<Vec<Size>> {
    let mut lines = text.lines();
    let heading: Vec<_> = lines.next().unwrap_or_default().split(',').map(str::trim).collect();
    let column = |name: &str| {
        heading.iter().position(|known| *known == name).with_context(|| {
            format!("the first line names no column {name}; it has {}", heading.join(", "))
        })
    };
    let columns = [column("cpu_milli")?, column("memory_mib")?];
    let mut pods = Vec::new();
    for (at, line) in lines.enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let fields: Vec<_> = line.split(',').map(str::trim).collect();
        let [millicores, mebibytes] = columns.map(|column| {
            let text = fields.get(column).copied().unwrap_or_default();
            text.parse().with_context(|| format!("line {}: {text:?} is no amount", at + 2))
        });
        pods.push((millicores?, mebibytes?));
    }
    ensure!(!pods.is_empty(), "there are no pods in it");
    Ok(pods)
}

impl Deployment {
    /// As the files of problems have pods.
    pub(super) fn to_json(self, at: usize) -> impl Iterator<Item = Value> {
        let labels = json!({"app": format!("app-{at:03}")});
        let constraint = match self.rule {
            Rule::None => json!({}),
            Rule::Zones => spread(ZONE, &labels),
            Rule::Apart => affinity("podAntiAffinity", HOSTNAME, &labels),
        };
        let requests = json!({
            "cpu": format!("{}m", self.millicores),
            "memory": format!("{}Mi", self.mebibytes),
        });
        (0..self.replicas).map(move |pod| {
            let name = format!("app-{at:03}-{pod:04}");
            pod_json(&name, &labels, constraint.clone(), &requests)
        })
    }
}

/// What the lower bound knows of the pods. Of a Deployment that is spread over zones with a difference of one at most, each zone gets
/// at least a third, rounded down.
pub(super) fn sorts(deployments: &[Deployment]) -> Vec<Sort> {
    let mut plain: BTreeMap<Size, u32> = BTreeMap::new();
    let mut sorts = Vec::new();
    for one in deployments {
        let size = (one.millicores, one.mebibytes);
        let sort = Sort {
            requests: [one.millicores, one.mebibytes, 1],
            count: one.replicas,
            ..Sort::default()
        };
        match one.rule {
            Rule::None => *plain.entry(size).or_default() += one.replicas,
            Rule::Apart => sorts.push(Sort { most_per_machine: Some(1), ..sort }),
            Rule::Zones => {
                let zones = u32::try_from(ZONES.len()).unwrap_or(1);
                let count = one.replicas / zones;
                let in_zone = |zone| Sort { count, zone: Some(zone), ..sort.clone() };
                sorts.extend((0..ZONES.len()).filter(|_| count > 0).map(in_zone));
                if one.replicas % zones > 0 {
                    *plain.entry(size).or_default() += one.replicas % zones;
                }
            }
        }
    }
    let plain = plain.into_iter().map(|((millicores, mebibytes), count)| Sort {
        requests: [millicores, mebibytes, 1],
        count,
        ..Sort::default()
    });
    sorts.extend(plain);
    sorts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(deployments: &[Deployment]) -> u32 {
        deployments.iter().map(|one| one.replicas).sum()
    }

    #[test]
    fn mixes_have_as_many_pods_as_asked_for_and_follow_from_the_seed() {
        for mix in Mix::GENERATED {
            for pods in [1, 100, 5000] {
                let drawn = mix.draw(pods, 1, &[]);
                assert_eq!(count(&drawn), pods, "{mix:?}");
                assert_eq!(drawn, mix.draw(pods, 1, &[]), "{mix:?}");
                let bounded: u32 = sorts(&drawn).iter().map(|sort| sort.count).sum();
                assert_eq!(bounded, pods, "{mix:?}");
            }
            assert_ne!(mix.draw(100, 1, &[]), mix.draw(100, 2, &[]), "{mix:?}");
        }
    }

    #[test]
    fn the_fit_has_the_medians_of_the_trace() {
        let (mut cores, mut ratios, mut first) = (Vec::new(), Vec::new(), 0.0);
        for seed in 0..100 {
            let drawn = Mix::Openb.draw(1000, seed, &[]);
            assert!(drawn.len() <= 100);
            first += f64::from(drawn.iter().map(|one| one.replicas).max().unwrap()) / 1000.0;
            for one in drawn {
                let ratio = one.mebibytes as f64 / 1.024 / one.millicores as f64;
                for _ in 0..one.replicas {
                    cores.push(one.millicores as f64 / 1000.0);
                    ratios.push(ratio);
                }
            }
        }
        let median = |mut numbers: Vec<f64>| {
            numbers.sort_by(f64::total_cmp);
            numbers[numbers.len() / 2]
        };
        let (cores, ratio) = (median(cores), median(ratios));
        assert!((10.5..12.0).contains(&cores), "{cores} cores");
        assert!((3.4..4.0).contains(&ratio), "{ratio} GiB per core");
        assert!((20.0..28.0).contains(&first), "{first} % are of the most frequent size");
    }

    #[test]
    fn reads_lists_of_pods_by_their_heading() {
        let list =
            "name,cpu_milli,memory_mib,num_gpu,qos\npod-0,12000,16384,1,LS\npod-1,3152,5600,0,BE\n";
        assert_eq!(trace(list).unwrap(), [(12_000, 16_384), (3152, 5600)]);
        let check = |text: &str, expect: &str| {
            let error = format!("{:#}", trace(text).unwrap_err());
            assert!(error.contains(expect), "{error}");
        };
        check("name,cores\n", "names no column cpu_milli; it has name, cores");
        check("cpu_milli,memory_mib\n1000,much\n", "line 2: \"much\" is no amount");
        check("cpu_milli,memory_mib\n", "there are no pods");
    }

    #[test]
    fn a_third_of_what_is_spread_is_in_each_zone() {
        let spread = Deployment { millicores: 1, mebibytes: 1, replicas: 8, rule: Rule::Zones };
        let counts: Vec<_> = sorts(&[spread]).iter().map(|sort| (sort.zone, sort.count)).collect();
        assert_eq!(counts, [(Some(0), 2), (Some(1), 2), (Some(2), 2), (None, 2)]);
    }
}
