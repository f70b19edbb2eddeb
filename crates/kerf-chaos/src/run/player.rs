//! A cluster, two replicas and the hands that carry out the actions of a plan.

use jiff::SignedDuration;
use kerf_controllers::operator::Timing;
use kerf_provider::Launched;
use kerf_stories::clouds::Cloud;
use kerf_testbed::{CloudFaults, EventLog, Offered, Testbed, Write, actors};
use serde_json::{Value, json};
use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

use super::{Account, Outcome, digest};
use crate::checker::{Instance, Millis, PRETENDER, clock};
use crate::coverage::Coverage;
use crate::hands::{Hands, kind_of, name};
use crate::journal::Judge;
use crate::plan::{Action, Crowd, NEVER_DETACHES, Plan};
use crate::replica::{Replica, Site};

/// How often processes that have ended are looked for.
const PULSE: Duration = Duration::from_secs(5);
/// A time that Kubernetes accepts and our types cannot hold.
const NEVER: &str = "9999-12-31T23:59:59Z";
const THEN: &str = "2026-01-01T00:00:00Z";
/// Longer than a lease lasts.
const SUSPENDED: Duration = Duration::from_secs(40);
/// So much is kept to be read.
const LINES: usize = 60;
const TOLD: usize = 5_000;

const OBSERVED: &[(&str, &str)] = &[
    ("", "nodes"),
    ("", "pods"),
    ("", "events"),
    ("karpenter.sh", "nodeclaims"),
    ("karpenter.sh", "nodepools"),
    ("policy", "poddisruptionbudgets"),
];

pub(super) struct Player {
    site: Site,
    actors: actors::Running,
    hands: Hands,
    /// On AWS.
    account: Option<Account>,
    replicas: [Replica; 2],
    start: Instant,
    coverage: Arc<Mutex<Coverage>>,
    watching: JoinHandle<()>,
    silenced: BTreeSet<String>,
    /// Kind, name and what mends it.
    spoilt: Vec<(&'static str, String, Value)>,
    refused: Vec<String>,
    played: Vec<String>,
    told: Arc<Mutex<Told>>,
}

/// What events say: when, about which object, and what.
type Told = VecDeque<(Millis, String, String)>;

impl Drop for Player {
    fn drop(&mut self) {
        self.watching.abort();
    }
}

fn tell(told: &Mutex<Told>, now: Millis, event: &Value) {
    let text = |pointer: &str| event.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let said: String = text("/message").chars().take(300).collect();
    let said = format!("{}: {said}", text("/reason"));
    let mut told = told.lock().unwrap_or_else(PoisonError::into_inner);
    told.push_back((now, text("/involvedObject/name").to_owned(), said));
    if told.len() > TOLD {
        told.pop_front();
    }
}

impl Player {
    pub(super) fn begin(plan: &Plan, of: Arc<dyn Cloud>, account: Option<Account>) -> Self {
        let testbed = Testbed::builder().seed(plan.seed).serving(of.crds()).start();
        let testbed = testbed.unwrap_or_else(|error| panic!("{error}"));
        let actors = testbed.start_actors(actors::Actors::default());
        of.begin(&testbed);
        let judge = Judge::new();
        let coverage = Arc::<Mutex<Coverage>>::default();
        let told = Arc::<Mutex<Told>>::default();
        let watching = {
            let (mut observer, judge) = (testbed.observe(OBSERVED), judge.clone());
            let (coverage, told) = (Arc::clone(&coverage), Arc::clone(&told));
            tokio::spawn(async move {
                loop {
                    let changes = observer.changes().await;
                    let mut checker = judge.lock();
                    let mut coverage = coverage.lock().unwrap_or_else(PoisonError::into_inner);
                    for it in &changes {
                        let now = judge.now();
                        checker.saw(now, it.resource(), it.key(), it.object(), it.is_gone());
                        coverage.see(it.resource(), it.object());
                        if it.resource() == "events" && !it.is_gone() {
                            tell(&told, now, it.object());
                        }
                    }
                }
            })
        };
        let timing = if plan.short_watches { Timing::default() } else { Timing::in_process() };
        Self {
            hands: Hands::new(&testbed),
            site: Site {
                cloud: CloudFaults::seeded(plan.seed),
                testbed,
                of,
                timing,
                judge,
                gates: plan.gates,
            },
            actors,
            account,
            replicas: [Replica::new(0), Replica::new(1)],
            start: Instant::now(),
            coverage,
            watching,
            silenced: BTreeSet::new(),
            spoilt: Vec::new(),
            refused: Vec::new(),
            played: Vec::new(),
            told,
        }
    }

