//! Which of the nodes that can take a pod is the best: kube-scheduler's default plugins and their weights.

use super::super::fitness;
use super::demand::{CPU_LANE, Demand, HOSTNAME, MEMORY_LANE};
use super::filter::{includes, sort_of};
use super::floor::{Floor, Place, Slot, Sort};
use kerf_model::Effect;

const BEST: i64 = 100;
const TAINTS_WEIGHT: i64 = 3;
const NODE_AFFINITY_WEIGHT: i64 = 2;
const SPREAD_WEIGHT: i64 = 2;
const POD_AFFINITY_WEIGHT: i64 = 2;

/// One score per node, in the order of `nodes`.
pub(super) fn scores(floor: &Floor, demand: &Demand, nodes: &[Slot], order: &[Slot]) -> Vec<i64> {
    let mut scores: Vec<_> =
        nodes.iter().map(|slot| room_score(floor.place(*slot), demand)).collect();
    let mut add = |weight: i64, part: Vec<i64>| {
        scores.iter_mut().zip(part).for_each(|(score, part)| *score += weight * part);
    };
    let avoided = raw(floor, nodes, |place| {
        let taints = place.facts.iter().flat_map(|facts| &facts.taints);
        let soft = taints.filter(|taint| taint.effect == Effect::PreferNoSchedule);
        soft.map(|taint| i64::from(!fitness::tolerated(taint, &demand.tolerations))).sum()
    });
    // Where no node has such a taint, all nodes get the same, which decides nothing.
    if avoided.iter().any(|count| *count > 0) {
        add(TAINTS_WEIGHT, fewer_is_better(&avoided));
    }
    if demand.nodes.prefers() {
        let preferred = raw(floor, nodes, |place| {
            place.facts.as_ref().map_or(0, |facts| demand.nodes.preference(facts))
        });
        add(NODE_AFFINITY_WEIGHT, more_is_better(&preferred));
    }
    if !demand.soft_spread.is_empty() {
        add(SPREAD_WEIGHT, spread_scores(floor, demand, nodes, order));
    }
    if !demand.preferred.is_empty() {
        let mut company = vec![0; nodes.len()];
        for (weight, term) in &demand.preferred {
            let census = floor.census(&sort_of(term), &term.key, order.iter().copied());
            for (slot, sum) in nodes.iter().zip(&mut company) {
                *sum += weight * census.around(*slot);
            }
        }
        add(POD_AFFINITY_WEIGHT, stretched(&company));
    }
    scores
}

/// The fewer pods of its sort share a node's domains, the better; domains weigh more the more of them there are.
#[expect(clippy::cast_possible_truncation, reason = "counts of pods, rounded")]
fn spread_scores(floor: &Floor, demand: &Demand, nodes: &[Slot], order: &[Slot]) -> Vec<i64> {
    let domains: Vec<_> = demand.soft_spread.iter().map(|s| floor.domains(&s.key)).collect();
    // A node without the domains that a pod itself asks for is the last choice.
    let counts_in =
        |slot: Slot| demand.spreads_by_default || domains.iter().all(|domains| domains.has(slot));
    let counted: Vec<Slot> = nodes.iter().copied().filter(|slot| counts_in(*slot)).collect();
    let mut crowd = vec![0.0; nodes.len()];
    for (spread, domains) in demand.soft_spread.iter().zip(&domains) {
        let sort = Sort { scopes: vec![spread.scope.clone()], staying_only: true };
        let is_included = |slot: &Slot| {
            let facts = floor.place(*slot).facts.as_ref();
            facts.is_some_and(|facts| includes(spread, demand, facts))
        };
        // A host is its own domain, and all that is on it counts.
        let on_host = floor.counts(&sort);
        let by_domain = (spread.key != HOSTNAME).then(|| {
            let included = order.iter().copied().filter(is_included);
            floor.census(&sort, &spread.key, included)
        });
        let around = |slot: Slot| match &by_domain {
            Some(census) => census.around(slot),
            None => on_host.get(slot).copied().map_or(0, i64::from),
        };
        let sizes = if by_domain.is_none() { counted.len() } else { domains.among(&counted) };
        let weight = (sizes as f64 + 2.0).ln();
        for (slot, crowd) in nodes.iter().zip(&mut crowd).filter(|(slot, _)| domains.has(**slot)) {
            *crowd += around(*slot) as f64 * weight + (spread.max_skew - 1) as f64;
        }
    }
    let crowd: Vec<i64> = crowd.into_iter().map(|one: f64| one.round() as i64).collect();
    let of_counted = || nodes.iter().zip(&crowd).filter(|(slot, _)| counts_in(**slot));
    let most = of_counted().map(|(_, crowd)| *crowd).max().unwrap_or(0);
    let least = of_counted().map(|(_, crowd)| *crowd).min().unwrap_or(0);
    let score = |(slot, crowd): (&Slot, &i64)| match (counts_in(*slot), most) {
        (false, _) => 0,
        (true, 0) => BEST,
        (true, most) => BEST * (most + least - crowd) / most,
    };
    nodes.iter().zip(&crowd).map(score).collect()
}

