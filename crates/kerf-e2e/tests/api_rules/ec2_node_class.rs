//! The constraints of EC2NodeClass. What is odd in them is so in Karpenter's AWS provider, too.

use serde_json::{Value, json};

use crate::{
    case::{Cases, Kind},
    cases::condition,
    ec2_node_class_parts::{block_devices, kubelet, metadata, network, status},
};

pub(crate) const KIND: Kind = Kind::Ec2NodeClass;
pub(crate) const RESERVATION_ID: &str = "^cr-[0-9a-z]+$";
pub(crate) const ACCOUNT_ID: &str = "^[0-9]{12}$";

/// An object with every field that can be set beside the others.
pub(crate) fn base() -> Value {
    json!({
        "spec": {
            "subnetSelectorTerms": [{ "tags": { "a": "b" } }, { "id": "subnet-1" }],
            "securityGroupSelectorTerms": [{ "tags": { "a": "b" } }, { "id": "sg-1" }, { "name": "a" }],
            "capacityReservationSelectorTerms": [
                { "tags": { "a": "b" }, "ownerID": "123456789012", "instanceMatchCriteria": "open" },
                { "id": "cr-1" },
            ],
            "placementGroupSelector": { "name": "a" },
            "associatePublicIPAddress": true,
            "ipPrefixCount": 1,
            "amiSelectorTerms": [
                { "tags": { "a": "b" }, "name": "a", "owner": "self" }, { "id": "ami-1" }, { "ssmParameter": "a" },
            ],
            "amiFamily": "AL2023",
            "userData": "a",
            "role": "a",
            "tags": { "a": "b" },
            "kubelet": {
                "clusterDNS": ["10.0.0.10"], "maxPods": 10, "podsPerCore": 1,
                "systemReserved": { "cpu": "1" }, "kubeReserved": { "cpu": "1" },
                "evictionHard": { "memory.available": "5%" },
                "evictionSoft": { "memory.available": "10%" },
                "evictionSoftGracePeriod": { "memory.available": "1m" },
                "evictionMaxPodGracePeriod": 1,
                "imageGCHighThresholdPercent": 100, "imageGCLowThresholdPercent": 0,
                "cpuCFSQuota": true,
            },
            "blockDeviceMappings": [{
                "deviceName": "/dev/xvda", "rootVolume": true,
                "ebs": {
                    "deleteOnTermination": true, "encrypted": true, "iops": 3000, "kmsKeyID": "a", "snapshotID": "a",
                    "throughput": 125, "volumeInitializationRate": 100, "volumeSize": "20Gi", "volumeType": "gp3",
                },
            }],
            "instanceStorePolicy": "RAID0",
            "networkInterfaces": [
                { "networkCardIndex": 0, "deviceIndex": 0, "interfaceType": "interface" },
                { "networkCardIndex": 1, "deviceIndex": 1, "interfaceType": "interface" },
            ],
            "detailedMonitoring": true,
            "metadataOptions": {
                "httpEndpoint": "enabled", "httpProtocolIPv6": "disabled",
                "httpPutResponseHopLimit": 1, "httpTokens": "required",
            },
            "connectionTracking": { "tcpEstablishedTimeout": 60, "udpStreamTimeout": 60, "udpTimeout": 30 },
            "context": "a",
            "cpuOptions": { "nestedVirtualization": "disabled" },
        },
        "status": {
            "subnets": [{ "id": "a", "zone": "b", "zoneID": "c" }],
            "securityGroups": [{ "id": "a", "name": "b" }],
            "capacityReservations": [{
                "availabilityZone": "a", "endTime": "2026-01-01T00:00:00Z", "id": "cr-1",
                "instanceMatchCriteria": "open", "instanceType": "m5.large", "ownerID": "123456789012",
                "reservationType": "default", "interruptible": false, "state": "active",
            }],
            "amis": [{
                "id": "a", "name": "b", "deprecated": false,
                "requirements": [{ "key": "a", "operator": "In", "values": ["b"] }],
            }],
            "instanceProfile": "a",
        },
    })
}

pub(crate) fn all(cases: &mut Cases) {
    spec(cases);
    selector_terms(cases);
    ami_terms(cases);
    tags(cases);
    kubelet(cases);
    block_devices(cases);
    network(cases);
    metadata(cases);
    status(cases);
    condition(cases, KIND, "/status/conditions/0");
}

/// Two changes of the spec, one that the rule accepts and one that it refuses.
pub(crate) fn rule(cases: &mut Cases, at: &str, message: &str, good: &Value, bad: &Value) {
    cases.rule(KIND, at, message, &json!({ "spec": good }), &json!({ "spec": bad }));
}