    /// Stops at the first violation.
    pub(super) async fn play(mut self, plan: &Plan) -> Outcome {
        for timed in &plan.actions {
            self.until(self.start + Duration::from_millis(timed.at)).await;
            if self.site.judge.lock().has_failed() {
                break;
            }
            let line = format!("{} {}", clock(self.site.judge.now()), timed.action.describe());
            self.played.push(line);
            self.act(&timed.action).await;
        }
        self.end()
    }

    fn end(self) -> Outcome {
        let log = self.site.testbed.event_log();
        let mut coverage = self.coverage.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for replica in &self.replicas {
            coverage.read_metrics(&replica.metrics());
        }
        let checker = self.site.judge.lock();
        let violations = checker.violations().to_vec();
        let lines = match violations.first() {
            Some(first) => self.lines(&log, first.at, &first.what),
            None => Vec::new(),
        };
        let cluster = match violations.first() {
            Some(_) => self.site.testbed.dump().lines().map(str::to_owned).collect(),
            None => Vec::new(),
        };
        let launched = log
            .entries()
            .iter()
            .filter(|it| &*it.resource == "nodeclaims.karpenter.sh" && it.what == Write::Created);
        Outcome {
            digest: digest(log.entries()),
            writes: log.entries().len(),
            launched: launched.count(),
            disrupted: checker.commands(),
            refused: self.refused.clone(),
            coverage,
            log: lines,
            cluster,
            violations,
        }
    }

    /// What users and faults did, and what was written about the objects that the violation names.
    fn lines(&self, log: &EventLog, at: Millis, what: &str) -> Vec<String> {
        let epoch = log.entries().first().map(|it| it.time).unwrap_or_default();
        let named = |key: &str| {
            key.rsplit('/').next().is_some_and(|name| name.len() > 3 && what.contains(name))
        };
        let mut lines: Vec<String> = self.played.clone();
        let written = log.entries().iter().filter(|it| {
            named(&it.key) && !it.resource.starts_with("events") && &*it.resource != "leases"
        });
        lines.extend(written.filter_map(|it| {
            let then = Millis::try_from(it.time.duration_since(epoch).as_millis()).ok()?;
            let sign = match it.what {
                Write::Created => '+',
                Write::Changed => '~',
                Write::Removed => '-',
            };
            (then <= at).then(|| format!("{}   {sign} {} {}", clock(then), it.resource, it.key))
        }));
        let told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        // An event about a pod may be what names the node that the violation is about.
        let is_mentioned = |said: &str| {
            let mut words = said.split(|c: char| !(c.is_alphanumeric() || c == '-' || c == '.'));
            words.any(named)
        };
        let told = told
            .iter()
            .filter(|(then, name, said)| *then <= at && (named(name) || is_mentioned(said)));
        lines.extend(told.map(|(then, name, said)| format!("{}   ! {name} {said}", clock(*then))));
        lines.sort_by(|a, b| a[..8].cmp(&b[..8]));
        let skipped = lines.len().saturating_sub(LINES);
        lines.split_off(skipped)
    }

    /// Lets time pass, and looks after the replicas.
    async fn until(&mut self, then: Instant) {
        loop {
            for replica in &mut self.replicas {
                let mut reached = Coverage::default();
                replica.attend(&self.site, &mut reached).await;
                self.coverage.lock().unwrap_or_else(PoisonError::into_inner).add(&reached);
            }
            let now = self.site.judge.now();
            let instances = self.instances();
            let is_troubled = self.replicas.iter().any(Replica::is_troubled);
            let failed = {
                let mut checker = self.site.judge.lock();
                if is_troubled {
                    checker.is_troubled(now);
                }
                checker.saw_instances(now, instances);
                checker.has_failed()
            };
            if Instant::now() >= then || failed {
                return;
            }
            sleep_until(then.min(Instant::now() + PULSE)).await;
        }
    }

