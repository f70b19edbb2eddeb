//! How a reconcile can fail.

use kerf_cluster::reservations::{NoRoom, NotReserved};
use kerf_provider::{BoxError, ProviderError};
use kerf_runtime::Outcome;

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("{what}: {source}")]
    Api {
        /// What was tried, on what.
        what: String,
        source: kube::Error,
    },
    #[error("{what}: {source}")]
    Provider { what: String, source: ProviderError },
    /// A controller of the provider failed.
    #[error(transparent)]
    OfProvider(BoxError),
    #[error(transparent)]
    Unreadable(#[from] kerf_cluster::view::Unreadable),
    #[error(transparent)]
    NoRoom(#[from] NoRoom),
    #[error("creating a NodeClaim of NodePool {pool}: the pool is gone, or no longer ours")]
    PoolGone { pool: String },
    #[error("NodeClaim {claim} is left alone: it or its node cannot be read")]
    LeftAlone { claim: String },
    #[error("annotation {annotation} of {object} is not an RFC 3339 time: {value:?}")]
    MalformedTime { annotation: &'static str, object: String, value: String },
}

pub(crate) type Result<T, E = Error> = std::result::Result<T, E>;

impl From<NotReserved> for Error {
    fn from(not_reserved: NotReserved) -> Self {
        match not_reserved {
            NotReserved::NoRoom(why) => why.into(),
            NotReserved::Unreadable(source) => source.into(),
        }
    }
}

/// Says what was tried when an API call fails.
pub(crate) trait Tried<T> {
    fn tried(self, what: impl FnOnce() -> String) -> Result<T>;
}

impl<T> Tried<T> for kube::Result<T> {
    fn tried(self, what: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|source| Error::Api { what: what(), source })
    }
}

/// Another process wrote first, or the object is gone: neither is worth an error line.
///
/// Both mean that the decision rested on what the watch has not brought yet. The key comes back by itself: what is gone may be
/// another object than the one that the key names, and no event would come for that one again.
pub(crate) fn unless_outdated(result: Result<Outcome>) -> Result<Outcome> {
    let refused = match &result {
        Err(Error::Api { source, .. }) => Some(source),
        Err(Error::OfProvider(source)) => source.downcast_ref::<kube::Error>(),
        _ => None,
    };
    match refused {
        Some(kube::Error::Api(status)) if status.is_conflict() || status.is_not_found() => {
            Ok(Outcome::Backoff)
        }
        _ => result,
    }
}

/// Whether the API server says that there is no such object.
pub(crate) fn is_not_found(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.is_not_found())
}
