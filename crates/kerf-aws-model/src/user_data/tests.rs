use serde_json::json;

use super::*;

mod round_trip;

fn taint(key: &str, value: &str, effect: &str) -> Taint {
    Taint {
        key: key.to_owned(),
        value: Some(value.to_owned()).filter(|value| !value.is_empty()),
        effect: effect.to_owned(),
        ..Taint::default()
    }
}

fn settings() -> NodeSettings {
    NodeSettings {
        cluster: ClusterAccess {
            name: "demo".to_owned(),
            endpoint: "https://demo.example".to_owned(),
            ca_bundle: Some("Y2EtYnVuZGxl".to_owned()),
            service_cidr: Some("10.100.0.0/16".to_owned()),
        },
        kubelet: serde_json::from_value(json!({"clusterDNS": ["10.100.0.10"], "maxPods": 29}))
            .unwrap(),
        labels: [("karpenter.sh/capacity-type", "spot"), ("team", "a")]
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into(),
        taints: vec![
            taint("gpu", "true", "NoSchedule"),
            taint("karpenter.sh/unregistered", "", "NoExecute"),
        ],
        instance_store_policy: None,
    }
}

fn every_kubelet_setting() -> KubeletConfiguration {
    serde_json::from_value(json!({
        "clusterDNS": ["10.100.0.10"], "maxPods": 29, "podsPerCore": 4,
        "systemReserved": {"cpu": "100m", "memory": "1"},
        "kubeReserved": {"memory": "300Mi"},
        "evictionHard": {"memory.available": "5%"},
        "evictionSoft": {"memory.available": "500Mi", "nodefs.available": "10%"},
        "evictionSoftGracePeriod": {"memory.available": "90s", "nodefs.available": "1h"},
        "evictionMaxPodGracePeriod": 60,
        "imageGCHighThresholdPercent": 80, "imageGCLowThresholdPercent": 70,
        "cpuCFSQuota": false,
    }))
    .unwrap()
}

fn render(form: Form, settings: &NodeSettings, custom: &str) -> String {
    let user_data = UserData::render(form, settings, Some(custom)).unwrap();
    user_data.text().to_owned()
}

const NODE_CONFIG_PART: &str = r#"--//
Content-Type: application/node.eks.aws

# Karpenter Generated NodeConfig
apiVersion: node.eks.aws/v1alpha1
kind: NodeConfig
metadata: {}
spec:
  cluster:
    apiServerEndpoint: https://demo.example
    certificateAuthority: Y2EtYnVuZGxl
    cidr: 10.100.0.0/16
    name: demo
  containerd: {}
  instance:
    localStorage: {}
  kubelet:
    config:
      clusterDNS:
      - 10.100.0.10
      maxPods: 29
      registerWithTaints:
      - effect: NoSchedule
        key: gpu
        value: "true"
      - effect: NoExecute
        key: karpenter.sh/unregistered
    flags:
    - --node-labels="karpenter.sh/capacity-type=spot,team=a"

--//--
"#;

const HEAD: &str = "MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=\"//\"\n\n";
const SHELL_PART: &str = "--//\nContent-Type: text/x-shellscript; charset=\"us-ascii\"\n\n";

#[test]
fn al2023_gets_a_node_config_after_the_parts_of_the_user() {
    let check = |custom: &str, parts: &str| {
        let expected = format!("{HEAD}{parts}{NODE_CONFIG_PART}");
        assert_eq!(render(Form::Nodeadm, &settings(), custom), expected);
    };
    check("", "");
    let script = "#!/bin/bash\necho hello\n";
    check(script, &format!("{SHELL_PART}{script}\n"));
    let yaml = "apiVersion: node.eks.aws/v1alpha1\nkind: NodeConfig";
    check(yaml, &format!("--//\nContent-Type: application/node.eks.aws\n\n{yaml}\n"));
    let archive =
        format!("{}--x\nContent-Type: text/plain\n\na\r\nb\n--x--", HEAD.replace("//", "x"));
    check(&archive, "--//\nContent-Type: text/plain\n\na\nb\n");
}