/// Least allocated, and no worse balanced between CPU and memory than before.
fn room_score(place: &Place, demand: &Demand) -> i64 {
    let lanes = [CPU_LANE, MEMORY_LANE];
    let total = lanes.map(|lane| place.allocatable.get(lane).copied().unwrap_or(0));
    let (mut free, mut counted) = (0, 0);
    for (lane, total) in total.iter().enumerate().filter(|(_, total)| **total > 0) {
        let taken = place.assumed[lane] + demand.assumed[lane];
        free += if taken > *total { 0 } else { (total - taken) * BEST / total };
        counted += 1;
    }
    let least_allocated = if counted == 0 { 0 } else { free / counted };
    let before = lanes.map(|lane| place.used.get(lane).copied().unwrap_or(0));
    let after = lanes.map(|lane| before[lane] + demand.room[lane]);
    let is_best_effort = lanes.iter().all(|lane| demand.room[*lane] == 0);
    let balance = if is_best_effort {
        0
    } else {
        BEST / 2 + (BEST / 2 + balance(after, total) - balance(before, total)) / 2
    };
    least_allocated + balance
}

#[expect(clippy::cast_possible_truncation, reason = "a number from 0 to 100")]
fn balance(used: [i64; 2], total: [i64; 2]) -> i64 {
    if total.contains(&0) {
        return BEST;
    }
    let share = |lane: usize| (used[lane] as f64 / total[lane] as f64).min(1.0);
    ((1.0 - ((share(0) - share(1)) / 2.0).abs()) * BEST as f64) as i64
}

fn raw(floor: &Floor, nodes: &[Slot], score: impl Fn(&Place) -> i64) -> Vec<i64> {
    nodes.iter().map(|slot| score(floor.place(*slot))).collect()
}

fn more_is_better(raw: &[i64]) -> Vec<i64> {
    let most = raw.iter().max().copied().unwrap_or(0);
    raw.iter().map(|score| if most == 0 { 0 } else { BEST * score / most }).collect()
}

fn fewer_is_better(raw: &[i64]) -> Vec<i64> {
    more_is_better(raw).into_iter().map(|score| BEST - score).collect()
}

fn stretched(raw: &[i64]) -> Vec<i64> {
    let most = raw.iter().max().copied().unwrap_or(0);
    let least = raw.iter().min().copied().unwrap_or(0);
    let range = most - least;
    raw.iter().map(|s| if range == 0 { 0 } else { BEST * (s - least) / range }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::actors::scheduler::demand::Lanes;
    use serde_json::json;

    fn demand(cpu: &str, memory: &str) -> Demand {
        let requests = json!({ "cpu": cpu, "memory": memory });
        let container =
            json!({ "name": "main", "image": "i", "resources": { "requests": requests } });
        let pod = json!({ "metadata": { "name": "p" }, "spec": { "containers": [container] } });
        Demand::of(&pod, &mut Lanes::default()).unwrap()
    }

    #[test]
    fn emptier_and_better_balanced_nodes_score_higher() {
        let place = |cpu: i64, memory: i64| Place {
            allocatable: vec![4_000, 4_000],
            used: vec![cpu, memory],
            assumed: [cpu, memory],
            ..Place::default()
        };
        let demand = demand("1", "1k");
        // Least allocated, the mean of what is left in percent; then balance, which is 75 where it does not change.
        for (cpu, memory, score) in [
            (0, 0, 75 + 75),
            (1_000, 1_000, 50 + 75),
            (3_000, 3_000, 75),
            (2_000, 0, 50 + 75),
            (0, 4_000, 37 + 81),
        ] {
            assert_eq!(room_score(&place(cpu, memory), &demand), score, "{cpu} {memory}");
        }
    }

    #[test]
    fn raw_scores_are_brought_to_a_common_scale() {
        assert_eq!(more_is_better(&[0, 5, 10]), [0, 50, 100]);
        assert_eq!(more_is_better(&[0, 0]), [0, 0]);
        assert_eq!(fewer_is_better(&[0, 1, 4]), [100, 75, 0]);
        assert_eq!(stretched(&[-10, 0, 10]), [0, 50, 100]);
        assert_eq!(stretched(&[7, 7]), [0, 0]);
    }
}