    /// What the cloud has that is no Node.
    fn instances(&self) -> Vec<Instance> {
        let nodeless = self.site.cloud.nodeless().into_iter().map(|it| Instance {
            id: it.provider_id,
            claim_uid: it.claim_uid.unwrap_or_default(),
            is_alive: true,
        });
        let of_account = self.account.as_ref().map(Account::instances).unwrap_or_default();
        nodeless.chain(of_account).collect()
    }

    async fn act(&mut self, action: &Action) {
        let mut reached = Coverage::default();
        let done = match action {
            Action::Create(object) => {
                let mut object = object.clone();
                self.site.of.translate(&mut object);
                self.hands.create(&object).await.map(drop)
            }
            Action::Patch { kind, name, patch } => self.patch(kind, name, patch).await,
            Action::Delete { kind, name } => {
                let mut kind = json!({"kind": kind});
                self.site.of.translate(&mut kind);
                let kind = kind["kind"].as_str().unwrap_or_default();
                // Whether there is one is up to what happened before.
                let _ = self.hands.delete(kind, name).await;
                Ok(())
            }
            Action::PatchOne { of, which, status, patch } => match self.pick(*of, *which).await {
                Some(one) => self.patch_one(kind_of(*of), name(&one), *status, patch).await,
                None => Ok(()),
            },
            Action::DeleteOne { of, which } => match self.pick(*of, *which).await {
                Some(one) => {
                    let _ = self.hands.delete(kind_of(*of), name(&one)).await;
                    Ok(())
                }
                None => Ok(()),
            },
            Action::Drain { which } => self.drain(*which).await,
            Action::Spoil { of, which } => self.spoil(*of, *which).await,
            Action::Pretend { which } => self.pretend(*which).await,
            Action::Api { replica, rules } => {
                self.replicas[*replica].meet(rules.clone());
                Ok(())
            }
            Action::Cloud(rules) => {
                self.site.cloud.clear();
                for rule in rules {
                    self.site.cloud.at_rate(rule.rate, rule.fault());
                }
                Ok(())
            }
            Action::Exhaust { instance_type, zone, capacity_type } => {
                let mut offered = Offered::any();
                if let Some(name) = instance_type {
                    offered = offered.instance_type(name);
                }
                if let Some(zone) = zone {
                    offered = offered.zone(zone);
                }
                if let Some(capacity_type) = capacity_type {
                    offered = offered.capacity_type(capacity_type);
                }
                self.site.cloud.exhaust(offered);
                Ok(())
            }
            Action::Account(fault) => {
                if let Some(account) = &mut self.account {
                    account.meet(fault);
                }
                Ok(())
            }
            Action::Plant { which } => {
                let uid = format!("forgotten-{which:016x}");
                self.site.cloud.plant(Launched {
                    provider_id: format!("nodeless://{uid}"),
                    claim_uid: Some(uid),
                    ..Launched::default()
                });
                Ok(())
            }
            Action::Restock => {
                self.site.cloud.restock();
                Ok(())
            }
            Action::Vanish { which } => {
                if let Some(claim) = self.pick(Crowd::Claims, *which).await
                    && let Some(id) = claim["status"]["providerID"].as_str()
                {
                    if let Some(account) = &self.account {
                        account.fail(id);
                    } else {
                        self.site.cloud.vanish(id);
                        let node = claim["status"]["nodeName"].as_str().unwrap_or_default();
                        self.actors.kill_node(node);
                    }
                }
                Ok(())
            }
            Action::Drift { which } => {
                if let Some(claim) = self.pick(Crowd::Claims, *which).await
                    && let Some(id) = claim["status"]["providerID"].as_str()
                {
                    self.site.cloud.drift(id, Some("ImageDrift"));
                }
                Ok(())
            }
            Action::Silence { which } => {
                if let Some(node) = self.pick(Crowd::Nodes, *which).await {
                    self.actors.kill_node(name(&node));
                    self.silenced.insert(name(&node).to_owned());
                }
                Ok(())
            }
            Action::Ail { which, kind, on } => match self.pick(Crowd::Nodes, *which).await {
                Some(node) => self.ail(&node, kind, *on).await,
                None => Ok(()),
            },
            Action::Kill { replica, down } => {
                self.replicas[*replica].kill(Duration::from_secs(*down), &mut reached);
                Ok(())
            }
            Action::Stop { replica, down } => {
                let down = Duration::from_secs(*down);
                self.replicas[*replica].stop(&self.site, down, &mut reached).await;
                Ok(())
            }
            Action::Suspend => self.suspend().await,
            Action::SetClock { replica, by } => {
                self.replicas[*replica].set_clock(SignedDuration::from_secs(*by));
                Ok(())
            }
            Action::Calm(length) => {
                self.calm(*length).await;
                Ok(())
            }
        };
        self.coverage.lock().unwrap_or_else(PoisonError::into_inner).add(&reached);
        if let Err(error) = done {
            self.refused.push(format!("{}: {error}", action.describe()));
        }
    }

