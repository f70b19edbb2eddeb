//! The command lines of `kerf plan`, `kerf explain` and `kerf snapshot`.

use std::{ffi::OsString, path::PathBuf};

use clap::{Arg, ArgAction, ArgMatches, value_parser};
use jiff::Timestamp;
use kerf_controllers::Settings;
use kerf_provider::Flag;
use kerf_runtime::client::Target;

use super::{InvalidValue, Refused, argument, cluster, flags, options::Values};
use crate::providers::{self, Chosen};

/// The arguments of `kerf plan`.
#[derive(Debug, PartialEq)]
pub(crate) struct PlanOptions {
    pub(crate) sources: Sources,
    /// Show only pods of this namespace.
    pub(crate) namespace: Option<String>,
    pub(crate) output: Output,
    pub(crate) fail_on_unschedulable: bool,
    /// Plan which nodes to disrupt, instead of which to launch.
    pub(crate) disruption: bool,
}

/// What a decision is made from: objects, a time, and settings.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Sources {
    /// In the order given; none means the cluster. `-` is standard input.
    pub(crate) files: Vec<PathBuf>,
    pub(crate) target: Target,
    /// The time to judge at, if it is not to be found out.
    pub(crate) now: Option<Timestamp>,
    /// The part of the operator's settings that decisions depend on.
    pub(crate) settings: Settings,
    pub(crate) provider: Chosen,
    pub(crate) warnings: Vec<String>,
}

/// How an answer is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Output {
    pub(crate) format: Format,
    /// With the requirements behind a refusal.
    pub(crate) verbose: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Table,
    Json,
    Yaml,
}

/// The arguments of `kerf snapshot`.
#[derive(Debug, PartialEq)]
pub(crate) struct SnapshotOptions {
    pub(crate) target: Target,
    /// Standard output if there is none.
    pub(crate) output_file: Option<PathBuf>,
}

/// The flags of the operator that decisions depend on.
const DECIDING: [&Flag; 11] = [
    &flags::PREFERENCE_POLICY,
    &flags::MIN_VALUES_POLICY,
    &flags::PACKING,
    &flags::FEATURE_GATES,
    &flags::SCHEDULER_CONFIG,
    &flags::PROVIDER,
    &flags::UTILIZATION_THRESHOLD,
    &flags::PRICE_IMPROVEMENT_FACTOR,
    &flags::SAVINGS_THRESHOLD,
    &flags::GRACE_PERIOD,
    &flags::MANY_TO_MANY,
];

pub(super) fn deciding_flags() -> impl Iterator<Item = &'static Flag> {
    DECIDING.into_iter().chain(providers::flags())
}

pub(super) fn plan_command() -> clap::Command {
    clap::Command::new("plan")
        .about("Show which nodes Kerf would launch for pending pods, or why it would not")
        .long_about(
            "Show which nodes Kerf would launch for pending pods, which pods would go to existing nodes, and why \
             the other pods have no place.\n\n\
             The objects come from files. Without -f they come from the cluster that KUBECONFIG names; kerf plan \
             writes nothing to it. Files can be manifests, dumps (kubectl get ... -o json) and snapshots (kerf \
             snapshot). Kinds that plans do not depend on are ignored. Of two objects with the same name the \
             later one counts, so that you can try another NodePool on a snapshot.\n\n\
             A pod is to be placed if kube-scheduler found no place for it, if it is pending and kube-scheduler \
             has not looked at it yet, or if its node is being removed. Deployments, ReplicaSets, \
             StatefulSets and Jobs that have no pods count with the pods they ask for. A NodePool that no \
             operator has looked at counts as ready if it is valid.",
        )
        .after_long_help(
            "Exit codes:\n  \
             0  there is a plan, whether all pods have a place or not\n  \
             1  the cluster cannot be read\n  \
             2  the input or the command line is wrong\n  \
             3  pods have no place, and --fail-on-unschedulable is given\n\n\
             Examples:\n  \
             kerf plan -f nodepool.yaml -f deployment.yaml\n      \
             what a new Deployment would cost\n  \
             kerf plan\n      \
             what the operator would do about the pods that are pending now\n  \
             kerf snapshot > cluster.json && kerf plan -f cluster.json -f changed-nodepool.yaml\n      \
             what would be different with another NodePool\n  \
             kubectl get pods,nodes,nodepools,nodeclaims,daemonsets -A -o json | kerf plan -f -\n      \
             the same from a dump",
        )
        .args_override_self(true)
        .args(sources())
        .args(cluster::arguments())
        .arg(cluster::namespace("Show only pods of this namespace; the plan is made for all of them"))
        .arg(
            Arg::new("disruption")
                .long("disruption")
                .action(ArgAction::SetTrue)
                .help("Show which nodes Kerf would remove or replace next, and why not more"),
        )
        .arg(
            Arg::new("fail-on-unschedulable")
                .long("fail-on-unschedulable")
                .action(ArgAction::SetTrue)
                .help("End with exit code 3 if pods have no place"),
        )
        .args(deciding_flags().map(argument))
}

