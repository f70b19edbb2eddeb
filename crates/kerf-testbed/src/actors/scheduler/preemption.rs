//! Making room for a pod by ending pods of lower priority, as kube-scheduler's default preemption does.

use super::super::desk::{BUDGETS, Deletion, Desk, PODS};
use super::super::pods;
use super::Scheduler;
use super::demand::{Demand, Lanes};
use super::filter::{self, Outlook};
use super::floor::{Floor, Slot};
use super::volumes::Volumes;
use crate::api::{Object, meta, selector};
use serde_json::{Value, json};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Room that a pod was promised when others were ended for it.
#[derive(Debug)]
pub(super) struct Nomination {
    node: String,
    uid: String,
    priority: i64,
    demand: Arc<Demand>,
}

impl Scheduler {
    /// The node that was promised to the pod if it has room now, else the best one. What others of its priority or above
    /// were promised is taken.
    pub(super) fn choose_beside_promises(
        &mut self,
        key: &Arc<str>,
        pod: &Value,
        demand: &Demand,
        volumes: &Volumes,
    ) -> Result<Slot, String> {
        let priority = priority(pod);
        let others = self.nominated.iter().filter(|(other, _)| *other != key);
        let promised: Vec<_> = others
            .filter(|(_, promise)| promise.priority >= priority)
            .map(|(k, _)| k.clone())
            .collect();
        for other in &promised {
            let promise = &self.nominated[other];
            self.floor.put_pod(other, &promise.uid, &promise.node, &promise.demand, false);
        }
        let own = self.nominated.get(key).and_then(|promise| self.floor.slot_of(&promise.node));
        let own = own.filter(|slot| {
            filter::prepare(&mut self.floor, demand);
            let order = self.floor.order();
            Outlook::new(&self.floor, demand, volumes, &order).judge(*slot, &self.lanes).is_ok()
        });
        let chosen = own.map_or_else(|| self.choose(demand, volumes), Ok);
        for other in &promised {
            self.floor.remove_pod(other);
        }
        chosen
    }

    /// Ends pods of lower priority where that lets this one in, and promises it their room.
    pub(super) fn make_room(
        &mut self,
        key: &Arc<str>,
        demand: &Demand,
        volumes: &Volumes,
        desk: &Desk,
    ) {
        let Some(pod) = desk.get(PODS, key) else { return };
        if pod.value["spec"]["preemptionPolicy"] == "Never" {
            return;
        }
        let priority = priority(&pod.value);
        let promised = self.nominated.get(key).and_then(|known| self.floor.slot_of(&known.node));
        if promised.is_some_and(|slot| is_under_way(&self.floor, slot, priority, desk)) {
            return;
        }
        let wanted = (demand, volumes);
        let found = find(&mut self.floor, &self.lanes, wanted, priority, desk);
        let Some(sacrifice) = found else { return };
        let Some(facts) = &self.floor.place(sacrifice.slot).facts else { return };
        let node = facts.name.clone();
        sacrifice.carry_out(desk);
        // Whoever of lower priority was promised this room has to look for another.
        let lost: Vec<_> = self
            .nominated
            .iter()
            .filter(|(_, promise)| promise.node == node && promise.priority < priority)
            .map(|(key, _)| key.clone())
            .collect();
        for key in lost {
            self.nominated.remove(&key);
            nominate(&key, None, desk);
        }
        let uid = meta::uid(&pod.value).to_owned();
        nominate(key, Some(&node), desk);
        let demand = Arc::new(demand.clone());
        self.nominated.insert(key.clone(), Nomination { node, uid, priority, demand });
    }
}

/// A node on which a pod will have room once these are gone.
#[derive(Debug)]
struct Sacrifice {
    slot: Slot,
    victims: Vec<Victim>,
    /// How many of them a disruption budget protects.
    protected: usize,
}

#[derive(Clone, Debug)]
struct Victim {
    key: Arc<str>,
    pod: Arc<Object>,
    priority: i64,
    /// As the API writes it: earlier times sort first.
    started: String,
    demand: Arc<Demand>,
    is_leaving: bool,
}

fn priority(pod: &Value) -> i64 {
    pod["spec"]["priority"].as_i64().unwrap_or(0)
}

/// Whether the room that was made for a pod is still being cleared: nobody else has to go meanwhile.
fn is_under_way(floor: &Floor, slot: Slot, priority: i64, desk: &Desk) -> bool {
    lower(floor, slot, priority, desk).iter().any(|victim| victim.is_leaving)
}

/// The node where the least is lost.
fn find(
    floor: &mut Floor,
    lanes: &Lanes,
    (demand, volumes): (&Demand, &Volumes),
    priority: i64,
    desk: &Desk,
) -> Option<Sacrifice> {
    filter::prepare(floor, demand);
    let order = floor.order();
    let outlook = Outlook::new(floor, demand, volumes, &order);
    let curable =
        |slot: &Slot| outlook.judge(*slot, lanes).is_err_and(|why| filter::is_curable(&why));
    let curable: Vec<Slot> = order.iter().copied().filter(curable).collect();
    let sacrifices = curable.into_iter().filter_map(|slot| {
        let victims = lower(floor, slot, priority, desk);
        let fits = |floor: &mut Floor| {
            Outlook::new(floor, demand, volumes, &order).judge(slot, lanes).is_ok()
        };
        let sacrifice = spare(floor, slot, &victims, fits, desk);
        for victim in &victims {
            put_back(floor, slot, victim);
        }
        sacrifice
    });
    sacrifices.min_by(|a, b| a.cost().cmp(&b.cost()))
}

