//! Which launch templates go. They cost nothing but a place in the account's quota of 5000, and a launch that finds its template
//! saves two calls; so they go by age, and sooner when there are many.

use std::{collections::BTreeSet, time::Duration};

use jiff::Timestamp;
use kerf_aws_api::tags;
use kerf_aws_wire::ec2::{LaunchTemplate, Tag};

/// How long an unused template stays.
const KEPT: Duration = Duration::from_hours(7 * 24);
/// How long it stays when there are more than [`MANY`].
const KEPT_OF_MANY: Duration = Duration::from_hours(1);
/// A tenth of the quota: a class has a few dozen at most.
const MANY: usize = 500;

/// Why a template is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeptTemplate {
    /// It does not have the tags of this cluster.
    NotOurs,
    /// A class or a launch needs it.
    InUse,
    Young {
        left: Duration,
    },
}

/// Whether a template may be deleted. `in_use` are names of templates that launches of the last time have used, `last_used` is when
/// this process last used it, at the latest its start; `all` is how many the cluster has.
pub fn may_collect(
    template: &LaunchTemplate,
    cluster: &str,
    in_use: &BTreeSet<String>,
    last_used: Timestamp,
    all: usize,
    now: Timestamp,
) -> Result<(), KeptTemplate> {
    let tag = |key: &str| {
        let found =
            template.tags.iter().find(|Tag { key: other, .. }| other.as_deref() == Some(key));
        found.and_then(|tag| tag.value.as_deref())
    };
    if tag(tags::EKS_CLUSTER_NAME) != Some(cluster) || tag(tags::NODE_CLASS).is_none() {
        return Err(KeptTemplate::NotOurs);
    }
    if template.launch_template_name.as_ref().is_some_and(|name| in_use.contains(name)) {
        return Err(KeptTemplate::InUse);
    }
    let kept = if all > MANY { KEPT_OF_MANY } else { KEPT };
    let latest = template.create_time.map_or(last_used, |created| created.max(last_used));
    let age = Duration::try_from(now.duration_since(latest)).unwrap_or_default();
    if age < kept { Err(KeptTemplate::Young { left: kept.saturating_sub(age) }) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_go_by_age_and_sooner_when_there_are_many() {
        let at = |day: u32, hour: u32| -> Timestamp {
            format!("2026-11-{day:02}T{hour:02}:00:00Z").parse().unwrap()
        };
        let tag = |key: &str, value: &str| Tag {
            key: Some(key.to_owned()),
            value: Some(value.to_owned()),
        };
        let of = |cluster: &str| LaunchTemplate {
            launch_template_name: Some("karpenter.k8s.aws/1".to_owned()),
            create_time: Some(at(1, 0)),
            tags: vec![tag(tags::EKS_CLUSTER_NAME, cluster), tag(tags::NODE_CLASS, "default")],
            ..LaunchTemplate::default()
        };
        let (used, unused) = (["karpenter.k8s.aws/1".to_owned()].into(), BTreeSet::new());
        let hours = Duration::from_hours;
        let young = |left| Err(KeptTemplate::Young { left });
        for (template, in_use, last_used, all, now, expected) in [
            (of("other"), &unused, at(1, 0), 1, at(30, 0), Err(KeptTemplate::NotOurs)),
            (of("demo"), &used, at(1, 0), 1, at(30, 0), Err(KeptTemplate::InUse)),
            (of("demo"), &unused, at(1, 0), 1, at(7, 23), young(hours(1))),
            (of("demo"), &unused, at(1, 0), 1, at(8, 0), Ok(())),
            (of("demo"), &unused, at(5, 0), 1, at(8, 0), young(hours(4 * 24))),
            (of("demo"), &unused, at(1, 0), 501, at(1, 1), Ok(())),
            (of("demo"), &unused, at(1, 0), 500, at(1, 1), young(hours(167))),
        ] {
            let found = may_collect(&template, "demo", in_use, last_used, all, now);
            assert_eq!(found, expected, "{now}");
        }
    }
}
