//! Taints that Kerf sets, and those that go away by themselves while a node starts.

use k8s_openapi::api::core::v1::Taint;

pub const NO_SCHEDULE: &str = "NoSchedule";
pub const PREFER_NO_SCHEDULE: &str = "PreferNoSchedule";
pub const NO_EXECUTE: &str = "NoExecute";

/// Key of the taint on nodes that are about to be removed.
pub const DISRUPTED: &str = "karpenter.sh/disrupted";
/// Key of the taint on nodes that are about to be rebooted, until they are back.
pub const REBOOTING: &str = "karpenter.sh/rebooting";
/// Key of the taint that nodes are born with and that registration removes.
pub const UNREGISTERED: &str = "karpenter.sh/unregistered";

/// Keys that start with this belong to controllers which hold a node back until something on it is
/// ready.
const READINESS_PREFIX: &str = "readiness.k8s.io/";

const EPHEMERAL: [(&str, &str); 5] = [
    ("node.kubernetes.io/not-ready", NO_SCHEDULE),
    ("node.kubernetes.io/not-ready", NO_EXECUTE),
    ("node.kubernetes.io/unreachable", NO_SCHEDULE),
    ("node.cloudprovider.kubernetes.io/uninitialized", NO_SCHEDULE),
    (UNREGISTERED, NO_EXECUTE),
];

pub fn disrupted() -> Taint {
    taint(DISRUPTED, NO_SCHEDULE)
}

pub fn rebooting() -> Taint {
    taint(REBOOTING, NO_SCHEDULE)
}

pub fn unregistered() -> Taint {
    taint(UNREGISTERED, NO_EXECUTE)
}

fn taint(key: &str, effect: &str) -> Taint {
    Taint { key: key.to_owned(), effect: effect.to_owned(), ..Default::default() }
}

/// Whether two taints are the same one to Kubernetes, which does not look at the value.
pub fn same(one: &Taint, other: &Taint) -> bool {
    one.key == other.key && one.effect == other.effect
}

/// Whether the taint is known to go away while the node starts, so that pods need not tolerate it.
pub fn is_ephemeral(taint: &Taint) -> bool {
    taint.key.starts_with(READINESS_PREFIX)
        || EPHEMERAL.contains(&(taint.key.as_str(), taint.effect.as_str()))
}

/// `key:Effect`, or `key=value:Effect` if there is a value.
pub fn display(taint: &Taint) -> String {
    match taint.value.as_deref() {
        None | Some("") => format!("{}:{}", taint.key, taint.effect),
        Some(value) => format!("{}={value}:{}", taint.key, taint.effect),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knows_the_taints_of_a_starting_node() {
        let check = |key: &str, effect: &str, ephemeral: bool| {
            assert_eq!(is_ephemeral(&taint(key, effect)), ephemeral, "{key}:{effect}");
        };
        check("node.kubernetes.io/not-ready", NO_SCHEDULE, true);
        check("node.kubernetes.io/not-ready", NO_EXECUTE, true);
        check("node.kubernetes.io/not-ready", PREFER_NO_SCHEDULE, false);
        check("node.kubernetes.io/unreachable", NO_SCHEDULE, true);
        check("node.kubernetes.io/unreachable", NO_EXECUTE, false);
        check("node.cloudprovider.kubernetes.io/uninitialized", NO_SCHEDULE, true);
        check(UNREGISTERED, NO_EXECUTE, true);
        check(UNREGISTERED, NO_SCHEDULE, false);
        check(DISRUPTED, NO_SCHEDULE, false);
        check("readiness.k8s.io/gpu", NO_EXECUTE, true);
        check("dedicated", NO_SCHEDULE, false);
    }

    #[test]
    fn identifies_a_taint_by_key_and_effect() {
        let valued = Taint { value: Some("x".to_owned()), ..disrupted() };
        assert!(same(&valued, &disrupted()));
        assert!(!same(&unregistered(), &disrupted()));
        assert!(!same(&taint(DISRUPTED, NO_EXECUTE), &disrupted()));
    }

    #[test]
    fn prints_the_value_only_if_there_is_one() {
        assert_eq!(display(&unregistered()), "karpenter.sh/unregistered:NoExecute");
        let valued = Taint { value: Some("gpu".to_owned()), ..taint("dedicated", NO_SCHEDULE) };
        assert_eq!(display(&valued), "dedicated=gpu:NoSchedule");
    }
}
