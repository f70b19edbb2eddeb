//! What goes wrong between a client and the API server, by rate or by script.

use crate::api::{ApiError, Call, Incoming, Named, Verb, WatchCut};
use crate::random::Random;
use http::{Method, Response, StatusCode};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use tokio::{sync::Notify, time::Instant};

/// The faults of one client. Cloning shares them: a test keeps a handle and changes them as it goes.
#[derive(Clone, Debug)]
pub struct Faults {
    plan: Arc<Mutex<Plan>>,
    stopped: Arc<Notify>,
    journal: Arc<OnceLock<Arc<dyn Journal>>>,
}

/// Reads all calls of a client along, in their order.
pub trait Journal: fmt::Debug + Send + Sync {
    /// The client has sent this. It may never arrive.
    fn sent(&self, call: &Call, request: &Incoming);

    /// The API server has carried this out, or refused it. Its answer may never arrive.
    fn answered(&self, call: &Call, request: &Incoming, status: StatusCode);
}

#[derive(Clone, Debug, PartialEq)]
pub enum Fault {
    /// 409, as if someone else had written in between.
    Conflict,
    /// 403: no role grants it.
    Forbidden,
    /// 429, with the seconds after which to try again.
    TooManyRequests(u32),
    /// 500.
    InternalError,
    /// No answer for this long, then an error; the call was not carried out.
    TimeoutBefore(Duration),
    /// The same, but the call was carried out: only its answer is lost.
    TimeoutAfter(Duration),
    /// The call is carried out this much later.
    Delay(Duration),
    /// A watch ends early, or its history expires.
    Watch(WatchCut),
    /// A watch tells of each change this much later.
    WatchDelay(Duration),
}

/// Which calls a fault is for; what is not named matches everything.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Matching {
    verb: Option<Verb>,
    /// Plural, as in the URL.
    resource: Option<String>,
    subresource: Option<String>,
    name: Option<String>,
    writes_only: bool,
}

impl Matching {
    pub fn any() -> Self {
        Self::default()
    }

    pub fn writes() -> Self {
        Self { writes_only: true, ..Self::default() }
    }

    pub fn verb(self, verb: Verb) -> Self {
        Self { verb: Some(verb), ..self }
    }

    pub fn resource(self, plural: impl Into<String>) -> Self {
        Self { resource: Some(plural.into()), ..self }
    }

    /// `""` matches calls on the object itself only.
    pub fn subresource(self, subresource: impl Into<String>) -> Self {
        Self { subresource: Some(subresource.into()), ..self }
    }

    pub fn name(self, name: impl Into<String>) -> Self {
        Self { name: Some(name.into()), ..self }
    }

    fn matches(&self, call: &Call) -> bool {
        let fits =
            |wanted: &Option<String>, actual: &str| wanted.as_deref().is_none_or(|w| w == actual);
        self.verb.is_none_or(|verb| verb == call.verb)
            && fits(&self.resource, &call.plural)
            && fits(&self.subresource, &call.subresource)
            && fits(&self.name, &call.name)
            && (!self.writes_only || call.verb.writes())
    }
}

/// When calls came that somebody looks out for.
#[derive(Clone, Debug, Default)]
pub struct Times(Arc<Mutex<Vec<Instant>>>);

impl Times {
    /// Those so far, the oldest first.
    pub fn so_far(&self) -> Vec<Instant> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn add(&self, time: Instant) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(time);
    }
}

#[derive(Debug)]
struct Plan {
    random: Random,
    rules: Vec<Rule>,
    observed: Vec<(Matching, Times)>,
    calls: u64,
    writes: u64,
    /// By resource.
    conflicts: BTreeMap<String, u64>,
    stop_after: Option<u64>,
    is_stopped: bool,
}

#[derive(Debug)]
struct Rule {
    matching: Matching,
    fault: Fault,
    when: When,
    seen: u64,
}

