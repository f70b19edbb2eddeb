//! The constraints of EC2NodeClass: the kubelet, devices, the network, and the status.

use serde_json::{Value, json};

use crate::{
    case::{Cases, QUANTITY},
    ec2_node_class::{ACCOUNT_ID, KIND, RESERVATION_ID, rule},
};

pub(crate) fn kubelet(cases: &mut Cases) {
    let at = |field: &str| format!("/spec/kubelet/{field}");
    for field in ["maxPods", "podsPerCore"] {
        cases.minimum(KIND, &at(field), 0, json!(-1));
    }
    for field in ["imageGCHighThresholdPercent", "imageGCLowThresholdPercent"] {
        let mut check = |keyword: &str, message: &str, good: i32, bad: i32| {
            let only = |percent: i32| {
                let mut kubelet = json!({ "imageGCHighThresholdPercent": null, "imageGCLowThresholdPercent": null });
                kubelet[field] = json!(percent);
                json!({ "kubelet": kubelet })
            };
            cases.changed(KIND, &at(field), keyword, message, &only(good), &only(bad));
        };
        check("minimum 0", "should be greater than or equal to 0", 0, -1);
        check("maximum 100", "should be less than or equal to 100", 100, 101);
    }
    for field in ["systemReserved", "kubeReserved"] {
        for (good, bad) in [("1500m", "1500x"), ("1.5Gi", "1.5 Gi"), ("+1", "")] {
            cases.pattern(KIND, &at(&format!("{field}/cpu")), QUANTITY, good, bad);
        }
        let mut check = |message: &str, good: Value, bad: Value| {
            let kubelet = |map: Value| json!({ "kubelet": { field: map } });
            rule(cases, &at(field), message, &kubelet(good), &kubelet(bad));
        };
        let message = "only cpu, memory, ephemeral-storage and pid can be reserved";
        check(
            message,
            json!({ "memory": "1", "ephemeral-storage": "1", "pid": "1" }),
            json!({ "pods": "1" }),
        );
        check(
            "what is reserved may not be negative",
            json!({ "cpu": "0" }),
            json!({ "cpu": "-1" }),
        );
    }
    let quantity = QUANTITY.trim_matches(['^', '$']);
    let threshold = format!(r"^((\d{{1,2}}(\.\d{{1,2}})?|100(\.0{{1,2}})?)%||{quantity})$");
    let unknown = "signals are memory.available, nodefs.available, nodefs.inodesFree, imagefs.available, imagefs.inodesFree, pid.available";
    for field in ["evictionHard", "evictionSoft"] {
        for (good, bad) in
            [("100%", "101%"), ("99.99%", "1.234%"), ("100Mi", "100 Mi"), ("", "%"), ("-1", "a")]
        {
            cases.pattern(KIND, &at(&format!("{field}/memory.available")), &threshold, good, bad);
        }
    }
    let signals = json!({
        "memory.available": "1%", "nodefs.available": "1%", "nodefs.inodesFree": "1%",
        "imagefs.available": "1%", "imagefs.inodesFree": "1%", "pid.available": "1%",
    });
    let hard = |map: &Value| json!({ "kubelet": { "evictionHard": map } });
    rule(
        cases,
        &at("evictionHard"),
        unknown,
        &hard(&signals),
        &hard(&json!({ "cpu.available": "1%" })),
    );
    let soft = |soft: Value, grace: Value| json!({ "kubelet": { "evictionSoft": soft, "evictionSoftGracePeriod": grace } });
    let pair = |signal: &str| soft(json!({ signal: "1%" }), json!({ signal: "1m" }));
    for field in ["evictionSoft", "evictionSoftGracePeriod"] {
        rule(cases, &at(field), unknown, &pair("pid.available"), &pair("cpu.available"));
    }
    let (nodefs, minute) =
        (json!({ "nodefs.available": "1%" }), json!({ "nodefs.available": "1m" }));
    let message = "each signal of evictionSoft needs one in evictionSoftGracePeriod";
    let both = soft(nodefs.clone(), minute.clone());
    rule(cases, "/spec/kubelet", message, &both, &soft(nodefs.clone(), json!({})));
    // An empty map is as much as none, on either side.
    rule(
        cases,
        "/spec/kubelet",
        message,
        &json!({ "kubelet": { "evictionSoft": null, "evictionSoftGracePeriod": null } }),
        &soft(nodefs, Value::Null),
    );
    let message = "each signal of evictionSoftGracePeriod needs one in evictionSoft";
    rule(cases, "/spec/kubelet", message, &both, &soft(json!({}), minute.clone()));
    rule(
        cases,
        "/spec/kubelet",
        message,
        &soft(Value::Null, Value::Null),
        &soft(Value::Null, minute),
    );
    let percents = |high: i32, low: i32| json!({ "kubelet": { "imageGCHighThresholdPercent": high, "imageGCLowThresholdPercent": low } });
    let message = "imageGCHighThresholdPercent must be greater than imageGCLowThresholdPercent";
    rule(cases, "/spec/kubelet", message, &percents(51, 50), &percents(50, 50));
}

