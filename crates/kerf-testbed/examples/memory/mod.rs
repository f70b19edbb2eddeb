//! How much memory an example takes.

/// The most memory this process has held.
pub(crate) fn most_held() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find(|line| line.starts_with("VmHWM:"));
    peak.map_or("unknown".into(), |line| {
        line.split_whitespace().skip(1).collect::<Vec<_>>().join(" ")
    })
}