#[derive(Debug)]
pub(crate) enum When {
    Rate(f64),
    /// From the first to the second of the matching calls, counted from 1.
    Between(u64, u64),
}

impl When {
    /// Whether the fault strikes the matching call of this number.
    pub(crate) fn strikes(&self, call: u64, random: &mut Random) -> bool {
        match *self {
            Self::Rate(rate) => random.chance(rate),
            Self::Between(first, last) => (first..=last).contains(&call),
        }
    }
}

/// What becomes of one call.
#[derive(Debug)]
pub(crate) enum Verdict {
    Pass,
    Late(Duration),
    Refuse(ApiError),
    Lose {
        executed: bool,
        after: Duration,
    },
    Disturb(Duration, WatchCut),
    /// The caller is dead: it gets no answer, ever.
    Silence,
}

impl Faults {
    /// Nothing goes wrong until a rule says so. Rates draw from the seed.
    pub fn seeded(seed: u64) -> Self {
        let plan = Plan {
            random: Random::seeded(seed),
            rules: Vec::new(),
            observed: Vec::new(),
            calls: 0,
            writes: 0,
            conflicts: BTreeMap::new(),
            stop_after: None,
            is_stopped: false,
        };
        let stopped = Arc::new(Notify::new());
        Self { plan: Arc::new(Mutex::new(plan)), stopped, journal: Arc::default() }
    }

    /// Of the calls that match, about this share meets the fault.
    pub fn at_rate(&self, rate: f64, matching: Matching, fault: Fault) {
        self.add(matching, fault, When::Rate(rate));
    }

    /// The `nth` call from now on that matches, counted from 1, meets the fault.
    pub fn on_call(&self, nth: u64, matching: Matching, fault: Fault) {
        self.add(matching, fault, When::Between(nth, nth));
    }

    /// Each of the next `count` calls that match meets the fault.
    pub fn on_next(&self, count: u64, matching: Matching, fault: Fault) {
        self.add(matching, fault, When::Between(1, count));
    }

    /// The `nth` call from now on that matches, counted from 1, and all after it meet the fault.
    pub fn from_call(&self, nth: u64, matching: Matching, fault: Fault) {
        self.add(matching, fault, When::Between(nth, u64::MAX));
    }

    /// Lets `calls` more calls through and answers none after them, as if the client's process had died there. Events
    /// do not count.
    pub fn stop_after(&self, calls: u64) {
        let mut plan = self.plan();
        plan.stop_after = Some(plan.calls + calls);
    }

    /// The client's process dies now.
    pub fn stop(&self) {
        let mut plan = self.plan();
        plan.stop_after = Some(plan.calls);
        plan.is_stopped = true;
        self.stopped.notify_waiters();
    }

    /// Returns when the client has tried a call that [`Faults::stop_after`] forbids: time to drop its tasks.
    pub async fn stopped(&self) {
        while !self.plan().is_stopped {
            self.stopped.notified().await;
        }
    }

    /// When calls that match come, from now on.
    pub fn times(&self, matching: Matching) -> Times {
        let times = Times::default();
        self.plan().observed.push((matching, times.clone()));
        times
    }

    /// How many calls the client has made, events apart.
    pub fn calls(&self) -> u64 {
        self.plan().calls
    }

    /// How many writes came this far, events among them. Those of leases are not counted: they decide who may write.
    pub fn writes(&self) -> u64 {
        self.plan().writes
    }

    /// How many writes to this resource (plural) the API server itself refused because another one had come first.
    pub fn conflicts(&self, resource: &str) -> u64 {
        self.plan().conflicts.get(resource).copied().unwrap_or(0)
    }

    /// Has all calls from now on read along. A client has one reader at most: the first stays.
    pub fn read_along(&self, journal: Arc<dyn Journal>) {
        self.journal.get_or_init(|| journal);
    }

