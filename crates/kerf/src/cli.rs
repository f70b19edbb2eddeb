//! The command line.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::{
    Arg, ArgMatches,
    builder::PossibleValuesParser,
    error::{ContextKind, ContextValue, ErrorKind},
};
use clap_complete::Shell;
#[cfg(feature = "simulate")]
use kerf_api::GoDuration;
use kerf_controllers::settings::{GATES, Gate};
use kerf_provider::{Flag, FlagKind as Kind, Provider};

use crate::exit;

#[cfg(feature = "aws")]
mod aws;
mod cluster;
#[cfg(feature = "simulate")]
mod demo;
pub(crate) mod flags;
mod options;
mod plan;
#[cfg(feature = "simulate")]
mod shadow;
#[cfg(feature = "simulate")]
mod simulate;
#[cfg(test)]
mod tests;
mod top;

#[cfg(feature = "aws")]
pub(crate) use aws::{AwsCommand, PolicyOptions};
#[cfg(feature = "simulate")]
pub(crate) use demo::{DemoOptions, Story};
use options::Values;
pub(crate) use options::{InvalidValue, Options};
pub(crate) use plan::{
    ExplainOptions, Explained, Format, Output, PlanOptions, SnapshotOptions, Sources,
};
#[cfg(feature = "simulate")]
pub(crate) use shadow::{RecordOptions, ReplayOptions, ReportOptions, ShadowOptions};
#[cfg(feature = "simulate")]
pub(crate) use simulate::SimulateOptions;
pub(crate) use top::TopOptions;

#[derive(Debug)]
pub(crate) enum Command {
    Run(Box<Options>),
    Plan(Box<PlanOptions>),
    Explain(Box<ExplainOptions>),
    Snapshot(SnapshotOptions),
    Top(Box<TopOptions>),
    #[cfg(feature = "simulate")]
    Demo(DemoOptions),
    #[cfg(feature = "simulate")]
    Simulate(Box<SimulateOptions>),
    #[cfg(feature = "simulate")]
    Shadow(Box<ShadowOptions>),
    Crds(&'static dyn Provider),
    #[cfg(feature = "aws")]
    Aws(AwsCommand),
    Version(Format),
    Completions(Shell),
    Man(PathBuf),
}

/// Why there is nothing to do.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refused {
    #[error(transparent)]
    Invalid(#[from] InvalidValue),
    #[error("{0}")]
    Usage(String),
    /// Help or version, which were asked for.
    #[error("{0}")]
    Answered(clap::Error),
}

/// `--output`, of which the first format is the default.
fn output(formats: &'static [&'static str], help: &'static str) -> Arg {
    Arg::new("output")
        .short('o')
        .long("output")
        .value_name("FORMAT")
        .default_value(formats[0])
        .value_parser(PossibleValuesParser::new(formats))
        .help(help)
}

/// Where the report goes as a page.
#[cfg(feature = "simulate")]
fn html() -> Arg {
    Arg::new("html")
        .long("html")
        .value_name("PATH")
        .value_parser(clap::value_parser!(PathBuf))
        .help("Also write the report with plots to this file; it needs nothing but a browser")
}

/// Where pictures of the terminal are written as SVG. For our own documents, so that nobody else has to read about it.
fn pictures() -> Arg {
    Arg::new("pictures")
        .long("pictures")
        .value_name("DIRECTORY")
        .value_parser(clap::value_parser!(PathBuf))
        .hide(true)
}

/// The revision that this binary was built from, where the build says it.
pub(crate) const COMMIT: Option<&str> = option_env!("KERF_COMMIT");
/// That of the release, where the build says it.
pub(crate) const VERSION: &str = match option_env!("KERF_VERSION") {
    Some(version) => version,
    None => env!("CARGO_PKG_VERSION"),
};
/// What kubectl looks for when it is asked for `kubectl kerf`.
const PLUGIN: &str = "kubectl-kerf";

