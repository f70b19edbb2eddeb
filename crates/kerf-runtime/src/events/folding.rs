//! Many notices, few events: a repeated notice is counted on its first event.
//!
//! The rules and numbers are those of client-go's correlator, which cluster operators know: the same thing about the same
//! object is one event with a count; an object with many wordings of the same reason gets one event for all of them;
//! and no object gets more than 25 events at once and one in five minutes after that.

use std::{
    collections::{HashMap, VecDeque},
    time::Duration,
};

use jiff::SignedDuration;
use k8s_openapi::{
    api::core::v1::{Event, ObjectReference},
    apimachinery::pkg::apis::meta::v1::Time,
    jiff::Timestamp,
};

/// More events than this waiting means that the API server does not take them. About as many megabytes as thousands.
pub(super) const WAITING_AT_MOST: usize = 10_000;

/// Wordings of one reason about one object that get an event each, within [`SIMILAR_WITHIN`].
const WORDINGS: usize = 10;
const SIMILAR_WITHIN: SignedDuration = SignedDuration::from_mins(10);
const COMBINED: &str = "(combined from similar events): ";

/// Events of one object that are written at once, and how long it takes until it may have one more.
const OF_ONE_OBJECT: u32 = 25;
const ONE_MORE_AFTER: SignedDuration = SignedDuration::from_mins(5);

/// How many events, and how many objects, are remembered to fold what comes next.
const REMEMBERED: usize = 4096;

/// What makes two events the same.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Identity {
    about: String,
    reason: String,
    /// Empty where wordings are combined.
    message: String,
}

/// What is to be sent next.
#[derive(Debug, PartialEq)]
pub(super) enum Sending {
    New(Event),
    /// An event that was taken before, with what is new about it.
    Again {
        name: String,
        event: Event,
    },
}

/// Events on their way to the API server.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    order: VecDeque<Identity>,
    waiting: HashMap<Identity, Event>,
    objects: Memory<String, Told>,
    taken: Memory<Identity, Taken>,
}

/// Why an event will not be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unsent {
    /// The API server does not take them as fast as they come.
    TooManyWaiting,
    /// Its object has had more than enough.
    TooManyOfOneObject,
}

/// The recent events of one object.
#[derive(Debug, Default)]
struct Told {
    wordings: HashMap<String, (Timestamp, Vec<String>)>,
    /// Events it may still have, and since when that number holds.
    left: Option<(u32, Timestamp)>,
}

/// An event that the API server has.
#[derive(Clone, Debug, Default)]
struct Taken {
    name: String,
    first: Option<Time>,
    count: i32,
}

impl Outbox {
    /// Takes an event in; folds it into one that waits if that says the same.
    pub(super) fn put(&mut self, mut event: Event, now: Timestamp) -> Result<(), Unsent> {
        let identity = self.identify(&mut event, now);
        if let Some(waiting) = self.waiting.get_mut(&identity) {
            waiting.count = Some(waiting.count.unwrap_or(1).saturating_add(1));
            waiting.last_timestamp = event.last_timestamp;
            waiting.message = event.message;
            return Ok(());
        }
        if self.order.len() >= WAITING_AT_MOST {
            return Err(Unsent::TooManyWaiting);
        }
        if !self.objects.entry(identity.about.clone()).may_have_one(now) {
            return Err(Unsent::TooManyOfOneObject);
        }
        self.order.push_back(identity.clone());
        self.waiting.insert(identity, event);
        Ok(())
    }

    /// The event that has waited longest.
    pub(super) fn next(&mut self) -> Option<(Identity, Sending)> {
        let identity = self.order.pop_front()?;
        let mut event = self.waiting.remove(&identity)?;
        let sending = match self.taken.get(&identity) {
            None => Sending::New(event),
            Some(taken) => {
                event.count = Some(event.count.unwrap_or(1).saturating_add(taken.count));
                event.first_timestamp.clone_from(&taken.first);
                Sending::Again { name: taken.name.clone(), event }
            }
        };
        Some((identity, sending))
    }

    /// The API server has this one now.
    pub(super) fn took(&mut self, identity: Identity, event: &Event) {
        let Some(name) = event.metadata.name.clone() else { return };
        let count = event.count.unwrap_or(1);
        *self.taken.entry(identity) = Taken { name, first: event.first_timestamp.clone(), count };
    }

    /// The API server no longer has what it took before: events are kept for an hour.
    pub(super) fn lost(&mut self, identity: &Identity) {
        self.taken.known.remove(identity);
    }

    /// Combines wordings, if there are too many of them.
    fn identify(&mut self, event: &mut Event, now: Timestamp) -> Identity {
        let about = describe(&event.involved_object);
        let reason = format!(
            "{}/{}",
            event.type_.as_deref().unwrap_or_default(),
            event.reason.as_deref().unwrap_or_default()
        );
        let message = event.message.clone().unwrap_or_default();
        let told = self.objects.entry(about.clone());
        let (since, wordings) = told.wordings.entry(reason.clone()).or_default();
        if now.duration_since(*since) > SIMILAR_WITHIN {
            wordings.clear();
        }
        *since = now;
        if !wordings.contains(&message) {
            if wordings.len() >= WORDINGS {
                event.message = Some(format!("{COMBINED}{message}"));
                return Identity { about, reason, message: String::new() };
            }
            wordings.push(message.clone());
        }
        Identity { about, reason, message }
    }
}

