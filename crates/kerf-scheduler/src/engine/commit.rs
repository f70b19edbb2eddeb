//! Assigning a pod to a place.

use std::sync::Arc;

use super::constraints::Accepted;
use super::{Engine, Place};
use crate::attached::Attached;
use crate::claims::Claim;
use crate::class::ClassId;

impl Engine<'_> {
    pub(super) fn commit_to_node(&mut self, pod: u32, class: ClassId, index: usize) {
        let spec = Arc::clone(&self.classes[class.index()].spec);
        self.existing.take(index, pod, &spec);
        self.record(class, Place::Node(index));
    }

    pub(super) fn commit_to_claim(
        &mut self,
        pod: u32,
        class: ClassId,
        index: usize,
        accepted: Accepted,
    ) {
        let spec = Arc::clone(&self.classes[class.index()].spec);
        self.claims.add_pod(index, pod, &spec.base.key.requests);
        let claim = &mut self.claims.all[index];
        claim.set = accepted.set;
        claim.rows.copy_from(&self.scratch.rows);
        claim.ports.extend_from_slice(spec.ports());
        if self.templates[claim.template].limits_volumes() {
            spec.attach_to(&mut claim.attached);
        }
        self.reservations.exchange(&claim.reservations, &accepted.reservations);
        claim.reservations = accepted.reservations;
        self.record(class, Place::Claim(index));
    }

    pub(super) fn commit_to_new_claim(
        &mut self,
        pod: u32,
        class: ClassId,
        template: usize,
        accepted: Accepted,
    ) -> usize {
        let spec = Arc::clone(&self.classes[class.index()].spec);
        self.reservations.exchange(&[], &accepted.reservations);
        let mut attached = Attached::default();
        if self.templates[template].limits_volumes() {
            spec.attach_to(&mut attached);
        }
        let claim = Claim {
            template,
            set: accepted.set,
            rows: self.scratch.rows.clone(),
            requests: spec.base.key.requests.clone(),
            ports: spec.ports().to_vec(),
            attached,
            reservations: accepted.reservations,
            min_values_relaxed: accepted.min_values_relaxed,
            pods: vec![pod],
            ceiling: None,
        };
        self.limits[template].take_largest(&self.templates[template], &claim.rows);
        let index = self.claims.open(claim);
        self.record(class, Place::Claim(index));
        index
    }
}
