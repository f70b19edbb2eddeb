//! Where developer commands keep what outlives a clone of the repository.

use std::env;
use std::path::PathBuf;

/// `$KERF_CACHE`, or `~/.cache/kerf`; absolute, since commands run in other directories than ours.
pub(crate) fn cache() -> PathBuf {
    let cache = match env::var_os("KERF_CACHE") {
        Some(cache) if !cache.is_empty() => PathBuf::from(cache),
        _ => env::home_dir().unwrap_or_else(env::temp_dir).join(".cache").join("kerf"),
    };
    std::path::absolute(&cache).unwrap_or(cache)
}