/// Reads the command line, and for `run`, `plan`, `explain` and `crds` the environment.
pub(crate) fn parse(
    arguments: impl IntoIterator<Item = OsString>,
    variable: impl Fn(&str) -> Option<OsString>,
) -> Result<Command, Refused> {
    let arguments: Vec<_> = arguments.into_iter().map(with_two_dashes).collect();
    let subcommand = arguments.get(1).and_then(|name| name.to_str()).unwrap_or_default();
    let help = if subcommand.starts_with('-') {
        "kerf --help".to_owned()
    } else {
        format!("kerf {subcommand} --help for all flags")
    };
    let program = arguments.first().map(|path| Path::new(path).file_name().unwrap_or_default());
    let mut command = command();
    if program.is_some_and(|program| program == PLUGIN) {
        command = command.bin_name("kubectl kerf");
    }
    let matches = command.try_get_matches_from(arguments);
    let matches = matches.map_err(|error| Refused::from_clap(error, &help))?;
    match matches.subcommand() {
        Some(("run", flags)) => Ok(Command::Run(Box::new(Options::read(flags, variable)?))),
        Some(("plan", flags)) => Ok(Command::Plan(Box::new(PlanOptions::read(flags, variable)?))),
        Some(("explain", flags)) => {
            Ok(Command::Explain(Box::new(ExplainOptions::read(flags, variable)?)))
        }
        Some(("snapshot", flags)) => Ok(Command::Snapshot(SnapshotOptions::read(flags))),
        Some(("top", flags)) => Ok(Command::Top(Box::new(TopOptions::read(flags, variable)?))),
        #[cfg(feature = "simulate")]
        Some(("simulate", flags)) => {
            Ok(Command::Simulate(Box::new(SimulateOptions::read(flags, variable)?)))
        }
        #[cfg(feature = "simulate")]
        Some(("shadow", flags)) => {
            Ok(Command::Shadow(Box::new(ShadowOptions::read(flags, variable)?)))
        }
        #[cfg(feature = "simulate")]
        Some(("demo", flags)) => Ok(Command::Demo(DemoOptions::read(flags)?)),
        #[cfg(feature = "aws")]
        Some(("aws", commands)) => Ok(Command::Aws(AwsCommand::read(commands)?)),
        Some(("version", flags)) => Ok(Command::Version(plan::format(flags))),
        Some(("completions", flags)) => match flags.get_one("shell") {
            Some(shell) => Ok(Command::Completions(*shell)),
            None => Err(Refused::Usage("a shell is missing; see kerf completions --help".into())),
        },
        Some(("man", flags)) => {
            Ok(Command::Man(flags.get_one("directory").cloned().unwrap_or_default()))
        }
        Some((_, flags)) => Ok(Command::Crds(Values { matches: flags, variable }.provider()?)),
        None => Err(Refused::Usage("a command is missing; see kerf --help".to_owned())),
    }
}

impl Refused {
    pub(crate) fn report(self) -> ExitCode {
        match self {
            Self::Answered(text) if !text.use_stderr() => {
                let _ = text.print();
                ExitCode::SUCCESS
            }
            Self::Answered(text) => {
                let _ = text.print();
                exit::WRONG_INPUT.into()
            }
            error => {
                eprintln!("kerf: {error}");
                exit::WRONG_INPUT.into()
            }
        }
    }
}

pub(crate) fn command() -> clap::Command {
    let version = match COMMIT {
        Some(commit) => format!("{VERSION} ({commit})"),
        None => VERSION.to_owned(),
    };
    let kerf = clap::Command::new("kerf")
        .about("A node autoscaler for Kubernetes that keeps churn low")
        .version(version)
        .subcommand_required(true)
        .arg_required_else_help(true)
        .max_term_width(110)
        .after_help(examples())
        .subcommand(run_command())
        .subcommand(plan::plan_command())
        .subcommand(plan::explain_command())
        .subcommand(plan::snapshot_command())
        .subcommand(top::command());
    #[cfg(feature = "simulate")]
    let kerf = kerf
        .subcommand(simulate::command())
        .subcommand(shadow::command())
        .subcommand(demo::command());
    #[cfg(feature = "aws")]
    let kerf = kerf.subcommand(aws::command());
    kerf.subcommand(
        clap::Command::new("crds")
            .about("Print the CustomResourceDefinitions as YAML")
            .long_about(
                "Print the CustomResourceDefinitions as YAML: NodePool and NodeClaim, and the NodeClasses of the provider.",
            )
            .after_help("Example:\n  kerf crds | kubectl apply -f -")
            .args_override_self(true)
            .arg(argument(&flags::PROVIDER)),
    )
    .subcommands(of_the_binary())
}

