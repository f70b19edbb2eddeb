//! The command line of `kerf demo`.

use std::{net::IpAddr, num::NonZero, path::PathBuf};

use clap::{Arg, ArgMatches, builder::PossibleValuesParser, value_parser};
use kerf_api::GoDuration;
use kerf_controllers::settings::DashboardEndpoint;

use super::Refused;

/// The arguments of `kerf demo`.
#[derive(Debug, PartialEq)]
pub(crate) struct DemoOptions {
    pub(crate) story: Story,
    /// How much faster than real time; `None` is the default for people, and as fast as possible for programs.
    pub(crate) speed: Option<u32>,
    pub(crate) seed: Option<u64>,
    pub(crate) length: Option<GoDuration>,
    pub(crate) json: bool,
    /// Where pictures for the documents go.
    pub(crate) pictures: Option<PathBuf>,
}

#[derive(Debug, PartialEq)]
pub(crate) enum Story {
    /// Karpenter's policy and Kerf's, side by side.
    Cascade,
    /// One cluster under one policy.
    Shop {
        policy: String,
        /// The port to serve the cluster on; 0 is any.
        serve: Option<u16>,
        /// Where the page is served, if anywhere.
        dashboard: Option<DashboardEndpoint>,
    },
}

const CASCADE: &str = "cascade";
const SHOP: &str = "shop";

pub(super) fn command() -> clap::Command {
    clap::Command::new("demo")
        .about("Watch consolidation at work on clusters in this process")
        .long_about(
            "Watch consolidation at work on whole clusters in this process, in fast motion. Nothing has to be installed, \
             and nothing outside of this process is touched.\n\n\
             cascade: the load of an evening shrinks and keeps changing. Two clusters live through it side by side, one \
             with Karpenter's consolidation policy and one with Kerf's defaults.\n\
             shop: one cluster whose workloads grow and shrink and whose nodes drift, with every decision and its reason.\n\n\
             A terminal shows the nodes, their fill, their prices and the decisions as they change; q ends it, p pauses, \
             + and - change the speed. Where the output is not a terminal, lines are printed, and time passes as fast as \
             possible.",
        )
        .after_long_help(
            "Examples:\n  \
             kerf demo\n      Karpenter's policy and Kerf's, side by side, in less than a minute\n  \
             kerf demo --seed=1\n      the same on another day\n  \
             kerf demo shop --policy=parity\n      a shop, with consolidation as Karpenter has it\n  \
             kerf demo shop --serve\n      the shop, and then its cluster stays up for kubectl, in real time\n  \
             kerf demo shop --serve --dashboard-port=8082\n      with the operator's page at http://localhost:8082\n  \
             kerf demo -o json\n      only the figures",
        )
        .args_override_self(true)
        .arg(
            Arg::new("story")
                .value_name("STORY")
                .value_parser(PossibleValuesParser::new([CASCADE, SHOP]))
                .help("What is played [default: cascade; shop with --serve, --policy or --dashboard-port, which are about one cluster]"),
        )
        .arg(
            Arg::new("speed")
                .long("speed")
                .value_name("FACTOR")
                .value_parser(value_parser!(u32).range(1..=100_000))
                .help("How much faster than real time [default: such that it takes 45 seconds in a terminal, else as fast as possible]"),
        )
        .arg(
            Arg::new("seed")
                .long("seed")
                .value_name("NUMBER")
                .value_parser(value_parser!(u64))
                .help("Seed of the random numbers; the same seed gives the same run [default: that of the story]"),
        )
        .arg(
            Arg::new("length")
                .long("length")
                .value_name("DURATION")
                .help("How much time passes in the clusters [default: that of the story, 1h or 2h]"),
        )
        .arg(
            Arg::new("policy")
                .long("policy")
                .value_name("NAME")
                .help("Of shop: a policy of kerf simulate, such as parity, balanced or all-controls [default: kerf-defaults]"),
        )
        .arg(
            Arg::new("serve")
                .long("serve")
                .value_name("PORT")
                .num_args(0..=1)
                .require_equals(true)
                .default_missing_value("0")
                .value_parser(value_parser!(u16))
                .help("Of shop: serve the cluster on loopback for kubectl, and keep it up in real time after the scenario"),
        )
        .arg(
            Arg::new("dashboard-port")
                .long("dashboard-port")
                .value_name("PORT")
                .default_value("0")
                .hide_default_value(true)
                .value_parser(value_parser!(u16))
                .help("Of shop: serve the operator's page on this port, with --serve also after the scenario; 0 for no page [default: 0]"),
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
        .arg(super::pictures())
}

impl DemoOptions {
    pub(super) fn read(matches: &ArgMatches) -> Result<Self, Refused> {
        Ok(Self {
            story: Story::read(matches)?,
            speed: matches.get_one("speed").copied(),
            seed: matches.get_one("seed").copied(),
            length: super::length(matches)?,
            json: matches.get_one::<String>("output").is_some_and(|format| format == "json"),
            pictures: matches.get_one::<PathBuf>("pictures").cloned(),
        })
    }
}

impl Story {
    fn read(matches: &ArgMatches) -> Result<Self, Refused> {
        let story = matches.get_one::<String>("story").map(String::as_str);
        let policy = matches.get_one::<String>("policy");
        let serve: Option<u16> = matches.get_one("serve").copied();
        let dashboard = dashboard(matches);
        let about_one = [
            ("--serve", serve.is_some()),
            ("--policy", policy.is_some()),
            ("--dashboard-port", dashboard.is_some()),
        ];
        let about_one = about_one.into_iter().find_map(|(flag, given)| given.then_some(flag));
        match (story, about_one) {
            (Some(CASCADE), Some(flag)) => Err(Refused::Usage(format!(
                "{flag} is about one cluster, and the story cascade has two; use kerf demo shop {flag}"
            ))),
            (Some(CASCADE) | None, None) => Ok(Self::Cascade),
            _ => {
                let policy =
                    policy.cloned().unwrap_or_else(|| kerf_simulation::DEFAULTS.to_owned());
                Ok(Self::Shop { policy, serve, dashboard })
            }
        }
    }
}

fn dashboard(matches: &ArgMatches) -> Option<DashboardEndpoint> {
    let port = NonZero::new(*matches.get_one("dashboard-port")?)?;
    Some(DashboardEndpoint { port, address: *matches.get_one("dashboard-address")? })
}
