//! The command line of `kerf shadow`.

use std::{ffi::OsString, net::SocketAddr, path::PathBuf};

use clap::{Arg, ArgAction, ArgMatches, value_parser};
use kerf_api::GoDuration;
use kerf_runtime::client::Target;

use super::{
    Format, Refused, cluster,
    simulate::{provider_arguments, read_instance_types, read_providers, whole_number},
};
use crate::providers::Chosen;

/// The arguments of `kerf shadow`.
#[derive(Debug, PartialEq)]
pub(crate) enum ShadowOptions {
    Record(RecordOptions),
    Report(ReportOptions),
}

#[derive(Debug, PartialEq)]
pub(crate) struct RecordOptions {
    pub(crate) target: Target,
    pub(crate) dir: PathBuf,
    /// Until it is stopped without it.
    pub(crate) length: Option<GoDuration>,
    /// Bytes on the disk.
    pub(crate) max_size: u64,
    pub(crate) serve: Option<SocketAddr>,
    pub(crate) replay: ReplayOptions,
}

#[derive(Debug, PartialEq)]
pub(crate) struct ReportOptions {
    pub(crate) dir: PathBuf,
    pub(crate) format: Format,
    pub(crate) html: Option<PathBuf>,
    pub(crate) replay: ReplayOptions,
}

/// How a record is played again.
#[derive(Debug, PartialEq)]
pub(crate) struct ReplayOptions {
    /// Names of policies.
    pub(crate) compare: Vec<String>,
    pub(crate) instance_types_file: Option<PathBuf>,
    /// The one that is named, or all of them: the NodeClasses of the recorded pools then say which one it is.
    pub(crate) providers: Vec<Chosen>,
    pub(crate) seed: u64,
}

pub(super) fn command() -> clap::Command {
    clap::Command::new("shadow")
        .about("Record what the autoscaler of a live cluster does, and report what Kerf would have done")
        .long_about(
            "Record what the autoscaler of a live cluster does, and report what Kerf would have done in its place: nodes, cost \
             and evictions, per policy.\n\n\
             kerf shadow reads the cluster that KUBECONFIG names and never writes to it: it needs get, list and watch on pods, \
             nodes, NodePools, NodeClaims, NodeClasses, DaemonSets, PodDisruptionBudgets and Namespaces \
             (examples/shadow/rbac.yaml). The \
             record holds workloads and what they ask for, no names of pods, no images, no environments, no secrets.\n\n\
             The report counts what happened, and plays the recorded load again on a simulated cluster with the operator of \
             kerf run in it, once per policy. One replay follows Karpenter's rules. How far it is from what happened says how \
             far to trust the others.",
        )
        .after_long_help(
            "Examples:\n  \
             kerf shadow --record ./shadow\n      \
             record until Ctrl-C; the same command goes on later\n  \
             kerf shadow --record ./shadow --for 26h --serve 127.0.0.1:8090\n      \
             record for 26 hours and serve the report meanwhile\n  \
             kerf shadow report ./shadow --html report.html\n      \
             print the report, and write it as a page",
        )
        .args_override_self(true)
        .args_conflicts_with_subcommands(true)
        .args(cluster::arguments())
        .arg(
            Arg::new("record")
                .long("record")
                .value_name("DIR")
                .value_parser(value_parser!(PathBuf))
                .help("The directory of the record; one that is there is continued"),
        )
        .arg(
            Arg::new("for")
                .long("for")
                .value_name("DURATION")
                .help("How long to record, such as 26h [default: until stopped]"),
        )
        .arg(
            Arg::new("max-size")
                .long("max-size")
                .value_name("MIB")
                .default_value("1024")
                .value_parser(value_parser!(u64).range(64..))
                .help("How large the record may get on the disk, in MiB; then its oldest part is deleted"),
        )
        .arg(
            Arg::new("serve")
                .long("serve")
                .value_name("ADDRESS")
                .help("Serve the report while recording, for instance on 127.0.0.1:8090. A port alone means loopback"),
        )
        .args(replay_arguments())
        .subcommand(
            clap::Command::new("report")
                .about("Print the report of a record")
                .arg(
                    Arg::new("dir")
                        .value_name("DIR")
                        .required(true)
                        .value_parser(value_parser!(PathBuf))
                        .help("The directory of the record"),
                )
                .args_override_self(true)
                .args(replay_arguments())
                .arg(super::output(&["table", "json", "yaml"], "How to print the report"))
                .arg(super::html()),
        )
}

