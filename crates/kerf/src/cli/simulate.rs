//! The command line of `kerf simulate`.

use std::{ffi::OsString, path::PathBuf};

use clap::{Arg, ArgAction, ArgMatches, value_parser};
use kerf_api::GoDuration;

use super::{Format, Refused, argument, flags, options::Values};
use crate::providers::{self, Chosen};

/// The arguments of `kerf simulate`.
#[derive(Debug, PartialEq)]
pub(crate) struct SimulateOptions {
    pub(crate) scenario: PathBuf,
    /// A policy to run, or the one that sweeps start from.
    pub(crate) policy: Option<String>,
    /// Names of policies, or files with some.
    pub(crate) compare: Vec<String>,
    pub(crate) sweeps: Vec<String>,
    pub(crate) seed: Option<u64>,
    /// How many of them, from `seed` on.
    pub(crate) seeds: u32,
    pub(crate) length: Option<GoDuration>,
    pub(crate) instance_types_file: Option<PathBuf>,
    /// Print the instance types of the nodes instead of running anything.
    pub(crate) print_instance_types: bool,
    /// As it is written behind `--load`.
    pub(crate) load: Option<String>,
    /// The one that is named, or all of them: the NodeClasses of the pools then say which one it is.
    pub(crate) providers: Vec<Chosen>,
    pub(crate) format: Format,
    pub(crate) html: Option<PathBuf>,
}

pub(super) fn command() -> clap::Command {
    clap::Command::new("simulate")
        .about("Compare policies on a scenario, or on a snapshot of your cluster, before you set them")
        .long_about(
            "Run the operator on a simulated cluster under one or several policies, and report what each policy costs \
             and spares: money, evictions, short-lived nodes, time that pods waited.\n\n\
             The operator is the one of kerf run. The cluster is in this process and its time is virtual: a day takes \
             seconds. The same scenario and seed give the same report.\n\n\
             The input is a scenario or a snapshot. A scenario is a YAML file: docs/simulate.md has the format, and \
             examples/simulate has examples. A snapshot of a real cluster comes from kerf snapshot; its pods become \
             workloads. Instance types and prices come from the catalogue of the provider whose NodeClasses the pools \
             have, or from the nodes, or from a file (--instance-types).\n\n\
             Policies: when-empty, parity, balanced, utilization-threshold, price-improvement-factor, \
             savings-threshold, grace-period, kerf-defaults, all-controls, as-is (your pools as they are), and those of \
             the scenario.",
        )
        .after_long_help(
            "Examples:\n  \
             kerf simulate examples/simulate/off-peak-cascade.yaml --compare=all\n      \
             every policy on the cascade of aws#7146\n  \
             kerf simulate scenario.yaml --compare=parity,kerf-defaults --html=report.html\n      \
             two policies, with plots\n  \
             kerf simulate scenario.yaml --sweep=consolidationSavingsThreshold=0,0.005,0.01,0.02\n      \
             one control at several values\n  \
             kerf simulate scenario.yaml --compare=all --seeds=5\n      \
             how much of the result is chance\n  \
             kerf snapshot > cluster.json && kerf simulate cluster.json --compare=all --load=daily:0.4..1.0\n      \
             your cluster, as it is and under every policy, with fewer pods at night\n  \
             kerf simulate cluster.json --print-instance-types > types.json\n      \
             the instance types of your nodes, to put your own prices in; then --instance-types=types.json",
        )
        .args_override_self(true)
        .arg(
            Arg::new("scenario")
                .value_name("SCENARIO")
                .required(true)
                .value_parser(value_parser!(PathBuf))
                .help("A scenario file, or a snapshot of a cluster"),
        )
        .arg(
            Arg::new("policy")
                .long("policy")
                .value_name("NAME")
                .help(format!(
                    "The policy to run; --sweep starts from it [default: {}]",
                    kerf_simulation::DEFAULTS
                )),
        )
        .arg(
            Arg::new("compare")
                .long("compare")
                .value_name("NAMES")
                .action(ArgAction::Append)
                .value_delimiter(',')
                .help("Policies to compare: names, all, or files that list some (policies: [...]). May be repeated"),
        )
        .arg(
            Arg::new("sweep")
                .long("sweep")
                .value_name("FIELD=V1,V2,...")
                .action(ArgAction::Append)
                .help("Run the policy with each of these values of a NodePool's disruption field or of a flag. May be repeated"),
        )
        .arg(
            Arg::new("seed")
                .long("seed")
                .value_name("NUMBER")
                .value_parser(whole_number)
                .help("Seed of the random numbers [default: the scenario's]"),
        )
        .arg(
            Arg::new("seeds")
                .long("seeds")
                .value_name("COUNT")
                .default_value("1")
                .value_parser(value_parser!(u32).range(1..=1000))
                .help("Run each policy with this many seeds, from --seed on, and report the means"),
        )
        .arg(
            Arg::new("length")
                .long("length")
                .value_name("DURATION")
                .help("How much time to simulate, such as 72h [default: the scenario's]"),
        )
        .arg(
            Arg::new("load")
                .long("load")
                .value_name("LOAD")
                .help("How the numbers of pods change: daily:0.4..1.0 multiplies them by a factor that is lowest at 02:00 and highest at 14:00 UTC; trace:FILE has them as recorded [default: the scenario's; constant for a snapshot]"),
        )
        .arg(
            Arg::new("instance-types")
                .long("instance-types")
                .value_name("PATH")
                .value_parser(value_parser!(PathBuf))
                .help("Instance types and their prices for all pools, in the format of --print-instance-types [default: the scenario's, else the provider's, else those of the nodes]"),
        )
        .arg(
            Arg::new("print-instance-types")
                .long("print-instance-types")
                .action(ArgAction::SetTrue)
                .help("Print the instance types of the snapshot's nodes with the prices that are used, ready to edit, and end"),
        )
        .arg(super::output(&["table", "json", "yaml"], "How to print the report"))
        .arg(super::html())
        .args(provider_arguments())
}

