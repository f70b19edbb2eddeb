//! The CEL rules of the CRD: where each stands, what it says, and what the user reads who breaks it.
//!
//! They accept and refuse what those of Karpenter's AWS provider 1.14.1 accept and refuse, oddities included.

use kube_core::Rule;

use crate::{
    AmiFamily,
    node_class::ami_family::FAMILIES_OF_ALIASES,
    tags::{EKS_CLUSTER_NAME, NODE_CLAIM, NODE_CLASS, NODE_POOL},
};

/// All rules, each with the place of the schema that it belongs to. `[]` stands for the items of a list.
pub(crate) fn rules() -> Vec<(&'static str, Rule)> {
    let lists = [spec(), terms(), ami_terms(), tags(), kubelet(), devices(), network()];
    lists.into_iter().flatten().collect()
}

type Rules = Vec<(&'static str, Rule)>;

fn rule(at: &'static str, expression: impl Into<String>, message: &str) -> (&'static str, Rule) {
    (at, Rule::new(expression).message(message))
}

fn spec() -> Rules {
    let mut rules = vec![
        rule(
            "spec",
            "has(self.role) != has(self.instanceProfile)",
            "set exactly one of role and instanceProfile",
        ),
        rule(
            "spec",
            "has(self.amiFamily) || self.amiSelectorTerms.exists(term, has(term.alias))",
            "amiFamily is needed unless amiSelectorTerms has an alias",
        ),
        rule("spec.role", "self != ''", "role may not be empty"),
        rule("spec.instanceProfile", "self != ''", "instanceProfile may not be empty"),
    ];
    for (name, family) in FAMILIES_OF_ALIASES {
        let of_this = format!("has(term.alias) && term.alias.split('@')[0] == '{name}'");
        rules.push(rule(
            "spec",
            format!(
                "!has(self.amiFamily) || self.amiFamily in ['{family}', 'Custom'] || !self.amiSelectorTerms.exists(term, {of_this})"
            ),
            &format!("amiFamily must be {family} or Custom with an alias of the family {name}"),
        ));
    }
    rules
}

/// That `id` and `name` stand alone is only refused where it holds for none of the terms: one good term makes a list with bad
/// ones pass, and an empty list does not pass. It is so in Karpenter.
fn terms() -> Rules {
    const SUBNETS: &str = "spec.subnetSelectorTerms";
    const GROUPS: &str = "spec.securityGroupSelectorTerms";
    const RESERVATIONS: &str = "spec.capacityReservationSelectorTerms";
    let one_has = |fields: &[&str]| {
        let has = fields.iter().map(|field| format!("has(term.{field})"));
        has.collect::<Vec<_>>().join(" || ")
    };
    let mut rules = Vec::new();
    for (at, fields) in [
        (SUBNETS, &["tags", "id"][..]),
        (GROUPS, &["tags", "id", "name"]),
        (RESERVATIONS, &["tags", "id", "instanceMatchCriteria"]),
    ] {
        rules.push(rule(
            at,
            format!("self.all(term, {})", one_has(fields)),
            &format!("each term needs one of {}", fields.join(", ")),
        ));
    }
    for (at, alone, others) in [
        (SUBNETS, "id", &["tags"][..]),
        (GROUPS, "id", &["tags", "name"]),
        (GROUPS, "name", &["tags", "id"]),
        (RESERVATIONS, "id", &["tags", "ownerID", "instanceMatchCriteria"]),
    ] {
        rules.push(rule(
            at,
            format!("self.exists(term, !has(term.{alone}) || !({}))", one_has(others)),
            &format!("a term with {alone} can have nothing else"),
        ));
    }
    for at in [SUBNETS, GROUPS] {
        rules.push(rule(at, "size(self) > 0", "at least one term is needed"));
    }
    for at in [
        "spec.subnetSelectorTerms[].tags",
        "spec.securityGroupSelectorTerms[].tags",
        "spec.capacityReservationSelectorTerms[].tags",
        "spec.amiSelectorTerms[].tags",
    ] {
        rules.push(rule(
            at,
            "self.all(key, key != '' && self[key] != '')",
            "keys and values of tags may not be empty",
        ));
    }
    rules
}

fn ami_terms() -> Rules {
    const LIST: &str = "spec.amiSelectorTerms";
    const ALIAS: &str = "spec.amiSelectorTerms[].alias";
    let quoted = |is_listed: fn(AmiFamily) -> bool| {
        let listed = FAMILIES_OF_ALIASES.iter().filter(|(_, family)| is_listed(*family));
        listed.map(|(name, _)| format!("'{name}'")).collect::<Vec<_>>().join(", ")
    };
    let names = FAMILIES_OF_ALIASES.map(|(name, _)| name).join(", ");
    vec![
        rule(
            LIST,
            "self.all(term, has(term.tags) || has(term.id) || has(term.name) || has(term.alias) || has(term.ssmParameter))",
            "each term needs one of tags, id, name, alias, ssmParameter",
        ),
        rule(
            LIST,
            "self.all(term, !has(term.id) || !(has(term.alias) || has(term.tags) || has(term.name) || has(term.owner)))",
            "a term with id can have none of alias, tags, name, owner",
        ),
        rule(
            LIST,
            "self.all(term, !has(term.alias) || !(has(term.id) || has(term.tags) || has(term.name) || has(term.owner)))",
            "a term with alias can have none of id, tags, name, owner",
        ),
        rule(
            LIST,
            "size(self) == 1 || !self.exists(term, has(term.alias))",
            "a term with alias must be the only term",
        ),
        rule(ALIAS, "self.matches('^[a-zA-Z0-9]+@.+$')", "an alias is written as family@version"),
        rule(
            ALIAS,
            format!("self.split('@')[0] in [{}]", quoted(|_| true)),
            &format!("the family of an alias is one of {names}"),
        ),
        rule(
            ALIAS,
            format!(
                "!(self.split('@')[0] in [{}]) || self.split('@')[1] == 'latest'",
                quoted(AmiFamily::is_windows)
            ),
            "the version of a Windows alias can only be latest",
        ),
    ]
}

fn tags() -> Rules {
    const TAGS: &str = "spec.tags";
    let mut rules = vec![
        rule(TAGS, "self.all(key, key != '')", "keys of tags may not be empty"),
        rule(
            TAGS,
            "self.all(key, !key.startsWith('kubernetes.io/cluster'))",
            "tags that begin with kubernetes.io/cluster are written by Kerf alone",
        ),
    ];
    for key in [EKS_CLUSTER_NAME, NODE_POOL, NODE_CLAIM, NODE_CLASS] {
        rules.push(rule(
            TAGS,
            format!("self.all(key, key != '{key}')"),
            &format!("the tag {key} is written by Kerf alone"),
        ));
    }
    rules
}

fn kubelet() -> Rules {
    const KUBELET: &str = "spec.kubelet";
    const SIGNALS: &str = "'memory.available', 'nodefs.available', 'nodefs.inodesFree', 'imagefs.available', 'imagefs.inodesFree', 'pid.available'";
    let mut rules = vec![
        rule(
            KUBELET,
            "!has(self.imageGCHighThresholdPercent) || !has(self.imageGCLowThresholdPercent) || self.imageGCHighThresholdPercent > self.imageGCLowThresholdPercent",
            "imageGCHighThresholdPercent must be greater than imageGCLowThresholdPercent",
        ),
        rule(
            KUBELET,
            "!has(self.evictionSoft) || self.evictionSoft.all(signal, has(self.evictionSoftGracePeriod) && signal in self.evictionSoftGracePeriod)",
            "each signal of evictionSoft needs one in evictionSoftGracePeriod",
        ),
        rule(
            KUBELET,
            "!has(self.evictionSoftGracePeriod) || self.evictionSoftGracePeriod.all(signal, has(self.evictionSoft) && signal in self.evictionSoft)",
            "each signal of evictionSoftGracePeriod needs one in evictionSoft",
        ),
    ];
    for at in ["spec.kubelet.systemReserved", "spec.kubelet.kubeReserved"] {
        rules.push(rule(
            at,
            "self.all(key, key in ['cpu', 'memory', 'ephemeral-storage', 'pid'])",
            "only cpu, memory, ephemeral-storage and pid can be reserved",
        ));
        rules.push(rule(
            at,
            "self.all(key, !self[key].startsWith('-'))",
            "what is reserved may not be negative",
        ));
    }
    for at in [
        "spec.kubelet.evictionHard",
        "spec.kubelet.evictionSoft",
        "spec.kubelet.evictionSoftGracePeriod",
    ] {
        rules.push(rule(
            at,
            format!("self.all(signal, signal in [{SIGNALS}])"),
            "signals are memory.available, nodefs.available, nodefs.inodesFree, imagefs.available, imagefs.inodesFree, pid.available",
        ));
    }
    rules
}

fn devices() -> Rules {
    const EBS: &str = "spec.blockDeviceMappings[].ebs";
    vec![
        rule(
            "spec.blockDeviceMappings",
            "self.filter(device, has(device.rootVolume) && device.rootVolume).size() <= 1",
            "at most one device can have rootVolume",
        ),
        rule(
            EBS,
            "has(self.snapshotID) || has(self.volumeSize)",
            "one of snapshotID and volumeSize is needed",
        ),
        rule(
            EBS,
            "!has(self.volumeInitializationRate) || (has(self.snapshotID) && self.snapshotID != '')",
            "volumeInitializationRate needs snapshotID",
        ),
    ]
}

fn network() -> Rules {
    const INTERFACES: &str = "spec.networkInterfaces";
    const GROUP: &str = "spec.placementGroupSelector";
    vec![
        rule(
            INTERFACES,
            "size(self) == 0 || self.exists(one, one.networkCardIndex == 0 && one.deviceIndex == 0 && one.interfaceType == 'interface')",
            "one must have networkCardIndex 0, deviceIndex 0 and interfaceType interface",
        ),
        rule(
            INTERFACES,
            "self.all(one, self.exists_one(other, other.networkCardIndex == one.networkCardIndex && other.deviceIndex == one.deviceIndex) && (one.interfaceType != 'efa-only' || self.exists_one(other, other.networkCardIndex == one.networkCardIndex && other.interfaceType == 'efa-only')))",
            "no two can have the same networkCardIndex and deviceIndex, and no two of a card can be efa-only",
        ),
        rule(GROUP, "has(self.name) || has(self.id)", "one of name and id is needed"),
        rule(GROUP, "!has(self.name) || !has(self.id)", "name and id cannot both be set"),
        rule(
            "spec.connectionTracking",
            "has(self.tcpEstablishedTimeout) || has(self.udpStreamTimeout) || has(self.udpTimeout)",
            "one of tcpEstablishedTimeout, udpStreamTimeout and udpTimeout is needed",
        ),
    ]
}