/// What a binary says about itself.
fn of_the_binary() -> [clap::Command; 3] {
    [
        clap::Command::new("version")
            .about("Print version, commit, build date, features and target of this binary")
            .arg(output(&["table", "json", "yaml"], "How to print it")),
        clap::Command::new("completions")
            .about("Print completions for a shell")
            .after_help("Example:\n  source <(kerf completions bash)")
            .arg(
                Arg::new("shell")
                    .value_name("SHELL")
                    .required(true)
                    .value_parser(clap::value_parser!(Shell)),
            ),
        clap::Command::new("man").about("Write manual pages into a directory").arg(
            Arg::new("directory")
                .value_name("DIRECTORY")
                .required(true)
                .value_parser(clap::value_parser!(PathBuf)),
        ),
    ]
}

fn examples() -> String {
    let simulate = cfg!(feature = "simulate");
    let examples = [
        (simulate, "kerf demo                          watch the operator work, without a cluster"),
        (true, "kerf crds | kubectl apply -f -     install the custom resources"),
        (true, "kerf run --help                    the flags of the operator"),
        (true, "kerf run                           run the operator on the cluster of KUBECONFIG"),
        (true, "kerf plan -f my.yaml               what the operator would launch"),
        (true, "kerf explain node/NAME             why a node stays, or what would become of it"),
        (true, "kerf explain pod/NAME -n shop      why a pod is pending, or where it would go"),
        (
            true,
            "kerf top                           the nodes of a cluster, live, and why each stays",
        ),
        (simulate, "kerf simulate scenario.yaml        what a policy would cost and spare"),
        (
            simulate,
            "kerf shadow --record DIR           record a cluster that another autoscaler runs",
        ),
    ];
    let lines = examples.into_iter().filter_map(|(here, line)| here.then_some(line));
    format!("Examples:\n  {}", lines.collect::<Vec<_>>().join("\n  "))
}

fn run_command() -> clap::Command {
    clap::Command::new("run")
        .about("Run the operator")
        .long_about(
            "Run the operator.\n\n\
             It connects to the cluster that KUBECONFIG names. Without KUBECONFIG it connects to the cluster of its \
             pod, or outside of a pod to that of $HOME/.kube/config. Every flag has an environment variable; the flag \
             wins over the variable. A value that is not allowed stops the operator at once.",
        )
        .after_long_help(
            "Examples:\n  \
             kerf run --disable-leader-election --log-level=debug\n      \
             on your machine, against the current context of your kubeconfig\n  \
             kerf run --feature-gates=NodeRepair=true,SpotToSpotConsolidation=true\n      \
             with two features that are off by default\n  \
             kerf run --scaledown-utilization-threshold=1 --consolidation-savings-threshold=0\n      \
             consolidate exactly as Karpenter does",
        )
        .args_override_self(true)
        .args(flags::all().map(argument))
}

fn argument(flag: &'static Flag) -> Arg {
    let default = if flag.default.is_empty() { "none" } else { flag.default };
    let help = format!("{}\n[env: {}] [default: {default}]", flag.help, flag.env);
    let arg = Arg::new(flag.name)
        .long(flag.name)
        .value_name(flag.value)
        .default_value(flag.default)
        .hide_default_value(true)
        .help_heading(flag.heading);
    let arg = if flag.name == flags::FEATURE_GATES.name {
        arg.long_help(format!("{help}\n{}", gates())).help(help)
    } else {
        arg.help(help)
    };
    match flag.kind {
        // As Go has it: a bare flag is true, and a value needs the equals sign.
        Kind::Bool => arg.num_args(0..=1).require_equals(true).default_missing_value("true"),
        // `--memory-limit -1` is a flag with a value.
        Kind::Text | Kind::Number => arg.allow_hyphen_values(true),
    }
}

fn gates() -> String {
    let line = |gate: Gate| format!("- {} ({}): {}", gate.name, gate.stage.as_str(), gate.help);
    GATES.map(line).join("\n")
}

