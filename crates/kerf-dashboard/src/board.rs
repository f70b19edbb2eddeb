//! The newest view of an operator, ready to be sent.

use std::{
    collections::hash_map::DefaultHasher,
    fmt,
    hash::{Hash, Hasher},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use jiff::{SignedDuration, Timestamp};
use kerf_controllers::window::{Look, Mark, NothingToSee, Window};
use kerf_model::Snapshot;
use serde::Serialize;

use crate::{
    history::History,
    view::{About, View},
};

/// What `kerf explain` says of a node in this snapshot; `None` where there is no such node.
pub type Explain = Arc<dyn Fn(&Snapshot, &str) -> Option<String> + Send + Sync>;

/// Entries of the journal on the page.
const LOG: usize = 200;
/// Ages, budgets and grace periods change by time alone.
const STALE_AFTER: SignedDuration = SignedDuration::from_secs(15);
/// How often a view is renewed while someone looks, at most.
const RENEW_EVERY: Duration = Duration::from_secs(1);
/// And while nobody does, for the history of the price.
const SAMPLE_EVERY: Duration = Duration::from_secs(30);
/// Who has not asked for this long has gone.
const LOOKING_FOR: Duration = Duration::from_secs(15);
/// Views take at most this part of a core: one twentieth.
const IDLE_SHARE: u32 = 20;

/// Keeps one view for all who look. Cloning shares it.
#[derive(Clone)]
pub struct Board(Arc<Shared>);

struct Shared {
    window: Window,
    about: About,
    explain: Explain,
    /// Held while one node is explained: that can take a core for a moment in a large cluster, and no more than one.
    explaining: Mutex<()>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    history: History,
    shown: Shown,
    mark: Mark,
    looked: Option<Timestamp>,
    asked: Option<Instant>,
}

/// A view as it is sent.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shown {
    pub(crate) body: String,
    pub(crate) etag: String,
    snapshot: Option<Arc<Snapshot>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Empty<'a> {
    format: u32,
    about: &'a About,
    /// Why there is nothing to see.
    nothing: String,
}

impl Board {
    pub fn new(window: Window, about: About, explain: Explain) -> Self {
        let state = State::default();
        let board = Self(Arc::new(Shared {
            window,
            about,
            explain,
            explaining: Mutex::default(),
            state: state.into(),
        }));
        board.show_nothing(&NothingToSee::Starting);
        board
    }

    /// Keeps the view up to date: often while someone looks, and now and then for the price.
    pub async fn keep_up(self) {
        let mut sampled: Option<Instant> = None;
        loop {
            let began = Instant::now();
            if self.is_looked_at() || sampled.is_none_or(|at| at.elapsed() >= SAMPLE_EVERY) {
                self.renew().await;
                sampled = Some(began);
            }
            tokio::time::sleep(RENEW_EVERY.max(began.elapsed() * IDLE_SHARE)).await;
        }
    }

    /// Looks at the operator, if something changed since the last time.
    pub async fn renew(&self) {
        let shared = &self.0;
        let (mark, now) = (shared.window.mark(), shared.window.now());
        {
            let state = self.state();
            let is_fresh = now.zip(state.looked).is_some_and(|(now, looked)| {
                mark == state.mark && now.duration_since(looked) < STALE_AFTER
            });
            if is_fresh {
                return;
            }
        }
        let look = match shared.window.look().await {
            Ok(look) => look,
            Err(why) => return self.show_nothing(&why),
        };
        // Not on a thread that runs the operator's tasks: thousands of nodes take some milliseconds.
        let board = self.clone();
        if tokio::task::spawn_blocking(move || board.show(look, mark)).await.is_err() {
            self.show_nothing(&NothingToSee::Unreadable("the view failed".to_owned()));
        }
    }

    fn show(&self, look: Look, mark: Mark) {
        let shared = &self.0;
        let log = shared.window.journal().newest(LOG);
        let mut view = View::of(&look, &log, &[], &shared.about);
        view.prices = {
            let mut state = self.state();
            state.history.note(view.now, view.totals.price_per_hour);
            state.history.steps().to_vec()
        };
        let shown = Shown::of(&view, Some(Arc::new(look.snapshot)));
        let mut state = self.state();
        (state.mark, state.looked, state.shown) = (mark, Some(view.now), shown);
    }

    fn show_nothing(&self, why: &NothingToSee) {
        let nothing = Empty { format: 1, about: &self.0.about, nothing: why.to_string() };
        let mut state = self.state();
        state.looked = None;
        state.shown = Shown::of(&nothing, None);
    }

    /// What there is to show. That someone asks is noted.
    pub(crate) fn shown(&self) -> Shown {
        let mut state = self.state();
        state.asked = Some(Instant::now());
        state.shown.clone()
    }

    /// What `kerf explain` says of the node in what is shown. Takes a while: not for threads that others wait for.
    pub(crate) fn explain(&self, node: &str) -> Option<String> {
        let snapshot = self.shown().snapshot?;
        let _one_at_a_time = self.0.explaining.lock().unwrap_or_else(PoisonError::into_inner);
        (self.0.explain)(&snapshot, node)
    }

    fn is_looked_at(&self) -> bool {
        self.state().asked.is_some_and(|asked| asked.elapsed() < LOOKING_FOR)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Board {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Board").field("about", &self.0.about).finish_non_exhaustive()
    }
}

impl Shown {
    fn of(document: &impl Serialize, snapshot: Option<Arc<Snapshot>>) -> Self {
        // Nothing in it can fail to be written: its keys are texts.
        let body = serde_json::to_string(document).unwrap_or_default();
        let mut hasher = DefaultHasher::new();
        body.hash(&mut hasher);
        Self { etag: format!("\"{:016x}\"", hasher.finish()), body, snapshot }
    }
}
