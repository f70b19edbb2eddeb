use kerf_api::GoDuration;
use proptest::{collection, option, prelude::*};

use super::{render, settings, taint};
use crate::user_data::*;

const FORMS: [Form; 4] = [
    Form::Nodeadm,
    Form::BootstrapScript,
    Form::Bottlerocket(BindPaths::Default),
    Form::PowerShell,
];

/// What is left of the settings when they have gone through a form.
fn in_form(form: Form, mut settings: NodeSettings) -> NodeSettings {
    let kubelet = &mut settings.kubelet;
    if form != Form::Nodeadm {
        settings.cluster.service_cidr = None;
        kubelet.cluster_dns.iter_mut().for_each(|all| all.truncate(1));
    }
    match form {
        Form::Bottlerocket(_) => {
            kubelet.pods_per_core = None;
            settings.taints.sort_by(|one, other| one.key.cmp(&other.key));
        }
        Form::PowerShell => settings.instance_store_policy = None,
        _ => {}
    }
    settings
}

fn amounts() -> impl Strategy<Value = Option<BTreeMap<String, String>>> {
    option::of(collection::btree_map(
        "(cpu|memory|nodefs\\.available)",
        "[1-9][0-9]{0,3}(m|Mi|%|)",
        1..3,
    ))
}

prop_compose! {
    fn any_kubelet()(
        cluster_dns in option::of(collection::vec("(10\\.0\\.0\\.[1-9]|fd00::[1-9a-f])", 1..3)),
        numbers in collection::vec(option::of(0..200_i32), 5),
        system_reserved in amounts(), kube_reserved in amounts(),
        eviction_hard in amounts(), eviction_soft in amounts(),
        periods in option::of(collection::btree_map("[a-z]{1,8}\\.available", 0..100_000_u64, 1..3)),
        cpu_cfs_quota: Option<bool>,
    ) -> KubeletConfiguration {
        let period = |seconds| GoDuration::from(std::time::Duration::from_secs(seconds));
        KubeletConfiguration {
            cluster_dns, system_reserved, kube_reserved, eviction_hard, eviction_soft, cpu_cfs_quota,
            max_pods: numbers[0],
            pods_per_core: numbers[1],
            eviction_soft_grace_period: periods
                .map(|all| all.into_iter().map(|(signal, seconds)| (signal, period(seconds))).collect()),
            eviction_max_pod_grace_period: numbers[2],
            image_gc_high_threshold_percent: numbers[3],
            image_gc_low_threshold_percent: numbers[4],
        }
    }
}

prop_compose! {
    fn any_settings()(
        kubelet in any_kubelet(),
        labels in collection::btree_map("([a-z]{1,9}\\.[a-z]{2}/)?[a-zA-Z0-9]([a-z._-]{0,5}[a-z0-9])?", "([a-zA-Z0-9]{1,8})?", 0..5),
        taints in collection::vec(("([a-z]{1,5}/)?[a-z]{1,8}", "(true|1|[a-z]{0,4})", "(NoSchedule|NoExecute)"), 0..4),
        raid0: bool,
        ca_bundle in option::of("([A-Za-z0-9+/]{4}){1,9}"),
    ) -> NodeSettings {
        let known = settings();
        NodeSettings {
            cluster: ClusterAccess { ca_bundle, ..known.cluster },
            kubelet,
            labels,
            taints: taints.iter().map(|(key, value, effect)| taint(key, value, effect)).collect(),
            instance_store_policy: raid0.then_some(InstanceStorePolicy::Raid0),
        }
    }
}

proptest! {
    #[test]
    fn what_is_rendered_is_what_a_node_reads(
        settings in any_settings(),
        custom in "(#!/bin/bash\necho [a-z ]{0,20}\n)?",
    ) {
        for form in FORMS {
            let custom = if matches!(form, Form::Bottlerocket(_)) { "" } else { custom.as_str() };
            let text = render(form, &settings, custom);
            let read = NodeSettings::read(&text);
            prop_assert_eq!(read, Ok(in_form(form, settings.clone())), "{}", text);
        }
    }
}
