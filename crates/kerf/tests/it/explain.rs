//! `kerf explain` and `kerf plan --disruption` as their users meet them.

use std::fs;

use crate::kerf::{ROOT, kerf};

#[test]
fn what_cannot_be_explained_is_refused() {
    let cluster = ["-f", "examples/explain/cluster.yaml"];
    for (what, message) in [
        ("node/nope", "kerf: there is no node nope; there are: guarded, quiet, roomy\n"),
        ("nodepool/nope", "kerf: there is no nodepool nope; there are: general\n"),
        (
            "node/",
            "kerf: cannot explain \"node/\": expected node/NAME, nodepool/NAME or pod/NAME\n",
        ),
        (
            "job/x",
            "kerf: cannot explain \"job/x\": expected node/NAME, nodepool/NAME or pod/NAME\n",
        ),
        ("pod/nope", "kerf: there is no pod nope in namespace default; there are: none\n"),
        (
            "pod/web-0",
            "kerf: there is no pod web-0 in namespace default; namespaces with a pod of this name: shop; choose one with -n\n",
        ),
    ] {
        let arguments = [&["explain", what][..], &cluster].concat();
        assert_eq!(kerf(&arguments), (Some(2), String::new(), message.to_owned()), "{what}");
    }
}

#[test]
fn nodes_of_static_pools_are_explained() {
    let cluster = ["-f", "examples/explain/static.yaml"];
    let explained = |arguments: &[&str]| {
        let (code, printed, errors) = kerf(&[arguments, &cluster].concat());
        assert_eq!((code, errors.as_str()), (Some(0), ""), "{arguments:?}");
        printed
    };
    let waits = "replacing it failed 2 times, and is not tried again before 2100-01-01T00:00:00Z \
                 (its replacement edge-x7d2k is gone)";
    let one = explained(&["explain", "node/one"]);
    for line in [
        format!("Kerf leaves node one alone: {waits}.\n"),
        format!("\nDrift of static NodePools leaves it alone (setback): {waits}\n"),
        "  ok       its NodePool is ready and has the nodes that it keeps\n".to_owned(),
        format!("  BLOCKS   {waits}\n"),
    ] {
        assert!(one.contains(&line), "{line}{one}");
    }
    for absent in ["Emptiness", "Consolidation"] {
        assert!(!one.contains(absent), "{one}");
    }
    let two = explained(&["explain", "node/two"]);
    assert!(two.starts_with("Kerf would replace node two (Drifted).\n"), "{two}");
    assert!(two.contains("\nDrift of static NodePools would replace it, moving 0 pods\n"), "{two}");
    let off = ["explain", "nodepool/edge", "--feature-gates=StaticCapacity=false"];
    let stays = "stays (static_pool): its NodePool is static and keeps its nodes\n";
    assert_eq!(explained(&off).matches(stays).count(), 2);

    let json = explained(&["plan", "--disruption", "-o", "json"]);
    let plan: serde_json::Value = serde_json::from_str(&json).unwrap();
    let [command] = &plan["commands"].as_array().unwrap()[..] else { panic!("{json}") };
    assert_eq!(command["method"], "StaticDrift");
    assert_eq!(command["replacements"][0]["pool"], "edge");
    assert_eq!(command["savingsPerHour"], serde_json::Value::Null);
    // For programs every digit counts.
    assert_eq!(command["nodes"][0]["pricePerHour"], "0.0542949673");
}

/// The example, with something replaced, at its first place, in a file of its own.
fn changed(from: &str, to: &str) -> (tempfile::TempDir, String) {
    let text = fs::read_to_string(format!("{ROOT}/examples/explain/cluster.yaml")).unwrap();
    assert!(text.contains(from), "{from}");
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("cluster.yaml");
    fs::write(&path, text.replacen(from, to, 1)).unwrap();
    let path = path.to_str().unwrap().to_owned();
    (directory, path)
}

fn printed(arguments: &[&str]) -> String {
    let (code, printed, errors) = kerf(arguments);
    assert_eq!((code, errors.as_str()), (Some(0), ""), "{arguments:?}");
    printed
}

