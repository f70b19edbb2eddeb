//! What a label makes of the nodes: those with the same value are one domain.

use super::floor::Slot;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The domains of one label, as numbers: looking them up by text for every node and pod would be most of the work.
#[derive(Debug)]
pub(super) struct Domains {
    /// By slot; none where the node lacks the label.
    of: Vec<Option<usize>>,
    count: usize,
}

impl Domains {
    /// `values` by slot.
    pub(super) fn new<'a>(values: impl Iterator<Item = Option<&'a str>>) -> Self {
        let mut numbers = BTreeMap::new();
        let mut number = |value| {
            let next = numbers.len();
            *numbers.entry(value).or_insert(next)
        };
        let of = values.map(|value| value.map(&mut number)).collect();
        Self { count: numbers.len(), of }
    }

    pub(super) fn has(&self, slot: Slot) -> bool {
        self.domain(slot).is_some()
    }

    /// How many domains these nodes are in.
    pub(super) fn among(&self, nodes: &[Slot]) -> usize {
        let mut found = vec![false; self.count];
        nodes.iter().filter_map(|slot| self.domain(*slot)).for_each(|domain| found[domain] = true);
        found.into_iter().filter(|found| *found).count()
    }

    fn domain(&self, slot: Slot) -> Option<usize> {
        self.of.get(slot).copied().flatten()
    }
}

/// How many pods of a sort are in each domain.
#[derive(Debug)]
pub(super) struct Census {
    pub(super) domains: Arc<Domains>,
    /// By domain; none where no node of it was looked at.
    counts: Vec<Option<i64>>,
}

impl Census {
    /// Of pods counted by slot, on these nodes.
    pub(super) fn new(
        domains: Arc<Domains>,
        pods: &[u32],
        nodes: impl Iterator<Item = Slot>,
    ) -> Self {
        let mut counts = vec![None; domains.count];
        for slot in nodes {
            if let Some(domain) = domains.domain(slot) {
                let more = pods.get(slot).copied().map_or(0, i64::from);
                *counts[domain].get_or_insert(0) += more;
            }
        }
        Self { domains, counts }
    }

    /// In the node's domain.
    pub(super) fn around(&self, slot: Slot) -> i64 {
        self.domains.domain(slot).and_then(|domain| self.counts[domain]).unwrap_or(0)
    }

    /// The domains that were looked at.
    pub(super) fn each(&self) -> impl Iterator<Item = i64> {
        self.counts.iter().copied().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_are_counted_by_the_value_of_a_label() {
        let zones = [Some("a"), Some("b"), None, Some("a"), Some("c")];
        let domains = Arc::new(Domains::new(zones.into_iter()));
        assert_eq!(domains.among(&[0, 2, 3]), 1);
        assert_eq!(domains.among(&[0, 1, 4]), 3);
        let census = Census::new(domains.clone(), &[1, 2, 7, 4], [0, 2, 3, 4].into_iter());
        let around: Vec<_> = (0..6).map(|slot| census.around(slot)).collect();
        assert_eq!(around, [5, 0, 0, 5, 0, 0]);
        assert_eq!(census.each().collect::<Vec<_>>(), [5, 0], "b was not looked at");
        assert!(domains.has(0) && !domains.has(2) && !domains.has(9));
    }
}