pub(crate) fn block_devices(cases: &mut Cases) {
    let list = "/spec/blockDeviceMappings";
    let many = |count: usize| Value::Array(vec![json!({}); count]);
    cases.value(KIND, list, "maxItems 50", "must have at most 50 items", many(50), many(51));
    let ebs = |field: &str| format!("{list}/0/ebs/{field}");
    cases.minimum(KIND, &ebs("volumeInitializationRate"), 100, json!(99));
    cases.maximum(KIND, &ebs("volumeInitializationRate"), 300, json!(301));
    let types = ["standard", "io1", "io2", "gp2", "sc1", "st1", "gp3"];
    cases.one_of(KIND, &ebs("volumeType"), &types, &["gp4", "GP3", ""]);
    let sizes = "^((?:[1-9][0-9]{0,3}|[1-4][0-9]{4}|[5][0-8][0-9]{3}|59000)Gi|(?:[1-9][0-9]{0,3}|[1-5][0-9]{4}|[6][0-3][0-9]{3}|64000)G|([1-9]||[1-5][0-7]|58)Ti|([1-9]||[1-5][0-9]|6[0-3]|64)T)$";
    for (good, bad) in [
        ("1Gi", "0Gi"),
        ("59000Gi", "59001Gi"),
        ("64000G", "64001G"),
        ("64T", "65T"),
        ("20G", "20"),
        // The pattern has holes, and bare units pass it.
        ("58Ti", "59Ti"),
        ("17Ti", "18Ti"),
        ("Ti", "Gi"),
        ("T", "G"),
    ] {
        cases.pattern(KIND, &ebs("volumeSize"), sizes, good, bad);
    }
    let mappings = |mappings: Value| json!({ "blockDeviceMappings": mappings });
    let root = |is_root: bool| json!({ "rootVolume": is_root });
    let message = "at most one device can have rootVolume";
    rule(
        cases,
        list,
        message,
        &mappings(json!([root(true), root(false)])),
        &mappings(json!([root(true), root(true)])),
    );
    let volume = |ebs: Value| mappings(json!([{ "ebs": ebs }]));
    let at = format!("{list}/0/ebs");
    let message = "one of snapshotID and volumeSize is needed";
    rule(
        cases,
        &at,
        message,
        &volume(json!({ "snapshotID": "a" })),
        &volume(json!({ "volumeType": "gp3" })),
    );
    let message = "volumeInitializationRate needs snapshotID";
    let rate =
        |snapshot: &str| volume(json!({ "snapshotID": snapshot, "volumeInitializationRate": 100 }));
    rule(cases, &at, message, &rate("a"), &rate(""));
}

