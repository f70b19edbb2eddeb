use std::{collections::BTreeSet, net::Ipv4Addr, num::NonZero, time::Duration};

use kerf_controllers::{
    Settings,
    settings::{
        Batching, DashboardEndpoint, FeatureGates, GracePeriod, LeaderElection, Millicores,
        PreferencePolicy, RepairSettings,
    },
};
use kerf_model::MinValuesPolicy;
use kerf_runtime::{
    Bucket,
    logging::{Format, Level, Output},
};

use kerf_provider::FlagValues;

use super::*;
use crate::providers::{self, Chosen};

/// What `kerf run` makes of `arguments` and `variables`.
fn options(arguments: &[&str], variables: &[(&str, &str)]) -> Result<Options, String> {
    let arguments = ["kerf", "run"].iter().chain(arguments).map(OsString::from);
    let variable = |name: &str| {
        variables.iter().find(|(known, _)| *known == name).map(|(_, value)| OsString::from(value))
    };
    match parse(arguments, variable) {
        Ok(Command::Run(options)) => Ok(*options),
        Ok(_) => panic!("not what was asked for"),
        Err(refused) => Err(refused.to_string()),
    }
}

fn settings(arguments: &[&str], variables: &[(&str, &str)]) -> Settings {
    options(arguments, variables).unwrap().settings
}

/// KWOK with this file of instance types.
fn chosen(instance_types_file: &str) -> Chosen {
    let provider = providers::named("kwok").unwrap();
    let flags = [("instance-types-file-path", instance_types_file.to_owned())];
    Chosen { provider, flags: FlagValues::new(flags) }
}

#[test]
fn the_provider_has_flags_of_its_own() {
    let provider = |arguments: &[&str], variables: &[(&str, &str)]| {
        options(arguments, variables).map(|options| options.provider)
    };
    assert_eq!(provider(&["--provider=kwok"], &[]), Ok(chosen("")));
    assert_eq!(provider(&[], &[("CLOUD_PROVIDER", "kwok")]), Ok(chosen("")));
    let (flag, variable) = ("--instance-types-file-path=/a", ("INSTANCE_TYPES_FILE_PATH", "/b"));
    assert_eq!(provider(&[], &[variable]), Ok(chosen("/b")));
    assert_eq!(provider(&[flag], &[variable]), Ok(chosen("/a")));
    let known = if cfg!(feature = "aws") { "kwok or aws" } else { "kwok" };
    assert_eq!(
        provider(&["--provider=fog"], &[]),
        Err(format!("invalid value \"fog\" for --provider: expected {known}"))
    );
    assert_eq!(
        provider(&[], &[("CLOUD_PROVIDER", "")]),
        Err(format!(
            "invalid value \"\" for the environment variable CLOUD_PROVIDER (--provider): expected {known}"
        ))
    );
}

#[test]
fn the_crds_are_those_of_the_provider() {
    let crds = |arguments: &[&str]| {
        let arguments = ["kerf", "crds"].iter().chain(arguments).map(OsString::from);
        match parse(arguments, |_| None) {
            Ok(Command::Crds(provider)) => Ok(provider.name()),
            Ok(_) => panic!("not what was asked for"),
            Err(refused) => Err(refused.to_string()),
        }
    };
    assert_eq!(crds(&[]), Ok("kwok"));
    assert_eq!(crds(&["--provider=kwok"]), Ok("kwok"));
    let names = providers::names();
    let refused = format!("invalid value \"fog\" for --provider: expected {names}");
    assert_eq!(crds(&["--provider=fog"]), Err(refused));
}

#[test]
fn told_nothing_the_operator_runs_with_its_defaults() {
    let provider = chosen("");
    let expected = Options { settings: Settings::default(), provider, warnings: vec![] };
    assert_eq!(options(&[], &[]), Ok(expected));
}

#[test]
fn flags_are_written_as_go_allows() {
    for arguments in [
        &["--metrics-port=9"][..],
        &["--metrics-port", "9"],
        &["-metrics-port=9"],
        &["-metrics-port", "9"],
        &["--metrics-port=7", "--metrics-port=9"],
        &["--log-level=debug", "-metrics-port=9", "-enable-profiling"],
    ] {
        assert_eq!(settings(arguments, &[]).metrics_port, 9, "{arguments:?}");
    }
}

#[test]
fn a_flag_beats_its_variable_and_the_variable_beats_the_default() {
    let port = |arguments: &[&str], variables: &[(&str, &str)]| {
        settings(arguments, variables).health_probe_port
    };
    let variable = ("HEALTH_PROBE_PORT", "7");
    assert_eq!(port(&[], &[]), 8081);
    assert_eq!(port(&[], &[variable]), 7);
    assert_eq!(port(&["--health-probe-port=8"], &[variable]), 8);
    assert_eq!(port(&["--health-probe-port=8081"], &[variable]), 8081);
}

