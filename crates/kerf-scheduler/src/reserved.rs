//! Capacity reservations: how many instances each has left within a run.

use kerf_model::ReservationId;
use rustc_hash::FxHashMap;

use crate::algebra::id;
use crate::template::Template;

#[derive(Clone, Debug, Default)]
pub(crate) struct ReservationManager {
    all: Vec<ReservationId>,
    /// At first, and now.
    capacity: Vec<u32>,
    left: Vec<u32>,
    ids: FxHashMap<ReservationId, u32>,
}

impl ReservationManager {
    /// Offerings that share a reservation may disagree about what is left; the least is believed.
    pub(crate) fn new(templates: &[Template]) -> Self {
        let mut reservations = Self::default();
        for offering in templates.iter().flat_map(|template| &template.reserved) {
            let at = *reservations.ids.entry(offering.id.clone()).or_insert_with(|| {
                reservations.all.push(offering.id.clone());
                reservations.left.push(offering.capacity);
                id(reservations.left.len() - 1)
            });
            let left = &mut reservations.left[at as usize];
            *left = (*left).min(offering.capacity);
        }
        reservations.capacity.clone_from(&reservations.left);
        reservations
    }

    pub(crate) fn id(&self, reservation: &ReservationId) -> Option<u32> {
        self.ids.get(reservation).copied()
    }

    /// What the provider's label calls it, if it has one.
    pub(crate) fn name(&self, reservation: u32) -> Option<&str> {
        match &self.all[reservation as usize] {
            ReservationId::Named(name) => Some(name),
            ReservationId::Offering { .. } => None,
        }
    }

    /// Whether it had room when the run began: what is taken now may be given back within the run.
    pub(crate) fn had_room(&self, reservation: u32) -> bool {
        self.capacity[reservation as usize] > 0
    }

    /// One more slot, as if it had been there from the beginning. A reservation that no offering names gets none: what is gone
    /// does not come back because a node of it goes.
    pub(crate) fn credit(&mut self, reservation: &ReservationId) {
        let Some(at) = self.id(reservation) else { return };
        self.capacity[at as usize] += 1;
        self.left[at as usize] += 1;
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

    fn reservations(left: &[u32]) -> ReservationManager {
        let all: Vec<_> =
            (0..left.len()).map(|at| ReservationId::Named(format!("r-{at}"))).collect();
        ReservationManager {
            ids: all.iter().enumerate().map(|(at, name)| (name.clone(), id(at))).collect(),
            all,
            capacity: left.to_vec(),
            left: left.to_vec(),
        }
    }

    #[test]
    fn what_is_left_or_held_can_be_held() {
        for (left, held, asked, expect) in [
            (&[1][..], &[][..], 0, true),
            (&[2], &[], 0, true),
            (&[0], &[], 0, false),
            (&[0], &[0], 0, true),
            (&[1], &[0], 0, true),
            (&[0, 1], &[], 1, true),
            (&[0, 1], &[], 0, false),
            (&[0, 1], &[1], 0, false),
            (&[0, 0], &[0, 1], 1, true),
        ] {
            assert_eq!(
                reservations(left).can_hold(asked, held),
                expect,
                "{left:?} {held:?} {asked}"
            );
        }
    }

    #[test]
    fn claims_hold_until_they_release() {
        for (what, left, exchanges, expect) in [
            ("taking one", &[1, 2][..], &[(&[][..], &[0][..])][..], &[0, 2][..]),
            ("taking several", &[1, 2], &[(&[], &[0, 1])], &[0, 1]),
            ("holding on takes nothing", &[1, 2], &[(&[], &[0]), (&[0], &[0])], &[0, 2]),
            ("growing takes the new one alone", &[1, 2], &[(&[], &[0]), (&[0], &[0, 1])], &[0, 1]),
            ("shrinking gives the rest back", &[1, 2], &[(&[], &[0, 1]), (&[0, 1], &[1])], &[1, 1]),
            ("releasing all", &[1, 2], &[(&[], &[0, 1]), (&[0, 1], &[])], &[1, 2]),
            ("moving on", &[1, 1], &[(&[], &[0]), (&[0], &[1])], &[1, 0]),
            ("two claims", &[2], &[(&[], &[0]), (&[], &[0])], &[0]),
            ("one of two releases", &[2], &[(&[], &[0]), (&[], &[0]), (&[0], &[])], &[1]),
            ("and the next takes its place", &[1], &[(&[], &[0]), (&[0], &[]), (&[], &[0])], &[0]),
            ("nothing for nothing", &[3], &[(&[], &[])], &[3]),
        ] {
            let mut reservations = reservations(left);
            for (before, after) in exchanges {
                reservations.exchange(before, after);
            }
            assert_eq!(reservations.left, expect, "{what}");
        }
    }

    #[test]
    fn a_credit_is_one_more_slot_of_a_known_reservation() {
        let mut reservations = reservations(&[0, 2]);
        assert!(!reservations.had_room(0) && !reservations.can_hold(0, &[]));
        reservations.credit(&ReservationId::Named("r-0".to_owned()));
        reservations.credit(&ReservationId::Named("unknown".to_owned()));
        assert_eq!(
            (&reservations.left[..], &reservations.capacity[..]),
            (&[1, 2][..], &[1, 2][..])
        );
        assert!(reservations.had_room(0) && reservations.can_hold(0, &[]));
        reservations.exchange(&[], &[0]);
        assert!(!reservations.can_hold(0, &[]));
    }

    #[test]
    fn unknown_names_have_no_id() {
        let reservations = reservations(&[1]);
        let named = |name: &str| ReservationId::Named(name.to_owned());
        assert_eq!(reservations.id(&named("r-0")), Some(0));
        assert_eq!(reservations.name(0), Some("r-0"));
        assert_eq!(reservations.id(&named("other")), None);
    }
}
