//! Client-side rate limit, as client-go has it: requests wait for tokens of a bucket.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::time::{Sleep, sleep};
use tower::{Layer, Service};

use crate::{Bucket, Tokens};

#[derive(Clone, Copy, Debug)]
pub(super) struct RateLimitLayer(pub(super) Bucket);

impl<S> Layer<S> for RateLimitLayer {
    type Service = RateLimit<S>;

    fn layer(&self, inner: S) -> RateLimit<S> {
        RateLimit { inner, tokens: Tokens::full(self.0), turn: Turn::Over }
    }
}

#[derive(Debug)]
pub(super) struct RateLimit<S> {
    inner: S,
    tokens: Tokens,
    turn: Turn,
}

/// How far the next request is with its token.
#[derive(Debug)]
enum Turn {
    Over,
    Waiting(Pin<Box<Sleep>>),
    Come,
}

impl<S: Service<R>, R> Service<R> for RateLimit<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        if let Turn::Over = self.turn {
            self.turn = Turn::Waiting(Box::pin(sleep(self.tokens.take())));
        }
        if let Turn::Waiting(wait) = &mut self.turn {
            ready!(wait.as_mut().poll(context));
            self.turn = Turn::Come;
        }
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: R) -> S::Future {
        self.turn = Turn::Over;
        self.inner.call(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;
    use tokio::time::Instant;
    use tower::{ServiceExt, service_fn};

    #[tokio::test(start_paused = true)]
    async fn a_burst_passes_and_the_rest_comes_at_the_rate() {
        let start = Instant::now();
        let inner = service_fn(async |()| Ok::<_, Infallible>(start.elapsed().as_millis()));
        let mut limited = RateLimitLayer(Bucket { per_second: 2, burst: 3 }).layer(inner);
        let mut times = Vec::new();
        for _ in 0..6 {
            times.push(limited.ready().await.unwrap().call(()).await.unwrap());
        }
        assert_eq!(times, [0, 0, 0, 500, 1000, 1500]);

        tokio::time::advance(std::time::Duration::from_mins(1)).await;
        let idle = start.elapsed().as_millis();
        let mut after = Vec::new();
        for _ in 0..4 {
            after.push(limited.ready().await.unwrap().call(()).await.unwrap() - idle);
        }
        assert_eq!(after, [0, 0, 0, 500]);
    }
}