#[test]
fn al2_gets_a_call_of_its_bootstrap_script() {
    let call = r#"#!/bin/bash -xe
exec > >(tee /var/log/user-data.log|logger -t user-data -s 2>/dev/console) 2>&1
/etc/eks/bootstrap.sh 'demo' --apiserver-endpoint 'https://demo.example' --b64-cluster-ca 'Y2EtYnVuZGxl' \
--dns-cluster-ip '10.100.0.10' \
--use-max-pods false \
--kubelet-extra-args '--node-labels="karpenter.sh/capacity-type=spot,team=a" --register-with-taints="gpu=true:NoSchedule,karpenter.sh/unregistered:NoExecute" --max-pods=29'
--//--
"#;
    let check = |custom: &str, parts: &str| {
        let expected = format!("{HEAD}{parts}{SHELL_PART}{call}");
        assert_eq!(render(Form::BootstrapScript, &settings(), custom), expected);
    };
    check("", "");
    check("echo: hello", &format!("{SHELL_PART}echo: hello\n"));
    let ipv6 = NodeSettings {
        kubelet: serde_json::from_value(json!({"clusterDNS": ["fd4b:121b::a"]})).unwrap(),
        instance_store_policy: Some(InstanceStorePolicy::Raid0),
        ..settings()
    };
    let text = render(Form::BootstrapScript, &ipv6, "");
    assert!(text.contains("--ip-family ipv6 \\\n--dns-cluster-ip 'fd4b:121b::a' \\\n"), "{text}");
    assert!(text.contains("' \\\n--local-disks raid0\n--//--"), "{text}");
    assert!(!text.contains("--use-max-pods"), "{text}");
}

#[test]
fn kubelet_flags_stand_in_the_order_of_karpenter() {
    let settings = NodeSettings { kubelet: every_kubelet_setting(), ..settings() };
    let expected = "--max-pods=29 --pods-per-core=4 --system-reserved=\"cpu=100m,memory=1\" \
                    --kube-reserved=\"memory=300Mi\" --eviction-hard=\"memory.available<5%\" \
                    --eviction-soft=\"memory.available<500Mi,nodefs.available<10%\" \
                    --eviction-soft-grace-period=\"memory.available=1m30s,nodefs.available=1h0m0s\" \
                    --eviction-max-pod-grace-period=60 --image-gc-high-threshold=80 \
                    --image-gc-low-threshold=70 --cpu-cfs-quota=false'";
    let text = render(Form::BootstrapScript, &settings, "");
    assert!(text.contains(expected), "{text}");
}

#[test]
fn windows_gets_a_powershell_block_after_the_text_of_the_user() {
    let expected = r#"<powershell>
Write-Host "hello"
[string]$EKSBootstrapScriptFile = "$env:ProgramFiles\Amazon\EKS\Start-EKSBootstrap.ps1"
& $EKSBootstrapScriptFile -EKSClusterName 'demo' -APIServerEndpoint 'https://demo.example' -Base64ClusterCA 'Y2EtYnVuZGxl' -KubeletExtraArgs '--node-labels="karpenter.sh/capacity-type=spot,team=a" --register-with-taints="gpu=true:NoSchedule,karpenter.sh/unregistered:NoExecute" --max-pods=29' -DNSClusterIP '10.100.0.10'
</powershell>"#;
    assert_eq!(render(Form::PowerShell, &settings(), "Write-Host \"hello\""), expected);
}