#[test]
fn booleans_are_read_as_karpenter_reads_them() {
    let leads_alone = |arguments: &[&str], variables: &[(&str, &str)]| {
        options(arguments, variables).map(|options| options.settings.leader_election.is_none())
    };
    for (arguments, expected) in [
        (&["--disable-leader-election"][..], true),
        (&["-disable-leader-election"], true),
        (&["--disable-leader-election=true"], true),
        (&["--disable-leader-election=false"], false),
        (&["--disable-leader-election", "--log-level=debug"], true),
    ] {
        assert_eq!(leads_alone(arguments, &[]), Ok(expected), "{arguments:?}");
    }
    for (value, expected) in [("1", true), ("T", true), ("True", true), ("f", false), ("", false)] {
        let variables = [("DISABLE_LEADER_ELECTION", value)];
        assert_eq!(leads_alone(&[], &variables), Ok(expected), "{value:?}");
    }
    assert_eq!(
        leads_alone(&["--disable-leader-election=1"], &[]),
        Err("invalid value \"1\" for --disable-leader-election: expected true or false".into())
    );
    assert_eq!(
        leads_alone(&[], &[("DISABLE_LEADER_ELECTION", "yes")]),
        Err("invalid value \"yes\" for the environment variable DISABLE_LEADER_ELECTION \
             (--disable-leader-election): expected true or false"
            .into())
    );
}

/// Each flag changes the setting that it is meant for and no other.
#[test]
fn each_flag_has_its_setting() {
    type Change = fn(&mut Settings);
    let cases: [(&str, &str, Change); 31] = [
        ("metrics-port", "0", |s| s.metrics_port = 0),
        ("health-probe-port", "65535", |s| s.health_probe_port = 65535),
        ("metrics-address", "127.0.0.1", |s| s.metrics_address = "127.0.0.1".parse().ok()),
        ("metrics-address", "", |_| {}),
        ("health-address", "::1", |s| s.health_address = "::1".parse().ok()),
        ("dashboard-port", "8082", |s| {
            let (port, address) = (NonZero::new(8082).unwrap(), Ipv4Addr::LOCALHOST.into());
            s.dashboard = Some(DashboardEndpoint { port, address });
        }),
        ("dashboard-port", "0", |_| {}),
        ("kube-client-qps", "5", |s| s.client_limit = Some(Bucket { per_second: 5, burst: 300 })),
        ("kube-client-qps", "-1", |s| s.client_limit = None),
        ("kube-client-burst", "6", |s| s.client_limit = Some(Bucket { per_second: 200, burst: 6 })),
        ("leader-election-name", "other", |s| {
            s.leader_election = Some(LeaderElection { lease: "other".into(), namespace: None });
        }),
        ("leader-election-namespace", "ns", |s| {
            let namespace = Some("ns".into());
            s.leader_election = Some(LeaderElection { namespace, ..LeaderElection::default() });
        }),
        ("leader-election-namespace", "", |_| {}),
        ("log-level", "debug", |s| s.logging.level = Level::Debug),
        ("log-level", "", |_| {}),
        ("log-format", "json", |s| s.logging.format = Format::Json),
        ("log-output-paths", "stderr,/var/log/kerf", |s| {
            s.logging.outputs = vec![Output::Stderr, Output::File("/var/log/kerf".into())];
        }),
        ("batch-max-duration", "1m30s", |s| s.batching.max = Duration::from_secs(90)),
        ("batch-idle-duration", "500ms", |s| s.batching.idle = Duration::from_millis(500)),
        ("preference-policy", "Ignore", |s| s.preference_policy = PreferencePolicy::Ignore),
        ("min-values-policy", "BestEffort", |s| s.min_values_policy = MinValuesPolicy::BestEffort),
        ("cpu-requests", "4000", |s| s.cpu = Millicores::new(4000)),
        ("cpu-requests", "-4", |_| {}),
        ("feature-gates", "NodeRepair=true", |s| s.gates.node_repair = true),
        ("feature-gates", "", |_| {}),
        ("node-repair-unhealthy-percent", "35", |s| s.repair.most_unhealthy_percent = 35),
        ("scaledown-utilization-threshold", "1.0", |s| {
            s.churn.utilization_threshold = "1".parse().unwrap();
        }),
        ("consolidation-price-improvement-factor", "0.8", |s| {
            s.churn.price_improvement_factor = "0.8".parse().unwrap();
        }),
        ("consolidation-savings-threshold", "0", |s| {
            s.churn.savings_threshold = "0".parse().unwrap();
        }),
        ("consolidation-grace-period", "30m", |s| {
            s.churn.grace_period = GracePeriod::For(Duration::from_mins(30));
        }),
        ("memory-limit", "1073741824", |_| {}),
    ];
    for (name, value, change) in cases {
        let mut expected = Settings::default();
        change(&mut expected);
        let flag = flags::all().find(|flag| flag.name == name).unwrap();
        assert_eq!(settings(&[&format!("--{name}={value}")], &[]), expected, "--{name}={value}");
        assert_eq!(settings(&[&format!("--{name}"), value], &[]), expected, "--{name} {value}");
        assert_eq!(settings(&[], &[(flag.env, value)]), expected, "{}={value}", flag.env);
    }
    let repair = RepairSettings { legacy: true, ..RepairSettings::default() };
    let legacy = Settings { repair, ..Settings::default() };
    assert_eq!(settings(&["--legacy-node-repair"], &[]), legacy);
    assert_eq!(settings(&[], &[("LEGACY_NODE_REPAIR", "true")]), legacy);
    let without = Settings { pod_metrics: false, ..Settings::default() };
    assert_eq!(settings(&["--disable-pod-metrics"], &[]), without);
    assert_eq!(settings(&[], &[("DISABLE_POD_METRICS", "true")]), without);
    let batching = Batching { by_owner: true, ..Batching::default() };
    let by_owner = Settings { batching, ..Settings::default() };
    assert_eq!(settings(&["--owner-aware-batching"], &[]), by_owner);
    assert_eq!(settings(&[], &[("OWNER_AWARE_BATCHING", "true")]), by_owner);
    let packed = Settings { packing: true, ..Settings::default() };
    assert_eq!(settings(&["--packing"], &[]), packed);
    assert_eq!(settings(&[], &[("PACKING", "true")]), packed);
    let many = Settings { many_to_many: true, ..Settings::default() };
    assert_eq!(settings(&["--many-to-many-consolidation"], &[]), many);
    assert_eq!(settings(&[], &[("MANY_TO_MANY_CONSOLIDATION", "true")]), many);
    assert_eq!(settings(&["--packing=false"], &[("PACKING", "true")]), Settings::default());
}