/// Takes all victims away, and puts back whoever need not go: the protected first, then by importance.
fn spare(
    floor: &mut Floor,
    slot: Slot,
    victims: &[Victim],
    fits: impl Fn(&mut Floor) -> bool,
    desk: &Desk,
) -> Option<Sacrifice> {
    for victim in victims {
        floor.remove_pod(&victim.key);
    }
    if victims.is_empty() || !fits(floor) {
        return None;
    }
    let mut allowed = BTreeMap::new();
    let (protected, others): (Vec<_>, Vec<_>) =
        victims.iter().partition(|victim| is_protected(victim, &mut allowed, desk));
    let mut sacrifice = Sacrifice { slot, victims: Vec::new(), protected: 0 };
    for (victim, counts) in
        protected.into_iter().map(|it| (it, 1)).chain(others.into_iter().map(|it| (it, 0)))
    {
        put_back(floor, slot, victim);
        if !fits(floor) {
            floor.remove_pod(&victim.key);
            sacrifice.victims.push(victim.clone());
            sacrifice.protected += counts;
        }
    }
    Some(sacrifice)
}

impl Sacrifice {
    /// What the choice goes by, in kube-scheduler's order. Ties go to the first node.
    fn cost(&self) -> (usize, i64, i64, usize, Reverse<&str>) {
        let highest = self.victims.iter().map(|victim| victim.priority).max().unwrap_or(i64::MIN);
        // Lifted above zero, so that one more victim never makes a sum smaller.
        let sum = self.victims.iter().map(|victim| victim.priority + (1 << 31)).sum();
        let of_highest = self.victims.iter().filter(|victim| victim.priority == highest);
        let earliest = of_highest.map(|victim| victim.started.as_str()).min().unwrap_or_default();
        (self.protected, highest, sum, self.victims.len(), Reverse(earliest))
    }

    /// Ends the victims.
    fn carry_out(&self, desk: &Desk) {
        let now = desk.timestamp();
        for victim in self.victims.iter().filter(|victim| !victim.is_leaving) {
            let condition = json!({
                "type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler",
                "message": "default-scheduler: preempting to accommodate a higher priority pod",
            });
            // Whoever is gone by now need not be ended.
            let _ = desk.change_status(PODS, &victim.pod, |status| {
                pods::set_condition(status, condition, &now);
            });
            let _ = desk.delete(PODS, &victim.pod.value, Deletion::Background);
        }
    }
}

/// The pods of lower priority on a node, the most important first.
fn lower(floor: &Floor, slot: Slot, than: i64, desk: &Desk) -> Vec<Victim> {
    let mut victims = Vec::new();
    for (key, demand, is_leaving) in floor.pods_on(slot) {
        let Some(pod) = desk.get(PODS, key) else { continue };
        let priority = priority(&pod.value);
        if priority < than {
            let started = meta::text(&pod.value, &["status", "startTime"]).to_owned();
            let (key, demand) = (key.clone(), demand.clone());
            victims.push(Victim { key, pod, priority, started, demand, is_leaving });
        }
    }
    victims
        .sort_by(|a, b| (Reverse(a.priority), &a.started).cmp(&(Reverse(b.priority), &b.started)));
    victims
}

fn put_back(floor: &mut Floor, slot: Slot, victim: &Victim) {
    let uid = meta::uid(&victim.pod.value);
    let node = floor.place(slot).facts.as_ref().map(|facts| facts.name.clone());
    floor.put_pod(&victim.key, uid, &node.unwrap_or_default(), &victim.demand, victim.is_leaving);
}

/// Whether ending this pod, after those asked about before, would break a disruption budget.
fn is_protected(victim: &Victim, allowed: &mut BTreeMap<String, i64>, desk: &Desk) -> bool {
    let pod = &victim.pod.value;
    let mut broken = false;
    for budget in desk.list(BUDGETS, meta::namespace(pod)) {
        let budget = &budget.value;
        let covers = selector::Labels::from_object(&budget["spec"]["selector"]).matches(pod);
        let is_counted = budget["status"]["disruptedPods"].get(meta::name(pod)).is_some();
        if covers && !is_counted {
            let stated = budget["status"]["disruptionsAllowed"].as_i64().unwrap_or(0);
            let left = allowed.entry(meta::uid(budget).to_owned()).or_insert(stated);
            *left -= 1;
            broken |= *left < 0;
        }
    }
    broken
}

/// Writes on a pod where room is being made for it.
fn nominate(key: &str, node: Option<&str>, desk: &Desk) {
    let Some(pod) = desk.get(PODS, key) else { return };
    // Of a pod that is gone by now nothing needs to be said.
    let _ = desk.change_status(PODS, &pod, |status| {
        let status = meta::map_mut(status);
        match node {
            Some(node) => status.insert("nominatedNodeName".into(), node.into()),
            None => status.remove("nominatedNodeName"),
        };
    });
}
