//! Instances as the cloud has them, and the claims that they were launched for.

use std::collections::BTreeMap;

use super::{Checker, Invariant, Millis, clock};

/// The operator looks for instances without a claim every two minutes. The cloud may take ten minutes to end one.
const COLLECTION: Millis = 20 * 60_000;
/// How often that is looked for: it changes slowly.
const EACH: Millis = 60_000;

/// An instance that is no Node, and the claim that it was launched for.
#[derive(Clone, Debug)]
pub struct Instance {
    pub id: String,
    /// Empty: nobody launched it for a claim.
    pub claim_uid: String,
    pub is_alive: bool,
}

/// Since when instances have had no claim, by the uid of the claim that they had.
#[derive(Debug, Default)]
pub(super) struct Orphans {
    since: BTreeMap<String, Millis>,
    /// When all was well again; `None`: it is not.
    pub(super) calm: Option<Millis>,
    looked: Millis,
}

impl Checker {
    /// From now on nothing goes wrong and no user changes anything.
    pub fn is_calm(&mut self, now: Millis) {
        self.tick(now);
        self.orphans = Orphans { calm: Some(self.now), looked: self.now, ..Orphans::default() };
    }

    /// All instances of the cloud that are no Nodes, also those that have ended, as long as the cloud knows of them.
    pub fn saw_instances(&mut self, now: Millis, all: Vec<Instance>) {
        self.tick(now);
        let before = std::mem::take(&mut self.instances);
        for one in all {
            let is_new = !before.contains_key(&one.id) && !one.claim_uid.is_empty();
            let (id, uid) = (one.id.clone(), one.claim_uid.clone());
            self.instances.insert(id.clone(), one);
            if is_new {
                self.launched(&id, &uid);
            }
        }
        self.collects();
    }

    fn launched(&mut self, id: &str, uid: &str) {
        // An instance may end before the answer to its launch has come. Then its claim rightly gets another.
        let others = self.instances.values().filter(|it| it.claim_uid == uid && it.is_alive);
        let same: Vec<_> = others.map(|it| it.id.as_str()).collect();
        if same.len() > 1 {
            let what = format!("claim {uid} has the instances {}", same.join(", "));
            self.note(Invariant::OneInstancePerClaim, what);
        }
        // It is seen some seconds after its launch, and a user may have removed the finalizer since.
        let claim = self.claims.iter().find(|(_, it)| it.uid == uid);
        if let Some((claim, _)) = claim.filter(|(_, it)| !it.had_finalizer) {
            let what = format!("NodeClaim {claim} has the instance {id} and no finalizer");
            self.note(Invariant::FinalizerBeforeInstance, what);
        }
    }

    /// Whether it is an instance of which the cloud says that it has ended, or no longer says anything.
    pub(super) fn has_ended(&self, instance: &str) -> bool {
        instance.starts_with("i-") && self.instances.get(instance).is_none_or(|it| !it.is_alive)
    }

    fn collects(&mut self) {
        let Some(calm) = self.orphans.calm else { return };
        if self.orphans.looked + EACH > self.now {
            return;
        }
        self.orphans.looked = self.now;
        let before = std::mem::take(&mut self.orphans.since);
        for (uid, instances) in self.of_claims() {
            if self.claims.values().any(|claim| claim.uid == *uid) {
                continue;
            }
            let since = before.get(&uid).copied().unwrap_or(self.now);
            self.orphans.since.insert(uid.clone(), since);
            if since.max(calm) + COLLECTION <= self.now {
                let since = clock(since);
                let what = format!("{instances:?}, launched for claim {uid}, since {since}");
                self.note(Invariant::InstancesHaveClaims, what);
            }
        }
    }

    /// The instances that stay, by the uid of the claim that they were launched for.
    fn of_claims(&self) -> BTreeMap<String, Vec<String>> {
        // A Node that goes is an instance until its last pod has gone.
        let stays = |name: &String, is_deleting: bool| !(is_deleting && self.is_held(name));
        let nodes = self.nodes.iter().filter(|(name, node)| stays(name, node.is_deleting));
        let of_nodes = nodes.map(|(name, node)| (name, &node.claim_uid));
        let alive = self.instances.values().filter(|it| it.is_alive);
        let others = alive.map(|it| (&it.id, &it.claim_uid));
        let mut uids = BTreeMap::<String, Vec<String>>::new();
        for (instance, uid) in of_nodes.chain(others).filter(|(_, uid)| !uid.is_empty()) {
            uids.entry(uid.clone()).or_default().push(instance.clone());
        }
        uids
    }

    pub(super) fn without_claim(&self) -> Vec<(Invariant, String)> {
        let mut found = Vec::new();
        for (uid, instances) in self.of_claims() {
            if !self.claims.values().any(|claim| claim.uid == uid) {
                let what = format!("{instances:?}, launched for claim {uid}");
                found.push((Invariant::InstancesHaveClaims, what));
            }
            if instances.len() > 1 {
                let what = format!("claim {uid} has {instances:?}");
                found.push((Invariant::OneInstancePerClaim, what));
            }
        }
        found
    }
}