#[test]
fn bottlerocket_settings_of_the_cluster_win_over_those_of_the_user() {
    let custom = r#"
        [settings.kubernetes]
        cluster-name = "theirs"
        cluster-certificate = "theirs"
        cloud-provider = "external"
        colour = "blue"
        [settings.kubernetes.node-labels]
        team = "b"
        own = "yes"
        [settings.kubernetes.node-taints]
        theirs = ["x:NoSchedule"]
        [settings.kubernetes.eviction-hard]
        "memory.available" = "12%"
        [settings.ntp]
        time-servers = ["169.254.169.123"]
        [other]
        a = 1
    "#;
    let form = Form::Bottlerocket(BindPaths::Explicit);
    let raid =
        NodeSettings { instance_store_policy: Some(InstanceStorePolicy::Raid0), ..settings() };
    let user_data = UserData::render(form, &raid, Some(custom)).unwrap();
    assert_eq!(user_data.ignored(), ["settings.kubernetes.colour"]);
    let expected = r#"
        [settings.kubernetes]
        cluster-name = "demo"
        api-server = "https://demo.example"
        cluster-certificate = "Y2EtYnVuZGxl"
        cloud-provider = "external"
        cluster-dns-ip = "10.100.0.10"
        max-pods = 29
        [settings.kubernetes.node-labels]
        team = "a"
        own = "yes"
        "karpenter.sh/capacity-type" = "spot"
        [settings.kubernetes.node-taints]
        gpu = ["true:NoSchedule"]
        "karpenter.sh/unregistered" = [":NoExecute"]
        [settings.kubernetes.eviction-hard]
        "memory.available" = "12%"
        [settings.ntp]
        time-servers = ["169.254.169.123"]
        [settings.bootstrap-commands."000-mount-instance-storage"]
        commands = [["apiclient", "ephemeral-storage", "init"],
            ["apiclient", "ephemeral-storage", "bind", "--dirs", "/var/lib/containerd", "/var/lib/kubelet", "/var/log/pods"]]
        essential = true
        mode = "always"
    "#;
    let table = |text: &str| toml::from_str::<toml::Table>(text).unwrap();
    assert_eq!(table(user_data.text()), table(expected), "{}", user_data.text());
    let refused = |custom: &str| UserData::render(form, &settings(), Some(custom)).unwrap_err();
    assert!(matches!(refused("a = "), Refusal::Toml(_)));
    assert_eq!(refused("[settings]\nkubernetes = 1"), Refusal::NotATable("settings.kubernetes"));
}

#[test]
fn the_release_decides_how_bottlerocket_binds_its_directories() {
    let of = |terms: serde_json::Value, images: serde_json::Value| {
        let class: Ec2NodeClass = serde_json::from_value(json!({
            "apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass", "metadata": {"name": "a"},
            "spec": {"amiSelectorTerms": terms, "amiFamily": "Bottlerocket"},
            "status": {"amis": images},
        }))
        .unwrap();
        Form::of(&class)
    };
    let image = |name: &str| json!([{"id": "ami-1", "name": name, "requirements": []}]);
    let (old, new) = (BindPaths::Explicit, BindPaths::Default);
    for (terms, images, paths) in [
        (json!([{"alias": "bottlerocket@latest"}]), json!([]), new),
        (json!([{"alias": "bottlerocket@v1.45.0"}]), json!([]), old),
        (json!([{"alias": "bottlerocket@v1.46.0"}]), json!([]), new),
        (json!([{"alias": "bottlerocket@1.9.0"}]), json!([]), old),
        (json!([{"alias": "bottlerocket@2.0.0"}]), json!([]), new),
        (json!([{"alias": "bottlerocket@1.46"}]), json!([]), old),
        (json!([{"name": "bottlerocket-aws-k8s-1.33-x86_64-v1.46.0-431fe75a"}]), json!([]), new),
        (json!([{"id": "ami-1"}]), image("bottlerocket-aws-k8s-1.33-x86_64-v1.46.0-431fe75a"), new),
        (json!([{"id": "ami-1"}]), image("bottlerocket-aws-k8s-1.33-x86_64-v1.45.0-431fe75a"), old),
        (json!([{"id": "ami-1"}]), image("own-v9.9.9"), old),
        (json!([{"id": "ami-1"}]), json!([]), old),
    ] {
        assert_eq!(of(terms.clone(), images), Form::Bottlerocket(paths), "{terms}");
    }
}

#[test]
fn what_cannot_be_rendered_has_a_reason() {
    let refused = |form, change: &dyn Fn(&mut NodeSettings), custom: &str| {
        let mut settings = settings();
        change(&mut settings);
        UserData::render(form, &settings, Some(custom)).unwrap_err()
    };
    let unchanged = |_: &mut NodeSettings| {};
    for (form, limit) in [(Form::Verbatim, MAX_BYTES), (Form::PowerShell, MAX_BYTES - 400)] {
        let error = refused(form, &unchanged, &"x".repeat(limit + 1));
        assert!(matches!(error, Refusal::TooLarge { bytes } if bytes > MAX_BYTES), "{error}");
    }
    let fits = UserData::render(Form::Verbatim, &settings(), Some(&"x".repeat(MAX_BYTES))).unwrap();
    assert!(fits.is_near_limit());
    assert_eq!(
        refused(Form::Nodeadm, &|settings| settings.cluster.service_cidr = None, ""),
        Refusal::NoServiceCidr
    );
    assert_eq!(
        refused(Form::Nodeadm, &|settings| settings.cluster.ca_bundle = Some("%".into()), ""),
        Refusal::CaBundle
    );
    let archive = "Content-Type: text/plain\n\na";
    for form in [Form::Nodeadm, Form::BootstrapScript] {
        let error = Refusal::Mime(MimeError::NotMultipart("text/plain".to_owned()));
        assert_eq!(refused(form, &unchanged, archive), error);
    }
}