    /// The one at this place, of those that are ours.
    async fn pick(&self, of: Crowd, which: u64) -> Option<Value> {
        let mut all = self.hands.list(kind_of(of)).await;
        all.retain(|it| !name(it).starts_with(crate::checker::FOREIGN));
        let place = which.checked_rem(all.len() as u64)?;
        Some(all.swap_remove(usize::try_from(place).ok()?))
    }

    async fn patch(&self, kind: &str, name: &str, patch: &Value) -> Result<(), String> {
        let mut whole = json!({"kind": kind, "patch": patch});
        let is_class = kind == "KWOKNodeClass";
        if is_class {
            whole["spec"] = patch["spec"].clone();
        }
        self.site.of.translate(&mut whole);
        let patch = if is_class { json!({"spec": whole["spec"]}) } else { whole["patch"].clone() };
        let kind = whole["kind"].as_str().unwrap_or_default();
        match self.hands.patch(kind, name, false, &patch).await {
            // It is gone, or not there yet.
            Err(error) if error.contains("not found") => Ok(()),
            other => other.map(drop),
        }
    }

    async fn patch_one(
        &self,
        kind: &str,
        name: &str,
        status: bool,
        patch: &Value,
    ) -> Result<(), String> {
        self.hands.patch(kind, name, status, patch).await.map(drop)
    }

    async fn drain(&self, which: u64) -> Result<(), String> {
        let Some(node) = self.pick(Crowd::Nodes, which).await else { return Ok(()) };
        let cordon = json!({"spec": {"unschedulable": true}});
        self.patch_one("Node", name(&node), false, &cordon).await?;
        for pod in self.hands.list("Pod").await {
            let of_daemon = pod["metadata"]["ownerReferences"][0]["kind"] == "DaemonSet";
            if pod["spec"]["nodeName"] == node["metadata"]["name"] && !of_daemon {
                // A budget may forbid it.
                let _ = self.hands.evict(name(&pod)).await;
            }
        }
        Ok(())
    }

    /// A field that our types cannot hold.
    async fn spoil(&mut self, of: Crowd, which: u64) -> Result<(), String> {
        let Some(one) = self.pick(of, which).await else { return Ok(()) };
        let conditions = |time: &str| {
            let mut conditions =
                one["status"]["conditions"].as_array().cloned().unwrap_or_default();
            conditions.push(json!({
                "type": "Spoilt", "status": "True", "lastHeartbeatTime": THEN,
                "lastTransitionTime": time,
            }));
            json!({"status": {"conditions": conditions}})
        };
        let (kind, spoilt, mended) = match of {
            Crowd::Nodes => ("Node", conditions(NEVER), conditions(THEN)),
            Crowd::Claims => {
                let event = |time: &str| json!({"status": {"lastPodEventTime": time}});
                ("NodeClaim", event("2026-01-01T00:00:00+99:99"), event(THEN))
            }
            Crowd::Pods => {
                let started = |time: &str| json!({"status": {"startTime": time}});
                ("Pod", started(NEVER), started(THEN))
            }
            Crowd::Volumes => return Ok(()),
        };
        self.patch_one(kind, name(&one), true, &spoilt).await?;
        self.spoilt.push((kind, name(&one).to_owned(), mended));
        Ok(())
    }