fn replay_arguments() -> impl Iterator<Item = Arg> {
    let arguments = [
        Arg::new("compare")
            .long("compare")
            .value_name("NAMES")
            .action(ArgAction::Append)
            .value_delimiter(',')
            .help("Policies of kerf simulate to replay, or all [default: kerf-defaults,all-controls,when-empty]; karpenter always is"),
        Arg::new("instance-types")
            .long("instance-types")
            .value_name("PATH")
            .value_parser(value_parser!(PathBuf))
            .help("Instance types and their prices for all pools, in the format of kerf simulate --print-instance-types [default: the provider's, else those of the nodes]"),
        Arg::new("seed")
            .long("seed")
            .value_name("NUMBER")
            .default_value("0")
            .value_parser(whole_number)
            .help("Seed of the random numbers of the replays"),
    ];
    arguments.into_iter().chain(provider_arguments())
}

impl ShadowOptions {
    pub(super) fn read(
        matches: &ArgMatches,
        variable: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Self, Refused> {
        if let Some(("report", matches)) = matches.subcommand() {
            return Ok(Self::Report(ReportOptions {
                dir: matches.get_one::<PathBuf>("dir").cloned().unwrap_or_default(),
                format: match matches.get_one::<String>("output").map(String::as_str) {
                    Some("json") => Format::Json,
                    Some("yaml") => Format::Yaml,
                    _ => Format::Table,
                },
                html: matches.get_one::<PathBuf>("html").cloned(),
                replay: ReplayOptions::read(matches, variable)?,
            }));
        }
        let Some(dir) = matches.get_one::<PathBuf>("record").cloned() else {
            let text =
                "write kerf shadow --record DIR to record a cluster, or kerf shadow report DIR";
            return Err(Refused::Usage(text.to_owned()));
        };
        Ok(Self::Record(RecordOptions {
            target: cluster::read_target(matches),
            dir,
            length: super::duration(matches, "for")?,
            max_size: matches.get_one::<u64>("max-size").copied().unwrap_or(1024) << 20,
            serve: matches.get_one::<String>("serve").map(|text| address(text)).transpose()?,
            replay: ReplayOptions::read(matches, variable)?,
        }))
    }
}

impl ReplayOptions {
    fn read(
        matches: &ArgMatches,
        variable: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Self, Refused> {
        let names = matches.get_many::<String>("compare");
        Ok(Self {
            compare: names.into_iter().flatten().cloned().collect(),
            instance_types_file: read_instance_types(matches),
            providers: read_providers(matches, variable)?,
            seed: matches.get_one("seed").copied().unwrap_or_default(),
        })
    }
}

/// An address and a port, or a port on loopback.
fn address(text: &str) -> Result<SocketAddr, Refused> {
    let port = text.strip_prefix(':').unwrap_or(text).parse::<u16>();
    let address = match port {
        Ok(port) => Ok(SocketAddr::from(([127, 0, 0, 1], port))),
        Err(_) => text.parse(),
    };
    address.map_err(|_| {
        let expected = "expected an address such as 127.0.0.1:8090, or a port";
        Refused::Usage(format!("invalid value {text:?} for --serve: {expected}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(arguments: &[&str]) -> Result<ShadowOptions, String> {
        let matches = command().try_get_matches_from(["shadow"].iter().chain(arguments));
        let matches = matches.map_err(|error| error.to_string())?;
        ShadowOptions::read(&matches, |_| None).map_err(|refused| refused.to_string())
    }

    #[test]
    fn a_record_needs_a_directory_and_serves_on_loopback() {
        for (arguments, expected) in [
            (&["--record", "d"][..], Ok((None, None))),
            (
                &["--record", "d", "--for", "2h", "--serve", "8090"],
                Ok((Some("2h"), Some("127.0.0.1:8090"))),
            ),
            (&["--record", "d", "--serve", "0.0.0.0:1"], Ok((None, Some("0.0.0.0:1")))),
            (&[], Err("write kerf shadow --record DIR")),
            (&["--record", "d", "--for", "soon"], Err("for --for: expected a duration")),
            (&["--record", "d", "--serve", "here"], Err("for --serve: expected an address")),
            (&["--record", "d", "--max-size", "1"], Err("64")),
        ] {
            match (read(arguments), expected) {
                (Ok(ShadowOptions::Record(options)), Ok((length, serve))) => {
                    let found = options.length.map(|length| length.to_string());
                    assert_eq!(found.as_deref(), length, "{arguments:?}");
                    assert_eq!(options.serve, serve.map(|text| text.parse().unwrap()));
                }
                (Err(told), Err(expected)) => assert!(told.contains(expected), "{told}"),
                (found, expected) => panic!("{arguments:?}: {found:?}, not {expected:?}"),
            }
        }
    }

    #[test]
    fn a_report_is_of_a_directory() {
        let Ok(ShadowOptions::Report(options)) =
            read(&["report", "d", "-o", "json", "--compare", "balanced,all-controls"])
        else {
            panic!("a report");
        };
        assert_eq!((options.dir.to_str(), options.format), (Some("d"), Format::Json));
        assert_eq!(options.replay.compare, ["balanced", "all-controls"]);
        assert!(read(&["report"]).is_err());
        assert!(read(&["--record", "d", "report", "d"]).is_err());
    }
}