/// Where objects come from, and how the answer is printed.
fn sources() -> [Arg; 4] {
    let [files, now] = places();
    let output = super::output(&["table", "json", "yaml"], "How to print the answer");
    let verbose = Arg::new("verbose")
        .short('v')
        .long("verbose")
        .action(ArgAction::SetTrue)
        .help("Print the requirements and requests behind each refusal as well");
    [files, output, verbose, now]
}

/// Files, and the time that they are judged at.
pub(super) fn places() -> [Arg; 2] {
    [
        Arg::new("filename")
            .short('f')
            .long("filename")
            .value_name("PATH")
            .action(ArgAction::Append)
            .value_parser(value_parser!(PathBuf))
            .help("A file or a directory of files, YAML or JSON; - for standard input. May be repeated"),
        Arg::new("now")
            .long("now")
            .value_name("TIME")
            .help("The time to judge at, such as 2026-01-05T12:00:00Z [default: the latest time in the files; for a cluster the clock]"),
    ]
}

pub(super) fn explain_command() -> clap::Command {
    clap::Command::new("explain")
        .about("Show why a node stays or would go, or why a pod is pending or where it would go")
        .long_about(
            "Show the answer in one sentence and then what it rests on. For a node: whether it stays or would go, every \
             check as a fact, where its pods would go, and the prices. For a NodePool: its budgets, and one line for each \
             of its nodes. For a pod: why it is pending, where it would go, or whether it holds its node.\n\n\
             The objects come from files. Without -f they come from the cluster that KUBECONFIG names; kerf explain \
             writes nothing to it. It decides with the same code as the operator.\n\n\
             Budgets, grace periods and expiry depend on the time. A cluster is judged by the clock. Files are judged \
             at the time when they were taken: the latest time in them.",
        )
        .after_long_help(
            "Examples:\n  \
             kerf explain node/worker-1\n  \
             kerf explain np/general -o json\n  \
             kerf explain pod/web-0 -n shop\n  \
             kerf snapshot > cluster.json && kerf explain node/worker-1 -f cluster.json\n  \
             kerf explain nodepool/general -f cluster.json --now=2026-01-05T23:00:00Z\n      \
             at another time, such as within the window of a budget",
        )
        .args_override_self(true)
        .arg(
            Arg::new("what")
                .value_name("KIND/NAME")
                .required(true)
                .num_args(1..=2)
                .help("node/NAME (of a Node or its NodeClaim), nodepool/NAME or pod/NAME; also no, np and po, and KIND NAME"),
        )
        .args(sources())
        .args(cluster::arguments())
        .arg(cluster::namespace("The namespace of the pod [default: that of the context, else default]"))
        .args(deciding_flags().map(argument))
}

pub(super) fn snapshot_command() -> clap::Command {
    clap::Command::new("snapshot")
        .about("Save the objects of a live cluster that plans depend on")
        .long_about(
            "Save the objects that plans depend on, from the cluster that KUBECONFIG names, as input of kerf plan.\n\n\
             Only the fields that decisions use are saved, names and labels among them. Images, commands, arguments, \
             environments and annotations of other projects are not saved. Secrets and ConfigMaps are not read.",
        )
        .after_long_help("Example:\n  kerf snapshot --output-file=cluster.json && kerf plan -f cluster.json")
        .args_override_self(true)
        .args(cluster::arguments())
        .arg(
            Arg::new("output-file")
                .long("output-file")
                .value_name("PATH")
                .value_parser(value_parser!(PathBuf))
                .help("The file to write; it replaces an older one when it is complete [default: standard output]"),
        )
}

