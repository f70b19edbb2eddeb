//! Capacity reservations: how many instances each has left within a run.

use rustc_hash::FxHashMap;

use crate::algebra::id;
use crate::template::Template;

#[derive(Clone, Debug, Default)]
pub(crate) struct Reservations {
    names: Vec<String>,
    left: Vec<u32>,
    ids: FxHashMap<String, u32>,
}

impl Reservations {
    /// Offerings that share a reservation may disagree about what is left; the least is believed.
    pub(crate) fn new(templates: &[Template]) -> Self {
        let mut reservations = Self::default();
        for offering in templates.iter().flat_map(|template| &template.reserved) {
            let at = *reservations.ids.entry(offering.id.clone()).or_insert_with(|| {
                reservations.names.push(offering.id.clone());
                reservations.left.push(offering.capacity);
                id(reservations.left.len() - 1)
            });
            let left = &mut reservations.left[at as usize];
            *left = (*left).min(offering.capacity);
        }
        reservations
    }

    pub(crate) fn id(&self, name: &str) -> Option<u32> {
        self.ids.get(name).copied()
    }

    pub(crate) fn name(&self, reservation: u32) -> &str {
        &self.names[reservation as usize]
    }

    /// Whether a claim that holds `held` may (go on to) hold this one.
    pub(crate) fn can_hold(&self, reservation: u32, held: &[u32]) -> bool {
        held.contains(&reservation) || self.left[reservation as usize] > 0
    }

    /// A claim that held `before` holds `after` from now on.
    pub(crate) fn exchange(&mut self, before: &[u32], after: &[u32]) {
        for released in before.iter().filter(|reservation| !after.contains(reservation)) {
            self.left[*released as usize] += 1;
        }
        for taken in after.iter().filter(|reservation| !before.contains(reservation)) {
            let left = &mut self.left[*taken as usize];
            debug_assert!(*left > 0, "only what can be held is taken");
            *left = left.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reservations(left: &[u32]) -> Reservations {
        let names: Vec<_> = (0..left.len()).map(|at| format!("r-{at}")).collect();
        Reservations {
            ids: names.iter().enumerate().map(|(at, name)| (name.clone(), id(at))).collect(),
            names,
            left: left.to_vec(),
        }
    }

    #[test]
    fn claims_hold_until_they_release() {
        let mut reservations = reservations(&[1, 2, 0]);
        assert!(reservations.can_hold(0, &[]) && !reservations.can_hold(2, &[]));
        assert!(reservations.can_hold(2, &[2]), "what is held can be kept");
        reservations.exchange(&[], &[0, 1]);
        assert_eq!(reservations.left, [0, 1, 0]);
        assert!(!reservations.can_hold(0, &[]) && reservations.can_hold(0, &[0]));
        reservations.exchange(&[0, 1], &[0, 1]);
        assert_eq!(reservations.left, [0, 1, 0], "holding on takes nothing");
        reservations.exchange(&[0, 1], &[1]);
        assert_eq!(reservations.left, [1, 1, 0]);
    }

    #[test]
    fn unknown_names_have_no_id() {
        let reservations = reservations(&[1]);
        assert_eq!(reservations.id("r-0"), Some(0));
        assert_eq!(reservations.name(0), "r-0");
        assert_eq!(reservations.id("other"), None);
    }
}
