//! Questions that are asked together: many callers within a moment share one call.

use std::{collections::BTreeMap, time::Duration};

use kerf_provider::ProviderError;
use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, timeout_at},
};

use crate::metrics::BatchMetrics;

/// A batch closes when nobody has joined it for so long.
const IDLE: Duration = Duration::from_millis(100);
/// And then at the latest.
const LONGEST: Duration = Duration::from_secs(1);

/// What is known of each key that was asked for. A key that is missing is unknown to EC2.
pub(crate) type Answers<V> = Result<BTreeMap<String, V>, ProviderError>;

/// Collects keys and asks for them together.
#[derive(Debug)]
pub(crate) struct Batcher<V> {
    questions: mpsc::UnboundedSender<Question<V>>,
}

#[derive(Debug)]
struct Question<V> {
    key: String,
    answer: oneshot::Sender<Result<Option<V>, ProviderError>>,
}

impl<V: Clone + Send + 'static> Batcher<V> {
    /// `name` is that of the call in metrics. `call` gets at most `most` keys. Calls run side by side. Everything ends when the batcher is dropped. Needs a tokio
    /// runtime.
    pub(crate) fn new<F>(
        name: &'static str,
        most: usize,
        metrics: &BatchMetrics,
        call: impl Fn(Vec<String>) -> F + Send + 'static,
    ) -> Self
    where
        F: Future<Output = Answers<V>> + Send + 'static,
    {
        let metrics = metrics.clone();
        let (questions, mut asked) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Some(first) = asked.recv().await {
                let begin = Instant::now();
                let batch = fill(first, &mut asked, most).await;
                metrics.closed(name, batch.len(), begin.elapsed());
                let keys = batch.iter().map(|question| question.key.clone());
                // The same key may be asked for by several.
                let keys: std::collections::BTreeSet<_> = keys.collect();
                let answers = call(keys.into_iter().collect());
                tokio::spawn(async move { deal_out(batch, &answers.await) });
            }
        });
        Self { questions }
    }

    pub(crate) async fn ask(&self, key: &str) -> Result<Option<V>, ProviderError> {
        let (answer, answered) = oneshot::channel();
        let stopped = || ProviderError::Other("the operator stops".to_owned());
        self.questions.send(Question { key: key.to_owned(), answer }).map_err(|_| stopped())?;
        answered.await.map_err(|_| stopped())?
    }
}

async fn fill<V>(
    first: Question<V>,
    asked: &mut mpsc::UnboundedReceiver<Question<V>>,
    most: usize,
) -> Vec<Question<V>> {
    let close = Instant::now() + LONGEST;
    let mut batch = vec![first];
    while batch.len() < most {
        let idle = Instant::now() + IDLE;
        match timeout_at(idle.min(close), asked.recv()).await {
            Ok(Some(question)) => batch.push(question),
            Ok(None) | Err(_) => break,
        }
    }
    batch
}

fn deal_out<V: Clone>(batch: Vec<Question<V>>, answers: &Answers<V>) {
    for Question { key, answer } in batch {
        let of_key = match answers {
            Ok(known) => Ok(known.get(&key).cloned()),
            Err(error) => Err(error.clone()),
        };
        // Whoever asked may have stopped waiting.
        drop(answer.send(of_key));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use tokio::time::{Instant, sleep};

    use super::*;

    type Calls = Arc<Mutex<Vec<Vec<String>>>>;

    fn batcher(most: usize) -> (Arc<Batcher<usize>>, Calls) {
        let calls = Calls::default();
        let log = Arc::clone(&calls);
        let batcher = Batcher::new("test", most, &BatchMetrics::default(), move |keys| {
            log.lock().unwrap().push(keys.clone());
            async move {
                let known = keys.into_iter().filter(|key| key != "unknown");
                Ok(known.map(|key| (key.clone(), key.len())).collect())
            }
        });
        (Arc::new(batcher), calls)
    }

    #[tokio::test(start_paused = true)]
    async fn questions_of_one_moment_are_one_call() {
        let (batcher, calls) = batcher(500);
        let ask = |key: &'static str, after: u64| {
            let batcher = Arc::clone(&batcher);
            tokio::spawn(async move {
                sleep(Duration::from_millis(after)).await;
                batcher.ask(key).await
            })
        };
        let begin = Instant::now();
        let asked = [ask("a", 0), ask("bb", 90), ask("bb", 180), ask("unknown", 270)];
        let mut answers = Vec::new();
        for one in asked {
            answers.push(one.await.unwrap());
        }
        assert_eq!(answers, [Ok(Some(1)), Ok(Some(2)), Ok(Some(2)), Ok(None)]);
        assert_eq!(begin.elapsed(), Duration::from_millis(370));
        assert_eq!(*calls.lock().unwrap(), [["a", "bb", "unknown"]]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_batch_closes_when_it_is_full_or_after_a_second() {
        let (batcher, calls) = batcher(2);
        let asked: Vec<_> = ["a", "b", "c"]
            .into_iter()
            .map(|key| {
                let batcher = Arc::clone(&batcher);
                tokio::spawn(async move { batcher.ask(key).await })
            })
            .collect();
        for one in asked {
            assert_eq!(one.await.unwrap(), Ok(Some(1)));
        }
        assert_eq!(*calls.lock().unwrap(), [vec!["a", "b"], vec!["c"]]);
    }
}