impl Told {
    fn may_have_one(&mut self, now: Timestamp) -> bool {
        let (left, since) = self.left.get_or_insert((OF_ONE_OBJECT, now));
        let passed = Duration::try_from(now.duration_since(*since)).unwrap_or_default();
        let one = Duration::try_from(ONE_MORE_AFTER).unwrap_or(Duration::MAX);
        let came = u32::try_from(passed.as_secs() / one.as_secs().max(1)).unwrap_or(u32::MAX);
        if came > 0 {
            *left = left.saturating_add(came).min(OF_ONE_OBJECT);
            *since = now;
        }
        let may = *left > 0;
        *left = left.saturating_sub(1);
        may
    }
}

fn describe(about: &ObjectReference) -> String {
    let part = |part: &Option<String>| part.clone().unwrap_or_default();
    [&about.kind, &about.namespace, &about.name, &about.uid].map(part).join("/")
}

/// A map that forgets what came first when it is full.
#[derive(Debug)]
struct Memory<K, V> {
    known: HashMap<K, V>,
    order: VecDeque<K>,
}

impl<K, V> Default for Memory<K, V> {
    fn default() -> Self {
        Self { known: HashMap::new(), order: VecDeque::new() }
    }
}

impl<K: Clone + Eq + std::hash::Hash, V: Default> Memory<K, V> {
    fn get(&self, key: &K) -> Option<&V> {
        self.known.get(key)
    }

    fn entry(&mut self, key: K) -> &mut V {
        if !self.known.contains_key(&key) {
            while self.order.len() >= REMEMBERED {
                if let Some(oldest) = self.order.pop_front() {
                    self.known.remove(&oldest);
                }
            }
            self.order.push_back(key.clone());
        }
        self.known.entry(key).or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::api::ObjectMeta;

    fn event(object: usize, message: &str, second: i64) -> Event {
        let name = Some(format!("o{object}"));
        let time = Some(Time(Timestamp::from_second(second).unwrap()));
        Event {
            involved_object: ObjectReference { name, ..ObjectReference::default() },
            reason: Some("R".into()),
            message: Some(message.into()),
            count: Some(1),
            first_timestamp: time.clone(),
            last_timestamp: time,
            ..Event::default()
        }
    }

    fn put(outbox: &mut Outbox, object: usize, message: &str, second: i64) -> Result<(), Unsent> {
        let now = Timestamp::from_second(second).unwrap();
        outbox.put(event(object, message, second), now)
    }

    fn named(event: Event, name: &str) -> Event {
        Event { metadata: ObjectMeta { name: Some(name.into()), ..ObjectMeta::default() }, ..event }
    }

    #[test]
    fn what_is_said_again_while_it_waits_or_later_is_counted_on_the_same_event() {
        let mut outbox = Outbox::default();
        for second in [1, 2, 3] {
            put(&mut outbox, 1, "m", second).unwrap();
        }
        let (identity, sending) = outbox.next().unwrap();
        let Sending::New(new) = sending else { panic!("{sending:?}") };
        let times = |event: &Event| {
            let second = |time: &Option<Time>| time.as_ref().unwrap().0.as_second();
            (event.count, second(&event.first_timestamp), second(&event.last_timestamp))
        };
        assert_eq!(times(&new), (Some(3), 1, 3));
        assert!(outbox.next().is_none());
        outbox.took(identity, &named(new, "e"));

        put(&mut outbox, 1, "m", 200).unwrap();
        let (identity, sending) = outbox.next().unwrap();
        let Sending::Again { name, event } = sending else { panic!("{sending:?}") };
        assert_eq!((name.as_str(), times(&event)), ("e", (Some(4), 1, 200)));
        outbox.lost(&identity);
        put(&mut outbox, 1, "m", 4000).unwrap();
        assert!(matches!(outbox.next(), Some((_, Sending::New(_)))));
    }

    #[test]
    fn many_wordings_of_one_reason_become_one_event() {
        let mut outbox = Outbox::default();
        for place in 0..30 {
            put(&mut outbox, 1, &format!("m{place}"), place).unwrap();
        }
        let sent: Vec<_> = std::iter::from_fn(|| outbox.next()).collect();
        assert_eq!(sent.len(), WORDINGS + 1);
        let Some((_, Sending::New(last))) = sent.last() else { panic!("{sent:?}") };
        assert_eq!(last.message.as_deref(), Some("(combined from similar events): m29"));
        assert_eq!(last.count, Some(20));
        put(&mut outbox, 1, "m30", 1000).unwrap();
        let (_, sending) = outbox.next().unwrap();
        assert!(matches!(sending, Sending::New(event) if event.message.as_deref() == Some("m30")));
    }

    #[test]
    fn one_object_cannot_crowd_out_the_others() {
        let mut outbox = Outbox::default();
        let mut sent = 0;
        for second in 0..40 {
            let told = put(&mut outbox, 1, "m", second);
            sent += usize::from(told.is_ok());
            while outbox.next().is_some() {}
            assert_eq!(told.is_err(), second >= 25, "{second}: {told:?}");
        }
        assert_eq!(sent, 25);
        assert_eq!(put(&mut outbox, 2, "m", 41), Ok(()));
        assert_eq!(put(&mut outbox, 1, "m", 600), Ok(()), "one in five minutes");
    }

    #[test]
    fn thousands_of_objects_are_told_of_without_loss() {
        let mut outbox = Outbox::default();
        for object in 0..WAITING_AT_MOST {
            put(&mut outbox, object, "m", 1).unwrap();
        }
        assert_eq!(put(&mut outbox, WAITING_AT_MOST, "m", 1), Err(Unsent::TooManyWaiting));
        assert_eq!(std::iter::from_fn(|| outbox.next()).count(), WAITING_AT_MOST);
        assert!(outbox.objects.known.len() <= REMEMBERED);
    }
}
