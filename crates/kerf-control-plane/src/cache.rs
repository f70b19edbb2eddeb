//! Where things are kept that outlive a clone of the repository.

use std::env;
use std::path::PathBuf;

/// What belongs to control planes.
pub(crate) fn control_plane_cache() -> PathBuf {
    cache().join("control-plane")
}

/// `$KERF_CACHE`, or `~/.cache/kerf`.
pub(crate) fn cache() -> PathBuf {
    let cache = match env::var_os("KERF_CACHE") {
        Some(cache) if !cache.is_empty() => PathBuf::from(cache),
        _ => env::home_dir().unwrap_or_else(env::temp_dir).join(".cache").join("kerf"),
    };
    // Components run in another directory than we do.
    std::path::absolute(&cache).unwrap_or(cache)
}