fn spec(cases: &mut Cases) {
    for list in ["amiSelectorTerms", "securityGroupSelectorTerms", "subnetSelectorTerms"] {
        cases.required(KIND, "/spec", list);
    }
    let families =
        ["AL2", "AL2023", "Bottlerocket", "Custom", "Windows2019", "Windows2022", "Windows2025"];
    cases.one_of(KIND, "/spec/amiFamily", &families, &["al2023", "Ubuntu", ""]);
    cases.one_of(KIND, "/spec/instanceStorePolicy", &["RAID0"], &["RAID1"]);
    cases.minimum(KIND, "/spec/ipPrefixCount", 0, json!(-1));
    let nested = "/spec/cpuOptions/nestedVirtualization";
    cases.one_of(KIND, nested, &["enabled", "disabled"], &["true"]);

    let message = "set exactly one of role and instanceProfile";
    let profile = json!({ "role": null, "instanceProfile": "a" });
    rule(cases, "/spec", message, &profile, &json!({ "instanceProfile": "a" }));
    rule(cases, "/spec", message, &json!({}), &json!({ "role": null }));
    let message = "role may not be empty";
    cases.value(KIND, "/spec/role", &format!("rule {message}"), message, json!("a"), json!(""));
    let empty = json!({ "role": null, "instanceProfile": "" });
    rule(cases, "/spec/instanceProfile", "instanceProfile may not be empty", &profile, &empty);

    let alias =
        |alias: &str| json!({ "amiFamily": null, "amiSelectorTerms": [{ "alias": alias }] });
    let message = "amiFamily is needed unless amiSelectorTerms has an alias";
    rule(cases, "/spec", message, &alias("al2@latest"), &json!({ "amiFamily": null }));
    for (name, family, other) in [
        ("al2", "AL2", "AL2023"),
        ("al2023", "AL2023", "AL2"),
        ("bottlerocket", "Bottlerocket", "AL2"),
        ("windows2019", "Windows2019", "Windows2022"),
        ("windows2022", "Windows2022", "Bottlerocket"),
        ("windows2025", "Windows2025", "Windows2022"),
    ] {
        let message =
            format!("amiFamily must be {family} or Custom with an alias of the family {name}");
        let with = |family: &str| {
            let mut changes = alias(&format!("{name}@latest"));
            changes["amiFamily"] = json!(family);
            changes
        };
        rule(cases, "/spec", &message, &with(family), &with(other));
        rule(cases, "/spec", &message, &with("Custom"), &with(other));
    }
}

fn selector_terms(cases: &mut Cases) {
    let many = |count: usize| Value::Array(vec![json!({ "tags": { "a": "b" } }); count]);
    let too_many = "must have at most 30 items";
    for list in [
        "subnetSelectorTerms",
        "securityGroupSelectorTerms",
        "capacityReservationSelectorTerms",
        "amiSelectorTerms",
    ] {
        let at = format!("/spec/{list}");
        cases.value(KIND, &at, "maxItems 30", too_many, many(30), many(31));
        let tags =
            |count: usize| (0..count).map(|n| (n.to_string(), json!("a"))).collect::<Value>();
        let message = "must have at most 20 items";
        cases.value(KIND, &format!("{at}/0/tags"), "maxProperties 20", message, tags(20), tags(21));
        let message = "keys and values of tags may not be empty";
        for (good, bad) in
            [(json!({ "a": "*" }), json!({ "a": "" })), (json!({}), json!({ "": "a" }))]
        {
            let keyword = format!("rule {message}");
            cases.value(KIND, &format!("{at}/0/tags"), &keyword, message, good, bad);
        }
    }
    // These two are anchored nowhere.
    cases.pattern(
        KIND,
        "/spec/subnetSelectorTerms/1/id",
        "subnet-[0-9a-z]+",
        "x subnet-1 y",
        "subnet-",
    );
    cases.pattern(KIND, "/spec/securityGroupSelectorTerms/1/id", "sg-[0-9a-z]+", "msg-1", "sg_1");
    let reservation = "/spec/capacityReservationSelectorTerms";
    cases.pattern(KIND, &format!("{reservation}/1/id"), RESERVATION_ID, "cr-1", "xcr-1");
    cases.pattern(
        KIND,
        &format!("{reservation}/0/ownerID"),
        ACCOUNT_ID,
        "123456789012",
        "12345678901",
    );
    let criteria = format!("{reservation}/0/instanceMatchCriteria");
    cases.one_of(KIND, &criteria, &["open", "targeted"], &["closed"]);

    let mut rule = |list: &str, message: &str, good: Value, bad: Value| {
        rule(
            cases,
            &format!("/spec/{list}"),
            message,
            &json!({ list: good }),
            &json!({ list: bad }),
        );
    };
    let tags = json!({ "a": "b" });
    let subnets = "subnetSelectorTerms";
    let groups = "securityGroupSelectorTerms";
    let reservations = "capacityReservationSelectorTerms";
    for list in [subnets, groups] {
        rule(list, "at least one term is needed", json!([{ "tags": tags }]), json!([]));
    }
    let message = "each term needs one of tags, id";
    rule(subnets, message, json!([{ "tags": {} }]), json!([{ "tags": tags }, {}]));
    let message = "each term needs one of tags, id, name";
    rule(groups, message, json!([{ "name": "" }]), json!([{ "tags": tags }, {}]));
    let message = "each term needs one of tags, id, instanceMatchCriteria";
    let owner = json!([{ "ownerID": "123456789012" }]);
    rule(reservations, message, json!([{ "instanceMatchCriteria": "open" }]), owner);

    // One term that does not mix lets all others do so.
    let message = "a term with id can have nothing else";
    let mixed = json!({ "id": "subnet-1", "tags": tags });
    rule(subnets, message, json!([mixed, { "id": "subnet-2" }]), json!([mixed, mixed]));
    let mixed = json!({ "id": "sg-1", "name": "a" });
    rule(groups, message, json!([mixed, { "tags": tags }]), json!([mixed]));
    let mixed = json!({ "id": "cr-1", "ownerID": "123456789012" });
    rule(reservations, message, json!([mixed, { "id": "cr-2" }]), json!([mixed]));
    rule(reservations, message, json!([{ "id": "cr-2" }]), json!([]));
    let message = "a term with name can have nothing else";
    let mixed = json!({ "name": "a", "tags": tags });
    rule(groups, message, json!([mixed, { "id": "sg-1" }]), json!([mixed]));
}

