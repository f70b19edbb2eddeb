//! Credentials, kept until shortly before they expire.

use std::time::{Duration, SystemTime};

use aws_credential_types::Credentials;
use aws_credential_types::provider::{ProvideCredentials, SharedCredentialsProvider};
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};
use tracing::warn;

/// They are asked for anew this long before they expire.
const EARLY: Duration = Duration::from_mins(5);
/// When that fails, the old ones serve on, and it is tried again after this time.
const AGAIN: Duration = Duration::from_secs(30);
/// The default chain asks several places one after the other, and each has a limit of its own.
const PATIENCE: Duration = Duration::from_mins(1);

#[derive(Debug)]
pub(crate) struct CachedCredentials {
    provider: SharedCredentialsProvider,
    /// Who asks first holds it while asking, so that a thousand calls ask once.
    cached: Mutex<Cached>,
}

#[derive(Debug, Default)]
struct Cached {
    credentials: Option<Credentials>,
    not_before: Option<Instant>,
}

impl CachedCredentials {
    pub(crate) fn new(provider: SharedCredentialsProvider) -> Self {
        Self { provider, cached: Mutex::default() }
    }

    pub(crate) async fn get(&self, now: SystemTime) -> Result<Credentials, String> {
        let mut cached = self.cached.lock().await;
        let valid_for = |credentials: &Credentials, time: Duration| {
            credentials.expiry().is_none_or(|expiry| expiry > now + time)
        };
        if let Some(credentials) = &cached.credentials {
            let waiting = cached.not_before.is_some_and(|time| Instant::now() < time);
            if valid_for(credentials, EARLY) || (waiting && valid_for(credentials, Duration::ZERO))
            {
                return Ok(credentials.clone());
            }
        }
        let fresh = match timeout(PATIENCE, self.provider.provide_credentials()).await {
            Ok(Ok(credentials)) => Ok(credentials),
            Ok(Err(error)) => Err(with_sources(&error)),
            Err(_) => Err(format!("none came within {} s", PATIENCE.as_secs())),
        };
        match (fresh, &cached.credentials) {
            (Ok(credentials), _) => {
                *cached = Cached { credentials: Some(credentials.clone()), not_before: None };
                Ok(credentials)
            }
            (Err(reason), Some(old)) if valid_for(old, Duration::ZERO) => {
                warn!(
                    reason,
                    "credentials of AWS could not be renewed, the old ones are used while they last"
                );
                let old = old.clone();
                cached.not_before = Some(Instant::now() + AGAIN);
                Ok(old)
            }
            (Err(reason), _) => Err(reason),
        }
    }

    /// AWS does not take these any more, whatever they say about their end.
    pub(crate) async fn forget(&self, used: &Credentials) {
        let mut cached = self.cached.lock().await;
        let same = |current: &Credentials| current.access_key_id() == used.access_key_id();
        if cached.credentials.as_ref().is_some_and(same) {
            *cached = Cached::default();
        }
    }
}

/// AWS's errors say the reason in their sources.
pub(crate) fn with_sources(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use aws_credential_types::provider::error::CredentialsError;
    use aws_credential_types::provider::future::ProvideCredentials as Provided;

    use super::*;

    /// Gives keys of ten minutes, numbered; every one in `failing` fails.
    #[derive(Debug, Clone)]
    struct Numbered {
        asked: Arc<AtomicU32>,
        failing: std::ops::Range<u32>,
    }

    impl ProvideCredentials for Numbered {
        fn provide_credentials<'a>(&'a self) -> Provided<'a>
        where
            Self: 'a,
        {
            let number = self.asked.fetch_add(1, Ordering::Relaxed);
            Provided::ready(if self.failing.contains(&number) {
                Err(CredentialsError::not_loaded("closed"))
            } else {
                let expiry =
                    SystemTime::UNIX_EPOCH + Duration::from_mins(10 * u64::from(number + 1));
                Ok(Credentials::new(number.to_string(), "secret", None, Some(expiry), "test"))
            })
        }
    }

    fn cache(failing: std::ops::Range<u32>) -> (CachedCredentials, Arc<AtomicU32>) {
        let asked = Arc::new(AtomicU32::new(0));
        let provider = Numbered { asked: Arc::clone(&asked), failing };
        (CachedCredentials::new(SharedCredentialsProvider::new(provider)), asked)
    }

    fn minute(minute: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_mins(minute)
    }

    #[tokio::test(start_paused = true)]
    async fn they_are_asked_for_again_five_minutes_before_their_end() {
        let (cache, asked) = cache(0..0);
        for (now, key) in [(0, "0"), (4, "0"), (5, "1"), (14, "1"), (15, "2")] {
            assert_eq!(cache.get(minute(now)).await.unwrap().access_key_id(), key, "minute {now}");
        }
        assert_eq!(asked.load(Ordering::Relaxed), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn old_ones_serve_while_they_last() {
        let (cache, asked) = cache(1..3);
        assert!(cache.get(minute(0)).await.is_ok());
        for _ in 0..10 {
            assert_eq!(cache.get(minute(6)).await.unwrap().access_key_id(), "0");
        }
        assert_eq!(asked.load(Ordering::Relaxed), 2, "the provider is not asked for each call");
        let reason = cache.get(minute(10)).await.unwrap_err();
        assert!(reason.contains("closed"), "{reason}");
        assert_eq!(cache.get(minute(10)).await.unwrap().access_key_id(), "3");
    }

    #[tokio::test(start_paused = true)]
    async fn what_aws_refuses_is_forgotten_once() {
        let (cache, asked) = cache(0..0);
        let first = cache.get(minute(0)).await.unwrap();
        cache.forget(&first).await;
        let second = cache.get(minute(0)).await.unwrap();
        cache.forget(&first).await;
        assert_eq!(cache.get(minute(0)).await.unwrap().access_key_id(), second.access_key_id());
        assert_eq!(asked.load(Ordering::Relaxed), 2);
    }
}