/// The NodePool of the other file is of another zone.
#[test]
fn a_changed_pool_says_which_nodes_drift() {
    let files = ["-f", "examples/explain/cluster.yaml", "-f", "examples/explain/zone-b.yaml"];
    let node = printed(&[&["explain", "node/quiet"][..], &files].concat());
    let drift = "  drifted       from its NodePool as it is here: RequirementsDrifted\n";
    assert!(node.contains(drift), "{node}");
    assert!(node.contains("  ok       it has drifted\n"), "{node}");
    let json = printed(&[&["explain", "node/quiet", "-o", "json"][..], &files].concat());
    let node: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(node["newDrift"], "RequirementsDrifted");
    let pool = printed(&[&["explain", "nodepool/general"][..], &files].concat());
    assert!(
        pool.contains("  quiet     $0.2172/h   2      would be removed (Drifted), saves"),
        "{pool}"
    );
}

/// Node quiet waits for its replacement, and the budget is one node.
#[test]
fn commands_that_are_under_way_count() {
    let consolidatable = "  - {type: Consolidatable,";
    let going = "  - {type: DisruptionReason, status: \"True\", reason: Underutilized, message: \"\", \
                 lastTransitionTime: \"2026-01-01T00:10:30Z\"}\n";
    let (_directory, file) = changed(consolidatable, &format!("{going}{consolidatable}"));
    let plan = printed(&["plan", "--disruption", "-f", &file]);
    assert!(plan.starts_with("No node would be removed or replaced.\n"), "{plan}");
    assert!(plan.contains("allowed=1, disrupting=1"), "{plan}");
    let pool = printed(&["explain", "nodepool/general", "-f", &file]);
    assert!(pool.contains("  Underutilized   3       1         1\n"), "{pool}");
    let stays = "  quiet     $0.2172/h   2      stays (already_disrupted): candidate is already being disrupted\n";
    assert!(pool.contains(stays), "{pool}");
    let node = printed(&["explain", "node/quiet", "-f", &file]);
    assert!(node.contains("  BLOCKS   candidate is already being disrupted\n"), "{node}");
}

/// Which policy is about the node, from when on, and what it would do.
#[test]
fn a_broken_node_is_explained() {
    let gate = "--feature-gates=NodeRepair=true";
    let cluster = ["explain", "node/quiet", "-f", "examples/explain/broken.yaml"];
    let with = |more: &[&str]| printed(&[&cluster[..], more].concat());
    let tolerated = with(&[gate]);
    for line in [
        "\nIts health\n  Ready=False (KubeletNotReady) since 2026-01-01T00:02:00Z\n",
        "    policy Ready=False (ReplaceNode), the fallback, tolerated until 2026-01-01T00:12:00Z\n",
        "  nothing is done yet\n",
        "\nRepair leaves it alone (tolerated): condition Ready=False is tolerated until",
    ] {
        assert!(tolerated.contains(line), "{line}{tolerated}");
    }
    let due = with(&[gate, "--now=2026-01-01T00:12:00Z"]);
    assert!(due.starts_with("Kerf would remove node quiet (Unhealthy), moving 2 pods"), "{due}");
    assert!(due.contains("  ReplaceNode because of Ready, without a drain\n"), "{due}");
    let off = with(&["--now=2026-01-01T00:12:00Z"]);
    assert!(!off.contains("Its health") && !off.contains("Repair"), "{off}");
}

#[test]
fn a_node_that_asks_for_a_reboot_is_explained() {
    let due = printed(&[
        "explain",
        "node/stuck",
        "--feature-gates=NodeRepair=true",
        "-f",
        "examples/explain/reboot.yaml",
        "--now=2026-01-01T00:12:00Z",
    ]);
    assert!(
        due.starts_with("Kerf would reboot node stuck (Unhealthy), evicting 2 pods.\n"),
        "{due}"
    );
    let line = "  RebootNode because of KWOKRebootRequired, the drain takes 60 s at most\n";
    assert!(due.contains(line), "{due}");
    assert!(due.contains("\nRepair would reboot it, evicting 2 pods\n"), "{due}");
}

