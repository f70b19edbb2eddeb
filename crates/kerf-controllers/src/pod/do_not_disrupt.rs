//! Events about the `karpenter.sh/do-not-disrupt` annotation of pods: until when it holds, that it no longer
//! does, or that it never did.

use jiff::Timestamp;
use kerf_api::annotations::DO_NOT_DISRUPT;
use kerf_cluster::{Cluster, Pod, do_not_disrupt::Protection, pods};
use kerf_runtime::events::{Notice, Severity};

use crate::context::Context;

/// Tells the owners of the pods on our nodes.
pub(crate) fn tell(context: &Context) {
    let now = context.now();
    let cluster = context.index.read();
    let annotated = cluster.pods().values().filter(|pod| {
        pod.annotations().contains_key(DO_NOT_DISRUPT)
            && pods::is_active(pod)
            && is_on_our_node(&cluster, pod)
    });
    for notice in annotated.filter_map(|pod| notice(pod, now)) {
        context.recorder.record(notice);
    }
}

fn is_on_our_node(cluster: &Cluster, pod: &Pod) -> bool {
    let node = pods::node_name(pod).and_then(|name| cluster.nodes().named(name));
    node.is_some_and(|node| cluster.state_node_of(node).pool().is_some())
}

fn notice(pod: &Pod, now: Timestamp) -> Option<Notice> {
    let uid = pod.uid().to_owned();
    let about = |severity, reason, message| Notice::of(pod.object_ref(), severity, reason, message);
    Some(match Protection::of(pod, now) {
        Protection::None | Protection::Always => return None,
        Protection::Until(until) => {
            let until = until.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
            let message = format!("The {DO_NOT_DISRUPT} grace period will elapse at {until}");
            about(Severity::Normal, "DoNotDisruptUntil", message).same_if(vec![uid, until])
        }
        Protection::Elapsed => {
            let message =
                format!("The {DO_NOT_DISRUPT} grace period has elapsed, pod is now disruptable");
            about(Severity::Normal, "DoNotDisruptGracePeriodElapsed", message)
        }
        Protection::Invalid(why) => {
            let why = why.to_string();
            let message =
                format!("Invalid {DO_NOT_DISRUPT} annotation: {why}, ignoring annotation");
            about(Severity::Warning, "InvalidDoNotDisruptAnnotation", message)
                .same_if(vec![uid, why])
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn owners_hear_until_when_an_annotation_holds() {
        let told = |value: &str| {
            let pod: Pod = serde_json::from_value(json!({
                "metadata": {"name": "p", "annotations": {DO_NOT_DISRUPT: value}},
                "spec": {"containers": []},
                "status": {"startTime": "2026-01-01T00:00:00Z"},
            }))
            .unwrap();
            let notice = notice(&pod, "2026-01-01T01:00:00Z".parse().unwrap());
            notice.map(|notice| format!("{}: {}", notice.reason, notice.message))
        };
        assert_eq!(told("true"), None);
        assert_eq!(
            told("2h").unwrap(),
            "DoNotDisruptUntil: The karpenter.sh/do-not-disrupt grace period will elapse at 2026-01-01T02:00:00Z"
        );
        assert_eq!(
            told("1h").unwrap(),
            "DoNotDisruptGracePeriodElapsed: The karpenter.sh/do-not-disrupt grace period has elapsed, pod is now disruptable"
        );
        let invalid =
            "InvalidDoNotDisruptAnnotation: Invalid karpenter.sh/do-not-disrupt annotation: ";
        assert_eq!(
            told("0s").unwrap(),
            format!("{invalid}duration \"0s\" must be positive, ignoring annotation")
        );
        let unread = told("false").unwrap();
        assert!(
            unread.starts_with(&format!("{invalid}failed to parse \"false\" as a duration: ")),
            "{unread}"
        );
    }
}