    /// Takes note of what the API server answered.
    pub(crate) fn note<B>(&self, request: &Incoming, answer: &Response<B>) {
        if let Some(journal) = self.journal.get()
            && let Some(call) = request.call()
        {
            journal.answered(&call, request, answer.status());
        }
        let changes = matches!(request.method, Method::PUT | Method::PATCH | Method::DELETE);
        if changes
            && answer.status() == StatusCode::CONFLICT
            && let Some(call) = request.call()
        {
            *self.plan().conflicts.entry(call.plural).or_default() += 1;
        }
    }

    /// All is well again.
    pub fn clear(&self) {
        let mut plan = self.plan();
        plan.rules.clear();
        plan.stop_after = None;
        plan.is_stopped = false;
    }

    fn add(&self, matching: Matching, fault: Fault, when: When) {
        self.plan().rules.push(Rule { matching, fault, when, seen: 0 });
    }

    fn plan(&self) -> MutexGuard<'_, Plan> {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn judge(&self, request: &Incoming) -> Verdict {
        let Some(call) = request.call() else { return Verdict::Pass };
        let mut plan = self.plan();
        // What is told about the work is no part of it: events are written beside it, whenever there is time.
        let is_work = call.plural != "events";
        if plan.stop_after.is_some_and(|last| plan.calls >= last) {
            if is_work {
                plan.is_stopped = true;
                self.stopped.notify_waiters();
            }
            return Verdict::Silence;
        }
        if let Some(journal) = self.journal.get() {
            journal.sent(&call, request);
        }
        plan.calls += u64::from(is_work);
        plan.writes += u64::from(call.verb.writes() && call.plural != "leases");
        let Plan { random, rules, observed, .. } = &mut *plan;
        for (_, times) in observed.iter().filter(|(matching, _)| matching.matches(&call)) {
            times.add(Instant::now());
        }
        let mut chosen = None;
        // Each rule counts and draws for each call it matches, so that one fault does not shift another.
        for rule in rules.iter_mut().filter(|rule| rule.matching.matches(&call)) {
            rule.seen += 1;
            if rule.when.strikes(rule.seen, random) && chosen.is_none() {
                chosen = verdict(&rule.fault, &call);
            }
        }
        chosen.unwrap_or(Verdict::Pass)
    }
}

/// None: the fault has no meaning for such a call.
fn verdict(fault: &Fault, call: &Call) -> Option<Verdict> {
    let resource = || Named { group: call.group.clone(), resource: call.plural.clone() };
    Some(match fault {
        Fault::Conflict if !call.verb.writes() => return None,
        Fault::Conflict => Verdict::Refuse(ApiError::Conflict {
            resource: resource(),
            name: call.name.clone(),
            why: "the object has been modified; please apply your changes to the latest version and try again".into(),
        }),
        Fault::Forbidden => Verdict::Refuse(ApiError::Forbidden {
            resource: resource(),
            name: call.name.clone(),
            why: format!(
                "User \"operator\" cannot {} resource \"{}\" in API group \"{}\" at the cluster scope",
                call.verb.as_str(),
                call.plural,
                call.group
            ),
            causes: Vec::new(),
        }),
        Fault::TooManyRequests(retry_after) => Verdict::Refuse(ApiError::TooManyRequests {
            message: "the server has received too many requests and has asked us to try again later".into(),
            causes: Vec::new(),
            retry_after: *retry_after,
        }),
        Fault::InternalError => Verdict::Refuse(ApiError::Internal("Internal error occurred: injected".into())),
        Fault::TimeoutBefore(after) => Verdict::Lose { executed: false, after: *after },
        Fault::TimeoutAfter(after) => Verdict::Lose { executed: true, after: *after },
        Fault::Delay(delay) => Verdict::Late(*delay),
        Fault::Watch(_) | Fault::WatchDelay(_) if call.verb != Verb::Watch => return None,
        Fault::Watch(cut) => Verdict::Disturb(Duration::ZERO, *cut),
        Fault::WatchDelay(delay) => Verdict::Disturb(*delay, WatchCut::Never),
    })
}