/// Karpenter 1.15 paces repair by budgets, and manifests made for it have to be read.
#[test]
fn a_budget_that_holds_nothing_back_is_pointed_out() {
    let unhealthy = r#"budgets: [{nodes: "1"}, {nodes: "0", reasons: [Unhealthy]}]"#;
    let (_directory, file) = changed(r#"budgets: [{nodes: "1"}]"#, unhealthy);
    let pool = printed(&["explain", "nodepool/general", "-f", &file]);
    assert!(pool.contains("  0       Unhealthy   always     -          yes\n"), "{pool}");
    let note = "  Unhealthy: nothing is disrupted for this reason; --feature-gates=NodeRepair=true switches repair on\n\nMay be disrupted";
    assert!(pool.contains(note), "{pool}");
    assert!(pool.contains("  Drifted         3       1         0\n\nNodes"), "{pool}");
}

/// From one to two at night nothing may go; the example is of eleven minutes past midnight.
#[test]
fn files_are_judged_at_their_own_time() {
    let night = r#"budgets: [{nodes: "0", schedule: "0 1 * * *", duration: 1h}]"#;
    let (directory, file) = changed(r#"budgets: [{nodes: "1"}]"#, night);
    let plan = |more: &[&str]| -> (String, bool) {
        let arguments = [&["plan", "--disruption", "-o", "json", "-f", &file][..], more].concat();
        let plan: serde_json::Value = serde_json::from_str(&printed(&arguments)).unwrap();
        let acts = !plan["commands"].as_array().unwrap().is_empty();
        (plan["judgedAt"].as_str().unwrap().to_owned(), acts)
    };
    assert_eq!(plan(&[]), ("2026-01-01T00:11:00Z".to_owned(), true));
    let at_night = ("2026-01-01T01:30:00Z".to_owned(), false);
    assert_eq!(plan(&["--now=2026-01-01T01:30:00Z"]), at_night);
    // As `kerf snapshot` says it.
    let taken = directory.path().join("taken.json");
    let list =
        r#"{"apiVersion": "v1", "kind": "List", "takenAt": "2026-01-01T01:30:00Z", "items": []}"#;
    fs::write(&taken, list).unwrap();
    assert_eq!(plan(&["-f", taken.to_str().unwrap()]), at_night);

    for what in ["node/quiet", "nodepool/general"] {
        let now = "--now=2026-01-01T01:30:00Z";
        let told = printed(&["explain", what, "-f", &file, now]);
        assert!(told.contains("  judged as of 2026-01-01T01:30:00Z\n"), "{told}");
        let json = printed(&["explain", what, "-f", &file, now, "-o", "json"]);
        let told: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(told["judgedAt"], "2026-01-01T01:30:00Z");
    }
    let refused = kerf(&["explain", "node/quiet", "-f", &file, "--now=soon"]);
    let message =
        "kerf: invalid value \"soon\" for --now: expected a time such as 2026-01-05T12:00:00Z\n";
    assert_eq!(refused, (Some(2), String::new(), message.to_owned()));
}

#[test]
fn nodes_of_unknown_types_are_shown_with_the_reason() {
    let (_directory, file) = changed("kind: KWOKNodeClass", "kind: EC2NodeClass");
    let pool = printed(&["explain", "nodepool/general", "-f", &file]);
    let unknown = "  its instance types are unknown: its NodeClass is of kind EC2NodeClass; \
                   give them with --instance-types-file-path\n";
    assert!(pool.contains(unknown), "{pool}");
    for (node, pods) in [("guarded", 1), ("quiet  ", 2), ("roomy  ", 2)] {
        let stays = "stays (unknown_instance_types): the instance types of its NodePool are unknown (NodePool=general)";
        assert!(pool.contains(&format!("  {node}   unknown   {pods}      {stays}\n")), "{pool}");
    }
    let node = printed(&["explain", "node/quiet", "-f", &file]);
    assert!(node.starts_with("Kerf leaves node quiet alone: the instance types of"), "{node}");
    assert!(node.contains(unknown.trim_start()), "{node}");
    let json = printed(&["explain", "nodepool/general", "-f", &file, "-o", "json"]);
    let pool: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(pool["nodes"][0]["pricePerHour"], serde_json::Value::Null);
    assert_eq!(pool["nodes"][0]["refusal"]["reason"], "unknown_instance_types");
}

/// Kinds by the names that kubectl has for them, in one word or two.
#[test]
fn kinds_go_by_their_short_names() {
    let explained = |what: &[&str]| {
        printed(
            &[&["explain"], what, &["-n", "shop", "-f", "examples/explain/cluster.yaml"]].concat(),
        )
    };
    for (names, others) in [
        ("node/quiet", &["no/quiet", "nodes/quiet", "nodeclaim/general-quiet"][..]),
        ("nodepool/general", &["np/general", "nodepools/general"]),
        ("pod/web-0", &["po/web-0", "pods/web-0"]),
    ] {
        let expected = explained(&[names]);
        for other in others {
            assert_eq!(explained(&[other]), expected, "{other}");
            let (kind, name) = other.split_once('/').unwrap();
            assert_eq!(explained(&[kind, name]), expected, "{kind} {name}");
        }
    }
}

/// Why it is pending, where it would go, or what it does to its node.
#[test]
fn pods_are_explained() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("pods.yaml");
    let pod = |name: &str, cpu: u32, more: &str| {
        format!(
            "---\napiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, namespace: shop}}\nspec: {{{more}\n  \
             containers: [{{name: c, resources: {{requests: {{cpu: {cpu}}}}}}}]}}\n"
        )
    };
    let owned = "---\napiVersion: v1\nkind: Pod\nmetadata: {name: agent, namespace: shop, ownerReferences: \
         [{apiVersion: apps/v1, kind: DaemonSet, name: agent, uid: u, controller: true}]}\n\
         spec: {nodeName: quiet, containers: [{name: c}]}\nstatus: {phase: Running}\n";
    let texts = [
        pod("fits", 1, ""),
        pod("new", 8, ""),
        pod("huge", 300, ""),
        pod("gated", 1, "schedulingGates: [{name: wait}],"),
        pod("elsewhere", 1, "nodeSelector: {kubernetes.io/arch: arm64},"),
        owned.to_owned(),
        format!("{}status: {{phase: Succeeded}}\n", pod("over", 1, "")),
    ];
    fs::write(&file, texts.concat()).unwrap();
    let explain = |name: &str, more: &[&str]| {
        let what = format!("pod/{name}");
        let cluster = "examples/explain/cluster.yaml";
        let arguments =
            ["explain", &what, "-n", "shop", "-f", cluster, "-f", file.to_str().unwrap()];
        printed(&[&arguments[..], more].concat())
    };
    for (name, sentence, outcome) in [
        ("web-0", "Pod shop/web-0 runs on node quiet and may be evicted.", "runs"),
        (
            "job-0",
            "Pod shop/job-0 runs on node guarded and holds it: pod has \"karpenter.sh/do-not-disrupt\" annotation (Pod=shop/job-0).",
            "holdsItsNode",
        ),
        ("agent", "Pod shop/agent runs on node quiet and goes with it.", "runs"),
        ("fits", "Pod shop/fits would go to node ", "goesToNode"),
        (
            "new",
            "Pod shop/new would go to a new node of NodePool general: one of ",
            "goesToNewNode",
        ),
        (
            "huge",
            "Pod shop/huge has no place: it asks for 300 CPU, and the largest allowed type has 256 (",
            "noPlace",
        ),
        (
            "elsewhere",
            "Pod shop/elsewhere has no place: incompatible requirements, key kubernetes.io/arch",
            "noPlace",
        ),
        (
            "gated",
            "Kerf looks for no place for pod shop/gated: it has scheduling gates, and kube-scheduler waits until they are removed.",
            "notLookedAt",
        ),
        ("over", "Pod shop/over has ended and needs no place.", "notLookedAt"),
    ] {
        let text = explain(name, &[]);
        assert!(text.starts_with(sentence), "{text}");
        let answer: serde_json::Value =
            serde_json::from_str(&explain(name, &["-o", "json"])).unwrap();
        assert_eq!(answer["verdict"]["outcome"], outcome, "{answer}");
        assert_eq!(answer["verdict"]["sentence"], text.lines().next().unwrap());
        assert_eq!(
            (&answer["kind"], &answer["pod"]),
            (&"PodExplanation".into(), &format!("shop/{name}").into())
        );
    }
    // The requirements are there for who asks.
    assert!(!explain("huge", &[]).contains("requirements="));
    assert!(
        explain("huge", &["--verbose"])
            .contains("\n            requirements=karpenter.kwok.sh/kwoknodeclass In [default], "),
        "{}",
        explain("huge", &["-v"])
    );
    let running = explain("web-0", &[]);
    assert!(
        running.contains("\n  its node   Kerf leaves node quiet alone: Can't replace"),
        "{running}"
    );
}

const AT_ITS_LIMIT: &str = "examples/at-its-limit.yaml";

/// A node of a static pool at its limit: with the gate it goes before its replacement comes, and that is said.
#[test]
fn what_goes_first_is_told_apart_from_what_is_replaced() {
    let gate = "--feature-gates=TerminateFirstDrift=true";
    let plan = printed(&["plan", "--disruption", "-f", AT_ITS_LIMIT, gate]);
    assert!(
        plan.starts_with("Terminate 1 node first and replace it after (Drifted), moving 1 pod\n"),
        "{plan}"
    );
    let first = "  goes first, its replacement comes after: its static NodePool is at limits.nodes; its pods are deleted after 600 s at \
                 the latest (terminationGracePeriod of its NodePool)\n";
    assert!(plan.contains(first), "{plan}");
    assert!(plan.contains("  terminate_first_one_at_a_time   1       two"), "{plan}");
    let without = printed(&["plan", "--disruption", "-f", AT_ITS_LIMIT]);
    assert!(without.starts_with("No node would be removed or replaced.\n"), "{without}");
    assert!(without.contains("  static_node_limit   2       one"), "{without}");

    let json = printed(&["plan", "--disruption", "-f", AT_ITS_LIMIT, gate, "-o", "json"]);
    let plan: serde_json::Value = serde_json::from_str(&json).unwrap();
    let command = &plan["commands"][0];
    assert_eq!(command["decision"], "terminate-first");
    assert_eq!(command["terminateFirst"]["reason"], "static-at-limit");
    assert_eq!(command["terminateFirst"]["drainBoundSeconds"], 600);
    assert_eq!(command["terminateFirst"]["drainBoundOf"], "NodePool");

    let node = printed(&["explain", "node/one", "-f", AT_ITS_LIMIT, gate]);
    let sentence = "Kerf would terminate node one first and replace it after, because its static NodePool is at limits.nodes \
                    (Drifted), moving 1 pod.\n";
    assert!(node.starts_with(sentence), "{node}");
    let pool = printed(&["explain", "nodepool/static", "-f", AT_ITS_LIMIT, gate]);
    assert!(pool.contains("would be terminated first and replaced after (Drifted)"), "{pool}");
}

/// Three nodes of a pool that could not be replaced: the pool rests, and says until when.
#[test]
fn a_pool_that_rests_is_shown() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("cluster.yaml");
    let text = fs::read_to_string(format!("{ROOT}/examples/explain/cluster.yaml")).unwrap();
    let setback = "  annotations: {karpenter.sh/nodeclaim-setback: \
                   '{\"reason\":\"Drifted\",\"failures\":1,\"until\":\"2026-01-01T00:11:50Z\",\"message\":\"it is gone\"}'}\n";
    let claims = "  creationTimestamp: \"2026-01-01T00:00:00Z\"\n";
    assert_eq!(text.matches(claims).count(), 3, "one for each claim");
    fs::write(&file, text.replace(claims, &format!("{claims}{setback}"))).unwrap();
    let file = file.to_str().unwrap();
    let pool = printed(&["explain", "nodepool/general", "-f", file]);
    let rests = "  drift rests until 2026-01-01T00:11:50Z: replacing 3 of its nodes failed, the last time because it is gone\n";
    assert!(pool.contains(rests), "{pool}");
    let json = printed(&["explain", "nodepool/general", "-f", file, "-o", "json"]);
    let pool: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(pool["driftRests"]["nodes"], 3);
}
