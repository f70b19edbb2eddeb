//! The kubelet's command line: labels, taints and settings as flags.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Taint;
use kerf_api::{GoDuration, taints};
use kerf_aws_api::KubeletConfiguration;

use super::{NodeSettings, Unreadable, quoted};

/// Labels, taints and the settings of the class, in the order of Karpenter.
pub(super) fn render(settings: &NodeSettings) -> String {
    let kubelet = &settings.kubelet;
    let taints: Vec<_> = settings.taints.iter().map(taints::display).collect();
    let mut args = Vec::new();
    if !settings.labels.is_empty() {
        args.push(labels(&settings.labels));
    }
    args.push(format!("--register-with-taints=\"{}\"", taints.join(",")));
    let mut number = |flag: &str, value: Option<i32>| {
        args.extend(value.map(|value| format!("--{flag}={value}")));
    };
    number("max-pods", kubelet.max_pods);
    number("pods-per-core", kubelet.pods_per_core);
    let grace_periods = kubelet.eviction_soft_grace_period.as_ref().map(go_texts);
    for (flag, values, sign) in [
        ("system-reserved", &kubelet.system_reserved, "="),
        ("kube-reserved", &kubelet.kube_reserved, "="),
        ("eviction-hard", &kubelet.eviction_hard, "<"),
        ("eviction-soft", &kubelet.eviction_soft, "<"),
        ("eviction-soft-grace-period", &grace_periods, "="),
    ] {
        if let Some(values) = values.as_ref().filter(|values| !values.is_empty()) {
            args.push(format!("--{flag}=\"{}\"", joined(values, sign)));
        }
    }
    let mut number = |flag: &str, value: Option<i32>| {
        args.extend(value.map(|value| format!("--{flag}={value}")));
    };
    number("eviction-max-pod-grace-period", kubelet.eviction_max_pod_grace_period);
    number("image-gc-high-threshold", kubelet.image_gc_high_threshold_percent);
    number("image-gc-low-threshold", kubelet.image_gc_low_threshold_percent);
    args.extend(kubelet.cpu_cfs_quota.map(|quota| format!("--cpu-cfs-quota={quota}")));
    args.join(" ")
}

pub(super) fn labels(labels: &BTreeMap<String, String>) -> String {
    format!("--node-labels=\"{}\"", joined(labels, "="))
}

/// Durations as Go prints them, which is how Karpenter hands them on.
pub(super) fn go_texts(durations: &BTreeMap<String, GoDuration>) -> BTreeMap<String, String> {
    let text = |duration: &GoDuration| GoDuration::from(duration.as_duration()).to_string();
    durations.iter().map(|(signal, duration)| (signal.clone(), text(duration))).collect()
}

fn joined(values: &BTreeMap<String, String>, sign: &str) -> String {
    let entries: Vec<_> = values.iter().map(|(key, value)| format!("{key}{sign}{value}")).collect();
    entries.join(",")
}

/// Splits a command line as a shell does: at spaces that are not in quotes.
pub(super) fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    for character in text.chars() {
        match (quote, character) {
            (Some(open), close) if open == close => quote = None,
            (Some(_), inside) => word.get_or_insert_default().push(inside),
            (None, '\'' | '"') => {
                quote = Some(character);
                word.get_or_insert_default();
            }
            (None, space) if space.is_whitespace() => words.extend(word.take()),
            (None, other) => word.get_or_insert_default().push(other),
        }
    }
    words.extend(word);
    words
}

/// Takes the flags over into the settings; flags that are not about them are passed over.
pub(super) fn read(args: &[String], settings: &mut NodeSettings) -> Result<(), Unreadable> {
    let kubelet = &mut settings.kubelet;
    for arg in args {
        let Some((flag, value)) = arg.strip_prefix("--").and_then(|arg| arg.split_once('=')) else {
            continue;
        };
        let refused = || Unreadable::KubeletArgument(quoted(arg));
        let number = || value.parse().map(Some).map_err(|_| refused());
        let map = |sign| entries(value, sign).map(Some).ok_or_else(refused);
        match flag {
            "node-labels" => settings.labels.extend(entries(value, '=').ok_or_else(refused)?),
            "register-with-taints" => {
                settings.taints = value
                    .split_terminator(',')
                    .map(taint)
                    .collect::<Option<_>>()
                    .ok_or_else(refused)?;
            }
            "max-pods" => kubelet.max_pods = number()?,
            "pods-per-core" => kubelet.pods_per_core = number()?,
            "system-reserved" => kubelet.system_reserved = map('=')?,
            "kube-reserved" => kubelet.kube_reserved = map('=')?,
            "eviction-hard" => kubelet.eviction_hard = map('<')?,
            "eviction-soft" => kubelet.eviction_soft = map('<')?,
            "eviction-soft-grace-period" => {
                let texts = entries(value, '=').ok_or_else(refused)?;
                read_durations(texts, kubelet).ok_or_else(refused)?;
            }
            "eviction-max-pod-grace-period" => kubelet.eviction_max_pod_grace_period = number()?,
            "image-gc-high-threshold" => kubelet.image_gc_high_threshold_percent = number()?,
            "image-gc-low-threshold" => kubelet.image_gc_low_threshold_percent = number()?,
            "cpu-cfs-quota" => {
                kubelet.cpu_cfs_quota = Some(value.parse().map_err(|_| refused())?);
            }
            _ => {}
        }
    }
    Ok(())
}

pub(super) fn read_durations(
    texts: BTreeMap<String, String>,
    kubelet: &mut KubeletConfiguration,
) -> Option<()> {
    let parsed = texts.into_iter().map(|(signal, text)| Some((signal, text.parse().ok()?)));
    kubelet.eviction_soft_grace_period = Some(parsed.collect::<Option<_>>()?);
    Some(())
}

fn entries(text: &str, sign: char) -> Option<BTreeMap<String, String>> {
    let entry = |entry: &str| {
        let (key, value) = entry.split_once(sign)?;
        Some((key.to_owned(), value.to_owned()))
    };
    text.split_terminator(',').map(entry).collect()
}

/// `key=value:Effect` or `key:Effect`.
fn taint(text: &str) -> Option<Taint> {
    let (key, effect) = text.rsplit_once(':')?;
    let (key, value) = match key.split_once('=') {
        Some((key, value)) => (key, Some(value.to_owned())),
        None => (key, None),
    };
    Some(Taint {
        key: key.to_owned(),
        value: value.filter(|value| !value.is_empty()),
        effect: effect.to_owned(),
        ..Taint::default()
    })
}
