//! The command line of `kerf demo`.

use std::{net::IpAddr, num::NonZero};

use clap::{Arg, ArgMatches, value_parser};
use kerf_api::GoDuration;
use kerf_controllers::settings::DashboardEndpoint;

use super::Refused;

/// The arguments of `kerf demo`.
#[derive(Debug, PartialEq)]
pub(crate) struct DemoOptions {
    /// How much faster than real time; `None` is the default for people, and as fast as possible for programs.
    pub(crate) speed: Option<u32>,
    pub(crate) seed: Option<u64>,
    pub(crate) length: Option<GoDuration>,
    pub(crate) policy: String,
    /// The port to serve the cluster on; 0 is any.
    pub(crate) serve: Option<u16>,
    /// Where the page is served, if anywhere.
    pub(crate) dashboard: Option<DashboardEndpoint>,
    pub(crate) json: bool,
}

pub(super) fn command() -> clap::Command {
    clap::Command::new("demo")
        .about("Watch the operator at work on a cluster in this process")
        .long_about(
            "Watch the operator at work on a whole cluster in this process, in fast motion. Workloads grow and shrink, \
             and nodes drift. Nothing has to be installed, and nothing outside of this process is touched.\n\n\
             A terminal shows the nodes, their fill, their prices and the decisions as they change. Where the output is \
             not a terminal, the decisions are printed as lines, and time passes as fast as possible. Ctrl-C ends the \
             demo early and prints the summary.",
        )
        .after_long_help(
            "Examples:\n  \
             kerf demo\n      two hours in less than a minute\n  \
             kerf demo --policy=parity\n      the same with consolidation as Karpenter has it\n  \
             kerf demo --serve\n      the same, and then the cluster stays up for kubectl, in real time\n  \
             kerf demo --serve --dashboard-port=8082\n      with the operator's page at http://localhost:8082\n  \
             kerf demo -o json\n      only the summary",
        )
        .args_override_self(true)
        .arg(
            Arg::new("speed")
                .long("speed")
                .value_name("FACTOR")
                .value_parser(value_parser!(u32).range(1..=100_000))
                .help("How much faster than real time [default: 160 in a terminal, else as fast as possible]"),
        )
        .arg(
            Arg::new("seed")
                .long("seed")
                .value_name("NUMBER")
                .value_parser(value_parser!(u64))
                .help("Seed of the random numbers; the same seed gives the same run [default: 7]"),
        )
        .arg(
            Arg::new("length")
                .long("length")
                .value_name("DURATION")
                .help("How much time passes in the cluster; the scenario ends after 2h [default: 2h]"),
        )
        .arg(
            Arg::new("policy")
                .long("policy")
                .value_name("NAME")
                .default_value(kerf_simulation::DEFAULTS)
                .help("A policy of kerf simulate, such as parity, balanced or all-controls"),
        )
        .arg(
            Arg::new("serve")
                .long("serve")
                .value_name("PORT")
                .num_args(0..=1)
                .require_equals(true)
                .default_missing_value("0")
                .value_parser(value_parser!(u16))
                .help("Serve the cluster on loopback for kubectl, and keep it up in real time after the scenario"),
        )
        .arg(
            Arg::new("dashboard-port")
                .long("dashboard-port")
                .value_name("PORT")
                .default_value("0")
                .hide_default_value(true)
                .value_parser(value_parser!(u16))
                .help("Serve the operator's page on this port, with --serve also after the scenario; 0 for no page [default: 0]"),
        )
        .arg(
            Arg::new("dashboard-address")
                .long("dashboard-address")
                .value_name("ADDRESS")
                .default_value("127.0.0.1")
                .value_parser(value_parser!(IpAddr))
                .help("IP address on which the page is served"),
        )
        .arg(super::output(
            &["table", "json"],
            "How to print the summary; with json nothing else is printed",
        ))
}

impl DemoOptions {
    pub(super) fn read(matches: &ArgMatches) -> Result<Self, Refused> {
        Ok(Self {
            speed: matches.get_one("speed").copied(),
            seed: matches.get_one("seed").copied(),
            length: super::length(matches)?,
            policy: matches.get_one::<String>("policy").cloned().unwrap_or_default(),
            serve: matches.get_one("serve").copied(),
            dashboard: dashboard(matches),
            json: matches.get_one::<String>("output").is_some_and(|format| format == "json"),
        })
    }
}

fn dashboard(matches: &ArgMatches) -> Option<DashboardEndpoint> {
    let port = NonZero::new(*matches.get_one("dashboard-port")?)?;
    Some(DashboardEndpoint { port, address: *matches.get_one("dashboard-address")? })
}