impl PlanOptions {
    pub(super) fn read(
        matches: &ArgMatches,
        variable: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Self, Refused> {
        let (namespace, disruption) =
            (cluster::read_namespace(matches), matches.get_flag("disruption"));
        if namespace.is_some() && disruption {
            let why = "--namespace cannot be used with --disruption: nodes have no namespace";
            return Err(Refused::Usage(why.to_owned()));
        }
        Ok(Self {
            sources: Sources::read(matches, variable)?,
            namespace,
            output: Output::read(matches),
            fail_on_unschedulable: matches.get_flag("fail-on-unschedulable"),
            disruption,
        })
    }
}

/// The arguments of `kerf explain`.
#[derive(Debug, PartialEq)]
pub(crate) struct ExplainOptions {
    pub(crate) what: Explained,
    pub(crate) sources: Sources,
    pub(crate) output: Output,
}

#[derive(Debug, PartialEq)]
pub(crate) enum Explained {
    Node(String),
    Pool(String),
    /// Without a namespace it is in that of the context.
    Pod {
        namespace: Option<String>,
        name: String,
    },
}

impl ExplainOptions {
    pub(super) fn read(
        matches: &ArgMatches,
        variable: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Self, Refused> {
        let words: Vec<_> = matches.get_many::<String>("what").into_iter().flatten().collect();
        let what = match &words[..] {
            [both] => both.split_once('/'),
            [kind, name] if !name.contains('/') => Some((kind.as_str(), name.as_str())),
            _ => None,
        };
        let what = what.filter(|(_, name)| !name.is_empty());
        let what = what.and_then(|(kind, name)| Explained::named(kind, name.to_owned(), matches));
        let what = what.ok_or_else(|| {
            let words = words.iter().map(|word| word.as_str()).collect::<Vec<_>>().join(" ");
            let expected = "expected node/NAME, nodepool/NAME or pod/NAME";
            Refused::Usage(format!("cannot explain {words:?}: {expected}"))
        })?;
        let sources = Sources::read(matches, variable)?;
        Ok(Self { what, sources, output: Output::read(matches) })
    }
}

impl Explained {
    /// By the names that kubectl has for the kinds.
    fn named(kind: &str, name: String, matches: &ArgMatches) -> Option<Self> {
        match kind {
            "node" | "nodes" | "no" | "nodeclaim" | "nodeclaims" => Some(Self::Node(name)),
            "nodepool" | "nodepools" | "np" => Some(Self::Pool(name)),
            "pod" | "pods" | "po" => {
                Some(Self::Pod { namespace: cluster::read_namespace(matches), name })
            }
            _ => None,
        }
    }
}

impl Sources {
    pub(super) fn read(
        matches: &ArgMatches,
        variable: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Self, Refused> {
        let (settings, provider, warnings) = deciding(matches, variable)?;
        let (files, target) = (files(matches), cluster::read_target(matches));
        Ok(Self { files, target, now: now(matches)?, settings, provider, warnings })
    }
}

impl Output {
    fn read(matches: &ArgMatches) -> Self {
        Self { format: format(matches), verbose: matches.get_flag("verbose") }
    }
}

/// The part of the operator's settings that decisions depend on, the provider, and warnings.
fn deciding(
    matches: &ArgMatches,
    variable: impl Fn(&str) -> Option<OsString>,
) -> Result<(Settings, Chosen, Vec<String>), InvalidValue> {
    let values = Values { matches, variable };
    let (gates, warnings) = values.gates()?;
    let settings = Settings {
        preference_policy: values.preference_policy()?,
        min_values_policy: values.min_values_policy()?,
        packing: values.bool(&flags::PACKING)?,
        many_to_many: values.bool(&flags::MANY_TO_MANY)?,
        gates,
        default_spread: values.default_spread()?,
        churn: values.churn()?,
        ..Settings::default()
    };
    Ok((settings, values.chosen()?, warnings))
}

fn files(matches: &ArgMatches) -> Vec<PathBuf> {
    matches.get_many::<PathBuf>("filename").into_iter().flatten().cloned().collect()
}

fn now(matches: &ArgMatches) -> Result<Option<Timestamp>, Refused> {
    let Some(text) = matches.get_one::<String>("now") else { return Ok(None) };
    let now = text.parse().map_err(|_| {
        let expected = "expected a time such as 2026-01-05T12:00:00Z";
        Refused::Usage(format!("invalid value {text:?} for --now: {expected}"))
    })?;
    Ok(Some(now))
}

pub(super) fn format(matches: &ArgMatches) -> Format {
    match matches.get_one::<String>("output").map(String::as_str) {
        Some("json") => Format::Json,
        Some("yaml") => Format::Yaml,
        _ => Format::Table,
    }
}

impl SnapshotOptions {
    pub(super) fn read(matches: &ArgMatches) -> Self {
        let target = cluster::read_target(matches);
        Self { target, output_file: matches.get_one::<PathBuf>("output-file").cloned() }
    }
}
