//! The drift hash of EC2NodeClasses: the values that Karpenter's AWS provider computes for them.
#![allow(clippy::unwrap_used, reason = "tests")]

use kerf_aws_api::Ec2NodeClassSpec;
use serde_json::{Value, json};

fn hash(spec: &Value, ca_bundle: Option<&str>) -> String {
    serde_json::from_value::<Ec2NodeClassSpec>(spec.clone()).unwrap().hash(ca_bundle)
}

/// What the running release 1.14.1 wrote.
#[test]
fn agrees_with_what_karpenter_wrote_in_a_cluster() {
    let spec = json!({
        "role": "KarpenterNodeRole-demo",
        "amiSelectorTerms": [{"alias": "al2023@latest"}],
        "metadataOptions": {
            "httpEndpoint": "enabled", "httpProtocolIPv6": "disabled",
            "httpPutResponseHopLimit": 1, "httpTokens": "required",
        },
    });
    assert_eq!(hash(&spec, Some("dGVzdA==")), "13959495156143747618");
}

/// The values in the tests of Karpenter's AWS provider 1.14.1. Those of the next release differ from them by the hash of the
/// text `null`, as long as a class has no settings of the kubelet.
#[test]
fn agrees_with_the_values_in_karpenters_tests() {
    let base = json!({
        "role": "role-1",
        "tags": {"keyTag-1": "valueTag-1", "keyTag-2": "valueTag-2"},
        "context": "fake-context",
        "detailedMonitoring": false,
        "associatePublicIPAddress": false,
        "metadataOptions": {
            "httpEndpoint": "disabled", "httpProtocolIPv6": "disabled",
            "httpPutResponseHopLimit": 1, "httpTokens": "optional",
        },
        "blockDeviceMappings": [
            {
                "deviceName": "map-device-1",
                "ebs": {
                    "deleteOnTermination": false, "encrypted": false, "iops": 0,
                    "kmsKeyID": "fakeKMSKeyID", "snapshotID": "fakeSnapshot", "throughput": 0,
                    "volumeSize": "2G", "volumeType": "standard",
                },
            },
            {"deviceName": "map-device-2"},
        ],
        "userData": "userdata-test-1",
    });
    let check = |pointer: &str, value: Value, expected: &str| {
        let mut spec = base.clone();
        let (parent, field) = pointer.rsplit_once('/').unwrap();
        let parent = match parent {
            "/connectionTracking" | "/cpuOptions" => &mut spec[&parent[1..]],
            parent => spec.pointer_mut(parent).unwrap(),
        };
        parent[field] = value;
        assert_eq!(hash(&spec, Some("test-ca-bundle")), expected, "{pointer}");
    };
    let unchanged = "2608468723537941485";
    check("/userData", json!("userdata-test-1"), unchanged);
    check("/userData", json!("userdata-test-2"), "2153344579995979450");
    check("/tags/keyTag-test-3", json!("valueTag-test-3"), "4608386791045313156");
    check("/context", json!("context-2"), "11612053647989098410");
    check("/detailedMonitoring", json!(true), "11845605438531206428");
    check("/instanceStorePolicy", json!("RAID0"), "6430637013089544585");
    check("/associatePublicIPAddress", json!(true), "6811176403923819181");
    check("/metadataOptions/httpEndpoint", json!("enabled"), "8158886403801636337");
    check("/metadataOptions/httpProtocolIPv6", json!("enabled"), "12355196004817691031");
    check("/metadataOptions/httpPutResponseHopLimit", json!(10), "8968306366664488826");
    check("/metadataOptions/httpTokens", json!("required"), "12408995450371615650");
    check("/connectionTracking/tcpEstablishedTimeout", json!(300), "12177489405137904098");
    check("/connectionTracking/udpStreamTimeout", json!(120), "17567831983996427");
    check("/connectionTracking/udpTimeout", json!(45), "5078825826133662844");
    check("/cpuOptions/nestedVirtualization", json!("enabled"), "17001101224536964682");
    check("/amiSelectorTerms", json!([{"tags": {"a": "b"}}]), unchanged);
    check("/subnetSelectorTerms", json!([{"tags": {"a": "b"}}]), unchanged);
    check("/securityGroupSelectorTerms", json!([{"tags": {"a": "b"}}]), unchanged);
    check("/capacityReservationSelectorTerms", json!([{"tags": {"a": "b"}}]), unchanged);
    check("/amiFamily", json!("Custom"), unchanged);
    let devices = |order: [usize; 2]| json!(order.map(|at| &base["blockDeviceMappings"][at]));
    check("/blockDeviceMappings", devices([1, 0]), unchanged);
    let of_device = |field: &str, value: Value, expected: &str| {
        check(&format!("/blockDeviceMappings/0{field}"), value, expected);
    };
    of_device("/deviceName", json!("map-device-test-3"), "13986335469721503441");
    of_device("/rootVolume", json!(true), "14242690863945643402");
    of_device("/ebs/deleteOnTermination", json!(true), "12316454167870753581");
    of_device("/ebs/encrypted", json!(true), "17753517657333560591");
    of_device("/ebs/iops", json!(10), "2249322442135400321");
    of_device("/ebs/kmsKeyID", json!("test"), "12259594419287406661");
    of_device("/ebs/snapshotID", json!("test"), "1149563513090550380");
    of_device("/ebs/throughput", json!(10), "12068199760789564545");
    of_device("/ebs/volumeType", json!("io1"), "16361719363399715944");
    of_device("/ebs/volumeSize", json!("10G"), "3564293065344858862");
    let mut by_profile = base.clone();
    by_profile.as_object_mut().unwrap().remove("role");
    by_profile["instanceProfile"] = json!("test-instance-profile");
    assert_eq!(hash(&by_profile, Some("test-ca-bundle")), "3585768058063247698");
}

