//! Trouble that lasts: told once when it begins and once when it is over, and not with each attempt.

use std::time::Duration;

use kerf_aws_client::AwsError;
use kerf_provider::BoxError;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

const FIRST: Duration = Duration::from_secs(5);
const MOST: Duration = Duration::from_mins(5);

/// Makes a pass `every` so often until it is told to stop. While passes fail, they come more and more seldom. `advice` says
/// what somebody can do about an error.
///
/// A pass may be cut off anywhere.
pub(crate) async fn keep_at<F>(
    task: &'static str,
    every: Duration,
    stop: CancellationToken,
    advice: impl Fn(&BoxError) -> String,
    pass: impl Fn() -> F,
) where
    F: Future<Output = Result<(), BoxError>>,
{
    let mut trouble = Trouble::new(task);
    let passes = async {
        loop {
            let wait = match pass().await {
                Ok(()) => {
                    trouble.is_over();
                    every
                }
                Err(error) => trouble.failed(&error, || advice(&error)).max(every),
            };
            sleep(wait).await;
        }
    };
    tokio::select! {
        biased;
        () = stop.cancelled() => {}
        () = passes => {}
    }
}

/// What keeps a task from its work.
#[derive(Debug)]
struct Trouble {
    /// The subject of a sentence.
    task: &'static str,
    told: Option<String>,
    failures: u32,
}

impl Trouble {
    fn new(task: &'static str) -> Self {
        Self { task, told: None, failures: 0 }
    }

    /// Another failure. Gives the time to wait before the next attempt.
    fn failed(&mut self, error: &BoxError, advice: impl FnOnce() -> String) -> Duration {
        let wait = FIRST.saturating_mul(2_u32.saturating_pow(self.failures)).min(MOST);
        self.failures = self.failures.saturating_add(1);
        let what = what(error);
        if self.told.as_ref() != Some(&what) {
            warn!(%error, "{} does not work and is tried again; {}", self.task, advice());
            self.told = Some(what);
        }
        wait
    }

    fn is_over(&mut self) {
        self.failures = 0;
        if self.told.take().is_some() {
            info!("{} works again", self.task);
        }
    }
}

/// The same for failures that are the same: AWS gives each request another id.
fn what(error: &BoxError) -> String {
    match error.downcast_ref::<AwsError>() {
        Some(error) => match error.code() {
            Some(code) => format!("{} {code}", error.operation),
            None => error.to_string(),
        },
        None => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use kerf_aws_wire::sqs::ReceiveMessageRequest;

    use super::*;

    fn failed(trouble: &mut Trouble, error: &BoxError) -> u64 {
        trouble.failed(error, || "do something".to_owned()).as_secs()
    }

    #[test]
    fn waits_grow_until_it_works_again() {
        let mut trouble = Trouble::new("it");
        let waits: Vec<_> = (0..8).map(|_| failed(&mut trouble, &"no".into())).collect();
        assert_eq!(waits, [5, 10, 20, 40, 80, 160, 300, 300]);
        trouble.is_over();
        assert_eq!(failed(&mut trouble, &"no".into()), 5);
    }

    #[test]
    fn the_same_trouble_is_told_once() {
        let refused = |message: &str| -> BoxError {
            let code = "AccessDenied";
            AwsError::refused::<ReceiveMessageRequest>(403, code, message).into()
        };
        let mut trouble = Trouble::new("it");
        for (error, told) in [
            ("no".into(), "no"),
            (refused("request 1"), "ReceiveMessage AccessDenied"),
            (refused("request 2"), "ReceiveMessage AccessDenied"),
        ] {
            failed(&mut trouble, &error);
            assert_eq!(trouble.told.as_deref(), Some(told));
        }
        trouble.is_over();
        assert_eq!(trouble.told, None);
    }
}