    /// The other conditions stay as they are.
    async fn ail(&self, node: &Value, kind: &str, on: bool) -> Result<(), String> {
        let conditions = node["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let mut conditions: Vec<_> =
            conditions.into_iter().filter(|condition| condition["type"] != kind).collect();
        if on {
            conditions.push(json!({
                "type": kind, "status": "True", "reason": "Played", "message": "",
                "lastHeartbeatTime": THEN, "lastTransitionTime": THEN,
            }));
        }
        let status = json!({"status": {"conditions": conditions}});
        self.patch_one("Node", name(node), true, &status).await
    }

    async fn pretend(&self, which: u64) -> Result<(), String> {
        let Some(claim) = self.pick(Crowd::Claims, which).await else { return Ok(()) };
        let copy = json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
            "metadata": {"name": format!("{PRETENDER}-{}", which % 1_000)},
            "spec": {
                "nodeClassRef": claim["spec"]["nodeClassRef"],
                "requirements": claim["spec"]["requirements"],
            },
        });
        let created = self.hands.create(&copy).await?;
        let done = json!({
            "type": "Launched", "status": "True", "reason": "Launched", "message": "",
            "lastTransitionTime": THEN, "observedGeneration": 1,
        });
        let status = json!({"status": {
            "providerID": claim["status"]["providerID"], "nodeName": claim["status"]["nodeName"],
            "capacity": claim["status"]["capacity"], "conditions": [done],
        }});
        self.patch_one("NodeClaim", name(&created), true, &status).await
    }

    /// The leader stands still for longer than its lease lasts. The other has taken it when it goes on.
    async fn suspend(&mut self) -> Result<(), String> {
        let holder = self.hands.holder().await;
        let of_leader = |replica: &Replica| replica.name == holder && replica.is_running();
        let Some(leader) = self.replicas.iter().position(of_leader) else { return Ok(()) };
        let other = &self.replicas[1 - leader];
        if !other.is_running() {
            return Ok(());
        }
        self.site.judge.lock().is_troubled(self.site.judge.now());
        self.replicas[leader].suspend(SUSPENDED);
        self.hands.give_lease(other.name).await?;
        self.site.judge.lock().leads(self.site.judge.now(), other.name);
        Ok(())
    }

    /// All is well again, and time passes.
    async fn calm(&mut self, length: u64) {
        self.site.cloud.clear();
        if let Some(account) = &mut self.account {
            account.calm();
        }
        for replica in &mut self.replicas {
            replica.meet(Vec::new());
        }
        for node in std::mem::take(&mut self.silenced) {
            self.actors.revive_node(&node);
        }
        for (kind, name, mended) in std::mem::take(&mut self.spoilt) {
            // It may be gone.
            let _ = self.hands.patch(kind, &name, true, &mended).await;
        }
        for claim in self.hands.list("NodeClaim").await {
            if name(&claim).starts_with(PRETENDER) {
                let _ = self.hands.delete("NodeClaim", name(&claim)).await;
            }
        }
        for node in self.hands.list("Node").await {
            // A machine that never comes up is a person's business: nothing says that it never will.
            if node["metadata"]["annotations"].get(actors::NEVER_READY).is_some() {
                let _ = self.hands.delete("Node", name(&node)).await;
            }
            for kind in ["KWOKUnhealthy", "KWOKRebootRequired"] {
                if is_ailing(&node, kind) {
                    let _ = self.ail(&node, kind, false).await;
                }
            }
            if node["spec"]["unschedulable"] == true {
                let uncordon = json!({"spec": {"unschedulable": null}});
                let _ = self.patch_one("Node", name(&node), false, &uncordon).await;
            }
        }
        for volume in self.hands.list("PersistentVolume").await {
            if volume["metadata"]["annotations"].get(NEVER_DETACHES).is_some() {
                let comes_off = json!({"metadata": {"annotations": {NEVER_DETACHES: null}}});
                let _ = self.patch_one("PersistentVolume", name(&volume), false, &comes_off).await;
            }
        }
        let since = self.site.judge.now();
        self.site.judge.lock().is_calm(since);
        self.until(Instant::now() + Duration::from_millis(length)).await;
        let now = self.site.judge.now();
        let mut checker = self.site.judge.lock();
        // What was cut short by a violation says nothing about rest.
        if !checker.has_failed() {
            checker.is_at_rest(now, since);
        }
    }
}

fn is_ailing(node: &Value, kind: &str) -> bool {
    let mut conditions = node["status"]["conditions"].as_array().into_iter().flatten();
    conditions.any(|condition| condition["type"] == kind)
}