#[test]
fn the_scheduler_configuration_is_read() {
    let yaml = "podTopologySpread: {defaultConstraints: [{maxSkew: 2, topologyKey: zone, \
                whenUnsatisfiable: DoNotSchedule}]}";
    let Options { settings, warnings, .. } = options(&["--scheduler-config", yaml], &[]).unwrap();
    let spread = settings.default_spread;
    assert_eq!((spread.len(), spread[0].max_skew), (1, 2));
    assert!(warnings.is_empty(), "{warnings:?}");
}

#[test]
fn wrong_values_are_refused_in_one_sentence() {
    for (name, value, problem) in [
        (
            "metrics-port",
            "x",
            "expected a port number from 0 to 65535, where 0 takes any free port",
        ),
        (
            "metrics-port",
            "-1",
            "expected a port number from 0 to 65535, where 0 takes any free port",
        ),
        (
            "health-probe-port",
            "65536",
            "expected a port number from 0 to 65535, where 0 takes any free port",
        ),
        ("dashboard-port", "page", "expected a port number from 1 to 65535, or 0 for no page"),
        ("dashboard-address", "", "expected an IP address such as 127.0.0.1, ::1 or 0.0.0.0"),
        ("kube-client-qps", "0", "expected a number from 1 to 4294967295, or -1 for no limit"),
        ("kube-client-qps", "2.5", "expected a number from 1 to 4294967295, or -1 for no limit"),
        ("kube-client-burst", "0", "expected a number from 1 to 4294967295"),
        ("kube-client-burst", "4294967296", "expected a number from 1 to 4294967295"),
        ("leader-election-name", "", "expected the name of a Lease, not empty"),
        ("log-level", "warn", "expected debug, info or error"),
        ("log-format", "xml", "expected auto, json or text"),
        ("log-output-paths", "", "expected stdout, stderr or file paths, separated by commas"),
        (
            "log-output-paths",
            "stdout,",
            "expected stdout, stderr or file paths, separated by commas",
        ),
        (
            "batch-max-duration",
            "10",
            "expected a duration of 0 or more, such as 500ms, 10s or 1m30s",
        ),
        (
            "batch-idle-duration",
            "-1s",
            "expected a duration of 0 or more, such as 500ms, 10s or 1m30s",
        ),
        ("preference-policy", "respect", "expected Respect or Ignore"),
        ("preference-policy", "", "expected Respect or Ignore"),
        ("min-values-policy", "Best", "expected Strict or BestEffort"),
        (
            "cpu-requests",
            "100m",
            "expected a whole number of millicores, where 0 or less means 1000",
        ),
        ("memory-limit", "1Gi", "expected a whole number of bytes"),
        (
            "feature-gates",
            "NodeRepair",
            "\"NodeRepair\" is not of the form name=true or name=false",
        ),
        ("feature-gates", "NodeRepair=yes", "NodeRepair is \"yes\", expected true or false"),
        ("scaledown-utilization-threshold", "1.5", "expected a number from 0 to 1"),
        ("scaledown-utilization-threshold", "NaN", "expected a number from 0 to 1"),
        ("consolidation-price-improvement-factor", "-0.1", "expected a number from 0 to 1"),
        ("consolidation-savings-threshold", "-1", "expected a number of dollars from 0 to 100000"),
        (
            "consolidation-savings-threshold",
            "100001",
            "expected a number of dollars from 0 to 100000",
        ),
        (
            "consolidation-grace-period",
            "5",
            "expected a duration such as 30m or 1h30m, or Never to switch it off",
        ),
        (
            "scheduler-config",
            "podTopologySpread: {defaultConstraints: [{maxSkew: 0}]}",
            "podTopologySpread.defaultConstraints[0].maxSkew must be greater than 0",
        ),
    ] {
        let flag = flags::all().find(|flag| flag.name == name).unwrap();
        assert_eq!(
            options(&[&format!("--{name}={value}")], &[]),
            Err(format!("invalid value {value:?} for --{name}: {problem}"))
        );
        let by_variable = options(&[], &[(flag.env, value)]);
        if value.is_empty() && flag.kind != Kind::Text {
            assert!(by_variable.is_ok(), "{}", flag.env);
        } else {
            let origin = format!("the environment variable {} (--{name})", flag.env);
            let sentence = format!("invalid value {value:?} for {origin}: {problem}");
            assert_eq!(by_variable, Err(sentence));
        }
    }
}