#[test]
fn a_node_gets_the_labels_and_taints_of_its_claim() {
    let claim: NodeClaim = serde_json::from_value(json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
        "metadata": {"name": "a", "labels": {
            "karpenter.sh/nodepool": "default", "team": "a", "example.com/x": "y",
            "kubernetes.io/arch": "amd64", "node.kubernetes.io/instance-type": "m5.large",
            "node-restriction.kubernetes.io/x": "y", "sub.k8s.io/x": "y", "k8s.io/x": "y",
            "notk8s.io/x": "y", "karpenter.k8s.aws/ec2nodeclass": "default",
        }},
        "spec": {
            "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
            "requirements": [],
            "taints": [{"key": "gpu", "value": "true", "effect": "NoSchedule"}],
            "startupTaints": [{"key": "cilium", "effect": "NoExecute"}],
        },
    }))
    .unwrap();
    let class = |family: &str| -> Ec2NodeClass {
        serde_json::from_value(json!({
            "apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass", "metadata": {"name": "default"},
            "spec": {"amiFamily": family, "kubelet": {"podsPerCore": 2}},
        }))
        .unwrap()
    };
    let cluster = settings().cluster;
    let of = |family| {
        NodeSettings::of_claim(&class(family), &claim, &cluster, Some("10.0.0.10"), "spot", 29)
    };
    let settings = of("AL2023");
    let labels: Vec<_> =
        settings.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    assert_eq!(
        labels,
        [
            "example.com/x=y",
            "karpenter.k8s.aws/ec2nodeclass=default",
            "karpenter.sh/capacity-type=spot",
            "karpenter.sh/do-not-sync-taints=true",
            "karpenter.sh/nodepool=default",
            "notk8s.io/x=y",
            "team=a",
        ]
    );
    let taints: Vec<_> = settings.taints.iter().map(taints::display).collect();
    assert_eq!(
        taints,
        ["gpu=true:NoSchedule", "cilium:NoExecute", "karpenter.sh/unregistered:NoExecute"]
    );
    assert_eq!(settings.kubelet.max_pods, Some(29));
    assert_eq!(settings.kubelet.pods_per_core, Some(2));
    assert_eq!(settings.kubelet.cluster_dns, Some(vec!["10.0.0.10".to_owned()]));
    assert!(!of("Custom").labels.contains_key(labels::DO_NOT_SYNC_TAINTS));
}

#[test]
fn later_node_configs_win_and_flags_add_up() {
    let custom = "spec:\n  kubelet:\n    config:\n      maxPods: 42\n      podsPerCore: 3\n    flags:\n    - --node-labels=own=yes\n";
    let read = NodeSettings::read(&render(Form::Nodeadm, &settings(), custom)).unwrap();
    assert_eq!((read.kubelet.max_pods, read.kubelet.pods_per_core), (Some(29), Some(3)));
    assert_eq!(read.labels.get("own").map(String::as_str), Some("yes"));
    assert_eq!(read.labels.get("team").map(String::as_str), Some("a"));
}

#[test]
fn a_node_does_not_start_from_what_it_cannot_read() {
    for (text, expected) in [
        ("", Unreadable::UnknownForm),
        ("[settings]\na = 1", Unreadable::UnknownForm),
        (
            "/etc/eks/bootstrap.sh demo --kubelet-extra-args '--max-pods=many'",
            Unreadable::KubeletArgument("--max-pods=many".to_owned()),
        ),
    ] {
        assert_eq!(NodeSettings::read(text), Err(expected), "{text}");
    }
    let plain = "#!/bin/sh\n/etc/eks/bootstrap.sh demo --apiserver-endpoint https://x\n";
    assert_eq!(NodeSettings::read(plain).unwrap().cluster.endpoint, "https://x");
}
