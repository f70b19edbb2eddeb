//! What a comparison comes to, in one sentence.

use crate::{
    compare::Comparison,
    policy::{BASELINE, DEFAULTS},
    report::Summary,
};

/// Karpenter's own consolidation, which others are measured by where it was run.
const PARITY: &str = "parity";

impl Comparison {
    /// Kerf's defaults against Karpenter's policy where both were run; otherwise the calmest policy that costs no more against
    /// the first.
    pub fn verdict(&self) -> String {
        let length = self.shown_length();
        let (first, others) = match &self.policies[..] {
            [] => return "No policy was run.".to_owned(),
            [one] => {
                let (cost, pods) = (dollars(one.cost), pods(one.evictions));
                return format!("In {length}, {} costs {cost} and evicts {pods}.", one.name);
            }
            [first, others @ ..] => (first, others),
        };
        let same = |other: &Summary| (other.cost, other.evictions) == (first.cost, first.evictions);
        if others.iter().all(same) {
            let (cost, pods) = (dollars(first.cost), pods(first.evictions));
            return format!(
                "The policies make no difference here: each costs {cost} and evicts {pods} in {length}."
            );
        }
        let named = |name: &str| self.policies.iter().find(|policy| policy.name == name);
        let by = named(PARITY).or_else(|| self.policies.iter().find(|it| it.name != BASELINE));
        let by = by.unwrap_or(first);
        let chosen = named(DEFAULTS).filter(|it| it.name != by.name).or_else(|| {
            let rest = self.policies.iter().filter(|it| it.name != by.name);
            let affordable = rest.clone().filter(|it| it.cost <= by.cost * 1.005);
            let calmest = |a: &&Summary, b: &&Summary| {
                a.evictions.cmp(&b.evictions).then(a.cost.total_cmp(&b.cost))
            };
            affordable.min_by(calmest).or_else(|| rest.min_by(|a, b| a.cost.total_cmp(&b.cost)))
        });
        let chosen = chosen.unwrap_or(first);
        if (chosen.cost, chosen.evictions) == (by.cost, by.evictions) {
            return format!(
                "{} comes to the same as {} here: {} evicted and {} in {length}.",
                chosen.name,
                by.name,
                pods(chosen.evictions),
                dollars(chosen.cost)
            );
        }
        format!(
            "{} evicts {} in {length}, {} {} ({}), and costs {}, {}.",
            chosen.name,
            pods(chosen.evictions),
            than(
                chosen.evictions as f64,
                by.evictions as f64,
                ["fewer than", "more than", "as many as"]
            ),
            by.name,
            by.evictions,
            dollars(chosen.cost),
            match than(chosen.cost, by.cost, ["less", "more", ""]).as_str() {
                " " | "" => "the same".to_owned(),
                difference => format!("{} than {}", difference.trim_end(), dollars(by.cost)),
            }
        )
    }
}

/// How one amount differs from another, in percent.
fn than(one: f64, other: f64, [less, more, same]: [&str; 3]) -> String {
    let percent = if other == 0.0 { 0.0 } else { (one - other) / other * 100.0 };
    let shown = |percent: f64| {
        if percent < 1.0 { format!("{percent:.1} %") } else { format!("{percent:.0} %") }
    };
    match percent {
        _ if other == 0.0 && one > 0.0 => more.to_owned(),
        percent if percent <= -0.05 => format!("{} {less}", shown(-percent)),
        percent if percent >= 0.05 => format!("{} {more}", shown(percent)),
        _ => same.to_owned(),
    }
}

fn dollars(amount: f64) -> String {
    format!("${amount:.2}")
}

fn pods(count: u64) -> String {
    format!("{count} pod{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sentence_has_the_figures_that_decide() {
        let policy = |(name, cost, evictions): &(&str, f64, u64)| Summary {
            name: (*name).to_owned(),
            cost: *cost,
            evictions: *evictions,
            ..Summary::default()
        };
        for (policies, expected) in [
            (&[("parity", 12.5, 1)][..], "In 24 hours, parity costs $12.50 and evicts 1 pod."),
            (
                &[("parity", 100.0, 322), ("when-empty", 130.0, 0), ("kerf-defaults", 101.0, 65)],
                "kerf-defaults evicts 65 pods in 24 hours, 80 % fewer than parity (322), and costs $101.00, 1 % more than $100.00.",
            ),
            (
                &[("kerf-defaults", 100.0, 10), ("parity", 100.0, 10)],
                "The policies make no difference here: each costs $100.00 and evicts 10 pods in 24 hours.",
            ),
            (
                &[("a", 100.0, 10), ("b", 100.2, 4), ("c", 90.0, 8), ("d", 150.0, 0)],
                "b evicts 4 pods in 24 hours, 60 % fewer than a (10), and costs $100.20, 0.2 % more than $100.00.",
            ),
            (
                &[("parity", 100.0, 10), ("kerf-defaults", 100.0, 10), ("when-empty", 120.0, 0)],
                "kerf-defaults comes to the same as parity here: 10 pods evicted and $100.00 in 24 hours.",
            ),
            (
                &[("a", 100.0, 10), ("b", 100.0, 4)],
                "b evicts 4 pods in 24 hours, 60 % fewer than a (10), and costs $100.00, the same.",
            ),
        ] {
            let comparison = Comparison {
                scenario: String::new(),
                description: String::new(),
                hours: 24.0,
                seed: 1,
                seeds: 1,
                policies: policies.iter().map(policy).collect(),
                samples: Vec::new(),
                notes: Vec::new(),
            };
            assert_eq!(comparison.verdict(), expected);
        }
    }
}