#[test]
fn numbers_and_durations_take_an_empty_variable_for_unset() {
    for flag in flags::all().filter(|flag| flag.kind != Kind::Text) {
        assert_eq!(settings(&[], &[(flag.env, "")]), Settings::default(), "{}", flag.env);
    }
}

#[test]
fn what_kerf_does_not_have_is_accepted_with_a_warning() {
    let warnings = |arguments: &[&str], variables: &[(&str, &str)]| {
        let options = options(arguments, variables).unwrap();
        assert_eq!(options.settings.gates, FeatureGates::default());
        options.warnings
    };
    let gates = "Sorcery=true";
    assert_eq!(
        warnings(
            &["--enable-profiling", "--ignore-dra-requests=false"],
            &[("FEATURE_GATES", gates)]
        ),
        [
            "feature gate Sorcery: unknown to Kerf",
            "--enable-profiling: Kerf has no profiling endpoints",
            "--ignore-dra-requests=false: Kerf does not have dynamic resource allocation yet",
        ]
    );
    let none: [&str; 0] = [];
    let repair = ("LEGACY_NODE_REPAIR", "true");
    let accepted = ["--disable-controller-warmup=false", "--legacy-node-repair"];
    assert_eq!(warnings(&accepted[..1], &[("MEMORY_LIMIT", "1"), repair]), none);
    assert_eq!(warnings(&accepted, &[]), none);
}

#[test]
fn unknown_flags_and_commands_are_refused_in_one_sentence() {
    assert_eq!(
        options(&["--metric-port=1"], &[]).unwrap_err(),
        "unknown argument --metric-port (did you mean --metrics-port?); see kerf run --help for all flags"
    );
    assert_eq!(
        options(&["--kubeconfig=/x"], &[]).unwrap_err(),
        "unknown argument --kubeconfig (set the environment variable KUBECONFIG); \
         see kerf run --help for all flags"
    );
    assert_eq!(
        options(&["surplus"], &[]).unwrap_err(),
        "unknown argument surplus; see kerf run --help for all flags"
    );
    let refused = parse(["kerf", "rum"].map(OsString::from), |_| None).unwrap_err();
    assert_eq!(refused.to_string(), "unknown command rum (did you mean run?); see kerf --help");
    assert!(!options(&["--metrics-port"], &[]).unwrap_err().contains('\n'));
}

#[test]
fn flags_and_variables_have_names_of_their_own() {
    command().debug_assert();
    let names: BTreeSet<_> = flags::all().map(|flag| flag.name).collect();
    let variables: BTreeSet<_> = flags::all().map(|flag| flag.env).collect();
    assert_eq!((names.len(), variables.len()), (flags::all().count(), flags::all().count()));
}