fn ami_terms(cases: &mut Cases) {
    let list = "/spec/amiSelectorTerms";
    let message = "should have at least 1 items";
    cases.value(KIND, list, "minItems 1", message, json!([{ "id": "ami-1" }]), json!([]));
    cases.pattern(KIND, &format!("{list}/1/id"), "ami-[0-9a-z]+", "ami-0", "ami-A");

    let terms = |terms: Value| json!({ "amiFamily": "Custom", "amiSelectorTerms": terms });
    let mut check = |at: &str, message: &str, good: Value, bad: Value| {
        rule(cases, at, message, &terms(good), &terms(bad));
    };
    let id = json!({ "id": "ami-1" });
    let message = "each term needs one of tags, id, name, alias, ssmParameter";
    check(list, message, json!([{ "ssmParameter": "a" }]), json!([id, { "owner": "self" }]));
    let message = "a term with id can have none of alias, tags, name, owner";
    let by_parameter = json!({ "id": "ami-1", "ssmParameter": "a" });
    check(list, message, json!([by_parameter]), json!([id, { "id": "ami-2", "owner": "self" }]));
    check(list, message, json!([id, id]), json!([{ "id": "ami-1", "alias": "al2@latest" }]));
    let message = "a term with alias can have none of id, tags, name, owner";
    let alias = json!({ "alias": "al2@latest" });
    let by_parameter = json!({ "alias": "al2@latest", "ssmParameter": "a" });
    check(list, message, json!([by_parameter]), json!([{ "alias": "al2@latest", "name": "a" }]));
    let message = "a term with alias must be the only term";
    check(list, message, json!([alias]), json!([alias, id]));

    let at = format!("{list}/0/alias");
    let mut check = |message: &str, good: &str, bad: &str| {
        check(&at, message, json!([{ "alias": good }]), json!([{ "alias": bad }]));
    };
    let message = "an alias is written as family@version";
    check(message, "al2023@v20240625", "al2023");
    check(message, "al2@a@b", "al2@");
    check(message, "bottlerocket@v1.10.0", "al-2@latest");
    let message = "the family of an alias is one of al2, al2023, bottlerocket, windows2019, windows2022, windows2025";
    check(message, "al2@latest", "AL2@latest");
    check(message, "bottlerocket@latest", "ubuntu@latest");
    let message = "the version of a Windows alias can only be latest";
    for year in ["2019", "2022", "2025"] {
        check(message, &format!("windows{year}@latest"), &format!("windows{year}@1"));
    }
    // Long enough is only a version that does not exist.
    let (good, bad) = ("a".repeat(26), "a".repeat(27));
    let object = |version: &str| terms(json!([{ "alias": format!("al2@{version}") }]));
    cases.changed(
        KIND,
        &at,
        "maxLength 30",
        "may not be more than 30 bytes",
        &object(&good),
        &object(&bad),
    );
}

fn tags(cases: &mut Cases) {
    for (message, good, bad) in [
        ("keys of tags may not be empty", "a", ""),
        (
            "tags that begin with kubernetes.io/cluster are written by Kerf alone",
            "kubernetes.io/clu",
            "kubernetes.io/clusters",
        ),
        (
            "the tag eks:eks-cluster-name is written by Kerf alone",
            "eks:cluster-name",
            "eks:eks-cluster-name",
        ),
        (
            "the tag karpenter.sh/nodepool is written by Kerf alone",
            "karpenter.sh/nodepools",
            "karpenter.sh/nodepool",
        ),
        (
            "the tag karpenter.sh/nodeclaim is written by Kerf alone",
            "karpenter.sh/claim",
            "karpenter.sh/nodeclaim",
        ),
        (
            "the tag karpenter.k8s.aws/ec2nodeclass is written by Kerf alone",
            "karpenter.k8s.aws/x",
            "karpenter.k8s.aws/ec2nodeclass",
        ),
    ] {
        let tags = |key: &str| json!({ "tags": { key: "" } });
        rule(cases, "/spec/tags", message, &tags(good), &tags(bad));
    }
}