/// For commands that take the provider from the NodeClasses of the pools.
pub(super) fn provider_arguments() -> impl Iterator<Item = Arg> {
    let provider = argument(&flags::PROVIDER).help(format!(
        "Provider of the nodes: {}\n[env: {}] [default: the one of the pools' NodeClasses, else {}]",
        providers::names(),
        flags::PROVIDER.env,
        providers::DEFAULT
    ));
    std::iter::once(provider).chain(providers::flags().map(argument))
}

/// The one that is named, or all of them.
pub(super) fn read_providers(
    matches: &ArgMatches,
    variable: impl Fn(&str) -> Option<OsString>,
) -> Result<Vec<Chosen>, Refused> {
    let values = Values { matches, variable };
    if values.names_a_provider() {
        return Ok(vec![values.chosen()?]);
    }
    let all = providers::all().into_iter().map(|provider| values.with_flags(provider));
    Ok(all.collect::<Result<_, _>>()?)
}

/// The value of `--instance-types`, or of the flag that it had before.
pub(super) fn read_instance_types(matches: &ArgMatches) -> Option<PathBuf> {
    let older_name = matches.get_one::<String>("instance-types-file-path");
    let older_name = older_name.filter(|path| !path.is_empty()).map(PathBuf::from);
    matches.get_one::<PathBuf>("instance-types").cloned().or(older_name)
}

pub(super) fn whole_number(text: &str) -> Result<u64, &'static str> {
    text.parse().map_err(|_| "expected a whole number, 0 or more")
}

impl SimulateOptions {
    pub(super) fn read(
        matches: &ArgMatches,
        variable: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Self, Refused> {
        let path = |name: &str| matches.get_one::<PathBuf>(name).cloned();
        let texts = |name: &str| -> Vec<String> {
            matches.get_many::<String>(name).into_iter().flatten().cloned().collect()
        };
        Ok(Self {
            scenario: matches.get_one::<PathBuf>("scenario").cloned().unwrap_or_default(),
            policy: matches.get_one::<String>("policy").cloned(),
            compare: texts("compare"),
            sweeps: texts("sweep"),
            seed: matches.get_one("seed").copied(),
            seeds: matches.get_one("seeds").copied().unwrap_or(1),
            length: super::length(matches)?,
            instance_types_file: read_instance_types(matches),
            print_instance_types: matches.get_flag("print-instance-types"),
            load: matches.get_one::<String>("load").cloned(),
            providers: read_providers(matches, variable)?,
            format: match matches.get_one::<String>("output").map(String::as_str) {
                Some("json") => Format::Json,
                Some("yaml") => Format::Yaml,
                _ => Format::Table,
            },
            html: path("html"),
        })
    }
}
