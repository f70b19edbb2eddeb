//! Acting only while leading: work that begins when the lease is won and ends when it is lost.

use std::{future::pending, time::Duration};

use tokio_util::sync::CancellationToken;

use crate::election::{Election, Lost};

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

/// Why a term ended without anybody having asked for it.
#[derive(Debug, thiserror::Error)]
pub enum Ended<E> {
    #[error(transparent)]
    Lost(Lost),
    #[error("the controllers did not stop within {GRACE:?}")]
    NotDrained,
    #[error(transparent)]
    Work(E),
}

/// Does `work` for as long as it may be done, and then gives the lease back. Without an election, it may be done until
/// `stop`.
pub async fn lead<E, W>(
    mut election: Option<Election>,
    stop: CancellationToken,
    work: impl FnOnce(Term) -> W,
) -> Result<(), Ended<E>>
where
    W: Future<Output = Result<(), E>>,
{
    let term = Term { begun: CancellationToken::new(), ended: stop.child_token() };
    let mut work = Box::pin(work(term.clone()));
    let leading = async {
        let Some(election) = &mut election else {
            term.begun.cancel();
            return pending().await;
        };
        election.acquire().await;
        term.begun.cancel();
        let lost = election.keep().await;
        (lost, election.timing().rest())
    };
    let overdue = async {
        stop.cancelled().await;
        tokio::time::sleep(GRACE).await;
    };
    let outcome = tokio::select! {
        biased;
        result = &mut work => result.map_err(Ended::Work),
        (lost, rest) = leading => {
            term.ended.cancel();
            // Nobody else may lead before the lease has run out, so what is under way may end until then. Whoever took
            // the lease is at work already: nothing of ours may follow.
            if let Lost::NotRenewed { .. } = &lost {
                let _ = tokio::time::timeout(rest, &mut work).await;
            }
            return Err(Ended::Lost(lost));
        }
        // Not released: something may still be at work.
        () = overdue => return Err(Ended::NotDrained),
    };
    if let Some(election) = &mut election {
        election.release().await;
    }
    outcome
}
