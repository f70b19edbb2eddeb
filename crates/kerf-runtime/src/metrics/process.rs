//! The `process_*` metrics that every Prometheus client library exposes, read from /proc at each scrape.

use std::{fmt, fs};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{MetricType, counter::ConstCounter, gauge::ConstGauge},
};

/// Where there is no /proc, there are no such metrics.
#[derive(Debug)]
pub(super) struct Process;

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let Some(usage) = Usage::read() else { return Ok(()) };
        let mut write = |name, help, kind, metric: &dyn EncodeMetric| {
            metric.encode(encoder.encode_descriptor(name, help, None, kind)?)
        };
        let cpu = ConstCounter::new(usage.cpu_seconds);
        write(
            "process_cpu_seconds",
            "User and system CPU time spent in seconds",
            MetricType::Counter,
            &cpu,
        )?;
        for (name, help, value) in [
            ("process_resident_memory_bytes", "Resident memory in bytes", usage.resident_bytes),
            ("process_virtual_memory_bytes", "Virtual memory in bytes", usage.virtual_bytes),
            ("process_open_fds", "Open file descriptors", usage.open_fds),
            ("process_max_fds", "Most file descriptors that may be open", usage.max_fds),
            (
                "process_start_time_seconds",
                "Start of the process in seconds since the epoch",
                usage.start_time,
            ),
        ] {
            if let Some(value) = value {
                write(name, help, MetricType::Gauge, &ConstGauge::new(value))?;
            }
        }
        Ok(())
    }
}

#[derive(Debug, PartialEq)]
struct Usage {
    cpu_seconds: f64,
    resident_bytes: Option<f64>,
    virtual_bytes: Option<f64>,
    open_fds: Option<f64>,
    max_fds: Option<f64>,
    start_time: Option<f64>,
}

/// Ticks per second in /proc. The kernel reports in `USER_HZ`, fixed at 100 on every architecture
/// that Kubernetes runs on, whatever the kernel's own tick is.
const TICKS_PER_SECOND: f64 = 100.0;

impl Usage {
    fn read() -> Option<Self> {
        let stat = fs::read_to_string("/proc/self/stat").ok()?;
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
        let boot = fs::read_to_string("/proc/stat").unwrap_or_default();
        let open_fds = fs::read_dir("/proc/self/fd").ok().map(|fds| fds.count() as f64);
        Self::parse(&stat, &status, &limits, &boot, open_fds)
    }

    fn parse(
        stat: &str,
        status: &str,
        limits: &str,
        boot: &str,
        open_fds: Option<f64>,
    ) -> Option<Self> {
        // The command name is in parentheses and may hold spaces and parentheses itself.
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        // proc_pid_stat(5) counts from 1 and starts with pid and command, which are cut off here.
        let ticks = |number: usize| fields.get(number - 3)?.parse::<f64>().ok();
        let kilobytes = |key| first_number_after(status, key).map(|kb| kb * 1024.0);
        let boot_time = first_number_after(boot, "btime");
        Some(Self {
            cpu_seconds: (ticks(14)? + ticks(15)?) / TICKS_PER_SECOND,
            resident_bytes: kilobytes("VmRSS:"),
            virtual_bytes: kilobytes("VmSize:"),
            open_fds,
            max_fds: first_number_after(limits, "Max open files"),
            start_time: ticks(22).zip(boot_time).map(|(t, boot)| boot + t / TICKS_PER_SECOND),
        })
    }
}

/// The first number on the line that begins with `key`.
fn first_number_after(text: &str, key: &str) -> Option<f64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(key))?;
    rest.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_the_kernel_writes() {
        let stat = "7 (ke rf) x) S 1 7 7 0 -1 4194304 900 0 0 0 150 50 0 0 20 0 4 0 1000 0 0\n";
        let status = "Name:\tkerf\nVmSize:\t  2048 kB\nVmRSS:\t   512 kB\n";
        let limits = "Max processes             94937    94937    processes\n\
                      Max open files            1024     4096     files\n";
        let boot = "cpu  1 2 3\nbtime 1700000000\n";
        let usage = Usage::parse(stat, status, limits, boot, Some(9.0)).unwrap();
        assert_eq!(
            usage,
            Usage {
                cpu_seconds: 2.0,
                resident_bytes: Some(524_288.0),
                virtual_bytes: Some(2_097_152.0),
                open_fds: Some(9.0),
                max_fds: Some(1024.0),
                start_time: Some(1_700_000_010.0),
            }
        );
    }

    #[test]
    fn leaves_out_what_is_not_there() {
        let stat = "7 (kerf) S 1 7 7 0 -1 0 0 0 0 0 150 50 0 0 20 0 4 0 1000 0 0";
        let usage = Usage::parse(stat, "", "Max open files unlimited", "", None).unwrap();
        assert_eq!((usage.max_fds, usage.start_time, usage.open_fds), (None, None, None));
        assert_eq!(Usage::parse("garbage", "", "", "", None), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_very_process_has_all_of_them() {
        let text = crate::Metrics::default().text();
        for name in [
            "process_cpu_seconds_total",
            "process_resident_memory_bytes",
            "process_virtual_memory_bytes",
            "process_open_fds",
            "process_max_fds",
            "process_start_time_seconds",
        ] {
            assert!(
                text.lines().any(|line| line.starts_with(&format!("{name} "))),
                "{name}\n{text}"
            );
        }
    }
}
