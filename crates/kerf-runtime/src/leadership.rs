//! Acting only while leading: work that begins when the lease is won and ends when it is lost.

use std::{future::pending, time::Duration};

use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use crate::{
    Fence, WriteRefused,
    election::{Election, Lost},
};

/// How long the work may take to finish what it is at when the operator is asked to stop.
const GRACE: Duration = Duration::from_secs(30);

/// What the work has to go by.
#[derive(Clone, Debug)]
pub struct Term {
    /// Over when the work may begin.
    pub begun: CancellationToken,
    /// Over when the work has to end: nothing new is begun, and what is under way comes to rest.
    pub ended: CancellationToken,
}

/// Why a term ended without a request to stop.
#[derive(Debug, thiserror::Error)]
pub enum Ended<E> {
    #[error(transparent)]
    Lost(Lost),
    #[error("stepping down, because a write was refused: {0}")]
    Fenced(WriteRefused),
    #[error("the controllers did not stop within {GRACE:?}")]
    NotDrained,
    #[error(transparent)]
    Work(E),
}

/// Does `work` for as long as it may be done, and then gives the lease back. Without an election, it may be done until
/// `stop`.
pub async fn lead<E, W>(
    election: Option<Election>,
    stop: CancellationToken,
    work: impl FnOnce(Term) -> W,
) -> Result<(), Ended<E>>
where
    W: Future<Output = Result<(), E>>,
{
    let term = Term { begun: CancellationToken::new(), ended: stop.child_token() };
    let mut work = Box::pin(work(term.clone()));
    let fence = election.as_ref().map(|election| election.fence().clone());
    let mut seat = election.map(|election| Seat::take(election, term.begun.clone()));
    if seat.is_none() {
        term.begun.cancel();
    }
    let leading = async {
        match &mut seat {
            Some(seat) => seat.lost().await,
            None => pending().await,
        }
    };
    let crossed = async {
        match &fence {
            Some(fence) => fence.crossed().await,
            None => pending().await,
        }
    };
    let overdue = async {
        stop.cancelled().await;
        tokio::time::sleep(GRACE).await;
    };
    let outcome = tokio::select! {
        biased;
        result = &mut work => result.map_err(Ended::Work),
        refused = crossed => {
            term.ended.cancel();
            return Err(Ended::Fenced(refused));
        }
        lost = leading => {
            term.ended.cancel();
            // No other replica may lead before the lease has run out, so calls under way may end until then. One that took
            // the lease is at work already: nothing of ours may follow.
            let left = fence.as_ref().map_or(Duration::ZERO, Fence::left);
            let _ = tokio::time::timeout(left, &mut work).await;
            return Err(Ended::Lost(lost));
        }
        // Not released: something may still be at work.
        () = overdue => return Err(Ended::NotDrained),
    };
    if let Some(seat) = seat {
        seat.give_back().await;
    }
    outcome
}

/// A candidate on its own task, on the runtime where the election is held. Dropping it ends the candidacy without a word
/// to the others, as a crash would.
struct Seat {
    standing: AbortOnDropHandle<Option<Lost>>,
    give_back: CancellationToken,
}

impl Seat {
    fn take(mut election: Election, begun: CancellationToken) -> Self {
        let give_back = CancellationToken::new();
        let wanted_back = give_back.clone();
        let standing = election.runtime().clone().spawn(async move {
            let held = async {
                election.acquire().await;
                begun.cancel();
                election.keep().await
            };
            let lost = tokio::select! {
                biased;
                () = wanted_back.cancelled() => None,
                lost = held => Some(lost),
            };
            if lost.is_none() {
                election.release().await;
            }
            lost
        });
        Self { standing: AbortOnDropHandle::new(standing), give_back }
    }

    async fn lost(&mut self) -> Lost {
        match (&mut self.standing).await {
            Ok(Some(lost)) => lost,
            // It was not asked to give anything back yet, so it panicked: nothing renews the lease any more.
            Ok(None) | Err(_) => Lost::Abandoned,
        }
    }

    async fn give_back(self) {
        self.give_back.cancel();
        let _ = self.standing.await;
    }
}