/// Values that the Go library computes for the same types.
#[test]
fn agrees_with_the_go_library() {
    let check = |spec: Value, expected: &str| assert_eq!(hash(&spec, None), expected, "{spec}");
    check(json!({"kubelet": {}}), "3336938973548952890");
    check(
        json!({"kubelet": {
            "clusterDNS": ["10.0.0.10"], "maxPods": 20, "podsPerCore": 2,
            "systemReserved": {"cpu": "1"}, "kubeReserved": {"memory": "1Gi", "cpu": "100m"},
            "evictionHard": {"memory.available": "5%"}, "evictionSoft": {"memory.available": "10%"},
            "evictionSoftGracePeriod": {"memory.available": "1m30s"}, "evictionMaxPodGracePeriod": 60,
            "imageGCHighThresholdPercent": 80, "imageGCLowThresholdPercent": 70, "cpuCFSQuota": true,
        }}),
        "18301102307793732731",
    );
    check(
        json!({"kubelet": {
            "maxPods": 0, "cpuCFSQuota": false, "clusterDNS": [], "kubeReserved": {},
            "evictionSoftGracePeriod": {"memory.available": "0s"},
        }}),
        "14360894859293914876",
    );
    check(json!({"tags": {}}), "15593376434278873530");
    check(json!({"blockDeviceMappings": []}), "16659144714198710620");
    check(json!({"blockDeviceMappings": [{}, {}]}), "16659144714198710620");
    check(json!({"networkInterfaces": []}), "11626195235216416025");
    check(
        json!({"networkInterfaces": [
            {"networkCardIndex": 0, "deviceIndex": 0, "interfaceType": "interface"},
            {"networkCardIndex": 1, "deviceIndex": 1, "interfaceType": "efa-only"},
        ]}),
        "4268494677808213151",
    );
    check(json!({"placementGroupSelector": {"name": "near"}}), "13607879606311215400");
    check(json!({"placementGroupSelector": {"id": "pg-1"}}), "12190373688536698611");
    check(json!({"context": "", "userData": ""}), "12573490495529847706");
    check(json!({"metadataOptions": {}}), "5200037605805858414");
    let sized = |size: &str, rate: Option<i32>| json!({"blockDeviceMappings": [{"ebs": {"volumeSize": size, "volumeInitializationRate": rate}}]});
    check(sized("1024Gi", Some(100)), "6624354608913426806");
    check(sized("1Ti", Some(100)), "6624354608913426806");
    check(sized("2000G", None), "8873184695657748270");
}
