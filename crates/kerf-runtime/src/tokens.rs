//! Token buckets.

use std::time::Duration;

use tokio::time::Instant;

/// How fast a bucket fills, and how much it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bucket {
    pub per_second: u32,
    pub burst: u32,
}

/// A token bucket that hands out waiting times: who takes a token that is not there yet, waits for it. Time is tokio's.
#[derive(Debug)]
pub struct Tokens {
    bucket: Bucket,
    /// Below zero: tokens that are taken and not there yet.
    level: f64,
    at: Instant,
}

impl Tokens {
    pub fn full(bucket: Bucket) -> Self {
        Self { bucket, level: f64::from(bucket.burst), at: Instant::now() }
    }

    pub fn take(&mut self) -> Duration {
        self.refill();
        self.level -= 1.0;
        Duration::from_secs_f64((-self.level).max(0.0) / f64::from(self.bucket.per_second))
    }

    /// How long it takes until so many tokens are there. `None`: the bucket does not hold so many.
    pub fn until(&mut self, tokens: u32) -> Option<Duration> {
        self.refill();
        let missing = (f64::from(tokens) - self.level).max(0.0);
        let wait = Duration::from_secs_f64(missing / f64::from(self.bucket.per_second));
        (tokens <= self.bucket.burst).then_some(wait)
    }

    /// Takes a token if there is one.
    pub fn try_take(&mut self) -> bool {
        self.refill();
        let has_one = self.level >= 1.0;
        if has_one {
            self.level -= 1.0;
        }
        has_one
    }

    /// Takes all tokens: the owner of the real bucket says that it is empty.
    pub fn drain(&mut self) {
        self.refill();
        self.level = self.level.min(0.0);
    }

    fn refill(&mut self) {
        let now = Instant::now();
        let came = now.duration_since(self.at).as_secs_f64() * f64::from(self.bucket.per_second);
        self.level = (self.level + came).min(f64::from(self.bucket.burst));
        self.at = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_bucket_gives_its_burst_and_then_its_rate() {
        let mut tokens = Tokens::full(Bucket { per_second: 2, burst: 3 });
        let waits: Vec<_> = (0..6).map(|_| tokens.take().as_millis()).collect();
        assert_eq!(waits, [0, 0, 0, 500, 1000, 1500]);
        let until = |tokens: &mut Tokens, many| tokens.until(many).map(|wait| wait.as_millis());
        assert_eq!(
            until(&mut tokens, 1),
            Some(2000),
            "three are owed, and none is taken by asking"
        );
        assert_eq!((until(&mut tokens, 3), until(&mut tokens, 4)), (Some(3000), None));
        tokio::time::advance(Duration::from_millis(1500)).await;
        assert!(!tokens.try_take());
        tokio::time::advance(Duration::from_millis(500)).await;
        assert!(tokens.try_take());
        tokio::time::advance(Duration::from_hours(1)).await;
        assert_eq!((0..4).filter(|_| tokens.try_take()).count(), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_drained_fills_again_and_what_is_owed_stays_owed() {
        let mut tokens = Tokens::full(Bucket { per_second: 2, burst: 3 });
        tokens.drain();
        assert_eq!(tokens.take(), Duration::from_millis(500));
        tokens.drain();
        assert_eq!(tokens.take(), Duration::from_secs(1));
    }
}