pub(crate) fn network(cases: &mut Cases) {
    let list = "/spec/networkInterfaces";
    let interface = |card: usize, device: usize, kind: &str| json!({ "networkCardIndex": card, "deviceIndex": device, "interfaceType": kind });
    let many = |count: usize| (0..count).map(|n| interface(0, n, "interface")).collect::<Value>();
    cases.value(KIND, list, "maxItems 150", "must have at most 150 items", many(150), many(151));
    for field in ["networkCardIndex", "deviceIndex"] {
        cases.required(KIND, &format!("{list}/1"), field);
        cases.minimum(KIND, &format!("{list}/1/{field}"), 0, json!(-1));
    }
    cases.required(KIND, &format!("{list}/1"), "interfaceType");
    cases.one_of(KIND, &format!("{list}/1/interfaceType"), &["interface", "efa-only"], &["efa"]);
    let mut check = |message: &str, good: Value, bad: Value| {
        let list = |interfaces: Value| json!({ "networkInterfaces": interfaces });
        rule(cases, "/spec/networkInterfaces", message, &list(good), &list(bad));
    };
    let primary = interface(0, 0, "interface");
    let message = "one must have networkCardIndex 0, deviceIndex 0 and interfaceType interface";
    check(message, json!([]), json!([interface(0, 0, "efa-only")]));
    check(
        message,
        json!([primary]),
        json!([interface(0, 1, "interface"), interface(1, 0, "interface")]),
    );
    let message = "no two can have the same networkCardIndex and deviceIndex, and no two of a card can be efa-only";
    check(message, json!([primary, interface(0, 1, "interface")]), json!([primary, primary]));
    let efa = |card, device| interface(card, device, "efa-only");
    check(message, json!([primary, efa(0, 1), efa(1, 0)]), json!([primary, efa(1, 0), efa(1, 1)]));

    let group = "/spec/placementGroupSelector";
    let with =
        |name: Value, id: Value| json!({ "placementGroupSelector": { "name": name, "id": id } });
    let by_id = |id: &str| with(Value::Null, json!(id));
    let pattern = "^pg-[0-9a-z]+$";
    cases.changed(
        KIND,
        &format!("{group}/id"),
        &format!("pattern {pattern}"),
        &format!("should match '{pattern}'"),
        &by_id("pg-1"),
        &by_id("pg"),
    );
    let message = "should be at least 1 chars long";
    cases.value(KIND, &format!("{group}/name"), "minLength 1", message, json!("a"), json!(""));
    rule(
        cases,
        group,
        "one of name and id is needed",
        &by_id("pg-1"),
        &with(Value::Null, Value::Null),
    );
    rule(
        cases,
        group,
        "name and id cannot both be set",
        &json!({}),
        &with(json!("a"), json!("pg-1")),
    );

    let tracking = "/spec/connectionTracking";
    for (field, least, most) in [
        ("tcpEstablishedTimeout", 60, 432_000),
        ("udpStreamTimeout", 60, 180),
        ("udpTimeout", 30, 60),
    ] {
        cases.minimum(KIND, &format!("{tracking}/{field}"), least, json!(least - 1));
        cases.maximum(KIND, &format!("{tracking}/{field}"), most, json!(most + 1));
    }
    let message = "one of tcpEstablishedTimeout, udpStreamTimeout and udpTimeout is needed";
    let none =
        json!({ "tcpEstablishedTimeout": null, "udpStreamTimeout": null, "udpTimeout": null });
    rule(cases, tracking, message, &json!({}), &json!({ "connectionTracking": none }));
}

pub(crate) fn metadata(cases: &mut Cases) {
    let at = |field: &str| format!("/spec/metadataOptions/{field}");
    for field in ["httpEndpoint", "httpProtocolIPv6"] {
        cases.one_of(KIND, &at(field), &["enabled", "disabled"], &["on", ""]);
    }
    cases.one_of(KIND, &at("httpTokens"), &["required", "optional"], &["none"]);
    cases.minimum(KIND, &at("httpPutResponseHopLimit"), 1, json!(0));
    cases.maximum(KIND, &at("httpPutResponseHopLimit"), 64, json!(65));
}

pub(crate) fn status(cases: &mut Cases) {
    for (list, fields) in [
        ("subnets", &["id", "zone"][..]),
        ("securityGroups", &["id"]),
        ("amis", &["id", "requirements"]),
        ("amis/0/requirements", &["key", "operator"]),
        (
            "capacityReservations",
            &["availabilityZone", "id", "instanceMatchCriteria", "instanceType", "ownerID"],
        ),
    ] {
        for field in fields {
            cases.required(KIND, &format!("/status/{list}/0"), field);
        }
    }
    let at = |field: &str| format!("/status/capacityReservations/0/{field}");
    cases.date_time(KIND, &at("endTime"));
    cases.pattern(KIND, &at("id"), RESERVATION_ID, "cr-a", "a-cr-1");
    cases.pattern(KIND, &at("ownerID"), ACCOUNT_ID, "000000000000", "self");
    cases.one_of(KIND, &at("instanceMatchCriteria"), &["open", "targeted"], &["closed"]);
    cases.one_of(KIND, &at("reservationType"), &["default", "capacity-block"], &["block"]);
    cases.one_of(KIND, &at("state"), &["active", "expiring"], &["expired"]);
}