/// Go's flags may be written with one dash, and deployments do so.
fn with_two_dashes(argument: OsString) -> OsString {
    let long = argument.to_str().and_then(|text| text.strip_prefix('-')).filter(|rest| {
        let name = rest.split_once('=').map_or(*rest, |(name, _)| name);
        name == "help" || flags::all().any(|flag| flag.name == name)
    });
    match long {
        Some(rest) => format!("--{rest}").into(),
        None => argument,
    }
}

impl Refused {
    /// Clap explains itself in paragraphs; a log has room for a sentence.
    fn from_clap(error: clap::Error, help: &str) -> Self {
        let context = |kind| match error.get(kind) {
            Some(ContextValue::String(text)) => Some(text.as_str()),
            Some(ContextValue::Strings(texts)) => texts.first().map(String::as_str),
            _ => None,
        };
        let hint =
            |kind| context(kind).map(|name| format!(" (did you mean {name}?)")).unwrap_or_default();
        match error.kind() {
            ErrorKind::DisplayHelp
            | ErrorKind::DisplayVersion
            | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => Self::Answered(error),
            ErrorKind::UnknownArgument => {
                let argument = context(ContextKind::InvalidArg).unwrap_or_default();
                let hint = match argument {
                    // kubectl has it, and so have most operators.
                    "--kubeconfig" => " (set the environment variable KUBECONFIG)".into(),
                    "-n" | "--namespace" if help.starts_with("kerf snapshot") => {
                        " (a snapshot has all namespaces, because their pods share the nodes)"
                            .into()
                    }
                    _ => hint(ContextKind::SuggestedArg),
                };
                Self::Usage(format!("unknown argument {argument}{hint}; see {help}"))
            }
            ErrorKind::MissingRequiredArgument => {
                let missing = context(ContextKind::InvalidArg).unwrap_or("an argument");
                Self::Usage(format!("{missing} is missing; see {help}"))
            }
            ErrorKind::InvalidSubcommand => {
                let command = context(ContextKind::InvalidSubcommand).unwrap_or_default();
                let hint = match command {
                    "demo" | "simulate" | "shadow" => {
                        " (this build is without the cargo feature simulate)".into()
                    }
                    "aws" => " (this build is without the cargo feature aws)".into(),
                    _ => hint(ContextKind::SuggestedSubcommand),
                };
                Self::Usage(format!("unknown command {command}{hint}; see kerf --help"))
            }
            ErrorKind::InvalidValue => {
                let argument = context(ContextKind::InvalidArg).unwrap_or_default();
                let value = context(ContextKind::InvalidValue).unwrap_or_default();
                let allowed = match error.get(ContextKind::ValidValue) {
                    Some(ContextValue::Strings(texts)) => texts.join(", "),
                    _ => "a value".to_owned(),
                };
                Self::Usage(format!("invalid value {value:?} for {argument}: expected {allowed}"))
            }
            _ => {
                let text = error.to_string();
                let first = text.lines().next().unwrap_or_default();
                Self::Usage(first.trim_start_matches("error: ").to_owned())
            }
        }
    }
}

/// The text of `flag` on the command line, if it stands there.
fn given<'a>(matches: &'a ArgMatches, flag: &Flag) -> Option<&'a str> {
    let given = matches.value_source(flag.name) == Some(clap::parser::ValueSource::CommandLine);
    given.then(|| matches.get_one::<String>(flag.name).map(String::as_str)).flatten()
}

/// The value of `--length`, where a command has it.
#[cfg(feature = "simulate")]
fn length(matches: &ArgMatches) -> Result<Option<GoDuration>, Refused> {
    duration(matches, "length")
}

/// The value of a flag that is a length of time.
#[cfg(feature = "simulate")]
fn duration(matches: &ArgMatches, flag: &str) -> Result<Option<GoDuration>, Refused> {
    let Some(text) = matches.get_one::<String>(flag) else { return Ok(None) };
    let length = text.parse().ok().filter(|length: &GoDuration| !length.as_duration().is_zero());
    let length = length.ok_or_else(|| {
        let expected = "expected a duration such as 2h or 90m";
        Refused::Usage(format!("invalid value {text:?} for --{flag}: {expected}"))
    })?;
    Ok(Some(length))
}
