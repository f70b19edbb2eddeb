//! The command line of `kerf top`.

use std::{ffi::OsString, path::PathBuf, time::Duration};

use clap::{Arg, ArgAction, ArgMatches};
use kerf_api::GoDuration;

use super::{Refused, argument, cluster, plan, plan::Sources};

/// The arguments of `kerf top`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TopOptions {
    pub(crate) sources: Sources,
    pub(crate) once: bool,
    pub(crate) json: bool,
    pub(crate) interval: Duration,
    /// Where pictures for the documents go.
    pub(crate) pictures: Option<PathBuf>,
}

const INTERVAL: &str = "2s";

pub(super) fn command() -> clap::Command {
    let [files, now] = plan::places();
    clap::Command::new("top")
        .about("Watch the nodes of a cluster: their fill, price and age, and why each stays or would go")
        .long_about(
            "Watch the nodes of a cluster by NodePool: how full they are, what they cost, how old they are, and why each \
             stays or would go.\n\n\
             It works on any cluster with karpenter.sh NodePools, whether Kerf or Karpenter runs it, and needs rights to \
             read only: it lists and watches what kerf plan reads, and writes nothing. What would go is what Kerf would \
             do by the flags below; it decides with the same code as the operator.\n\n\
             Keys: q quits, s sorts, / filters, the arrow keys and Enter explain a node, p pauses, ? shows the legend. \
             Without a terminal, or with --once, it prints one table. NO_COLOR is respected.",
        )
        .after_long_help(
            "Examples:\n  \
             kerf top\n      \
             the cluster of KUBECONFIG, live\n  \
             kerf top --once -o json | jq .totals\n      \
             its totals for a script\n  \
             kerf snapshot > cluster.json && kerf top -f cluster.json\n      \
             a cluster as it was\n  \
             kerf top --scaledown-utilization-threshold=1 --consolidation-savings-threshold=0\n      \
             what would go if consolidation were Karpenter's",
        )
        .args_override_self(true)
        .arg(files)
        .arg(super::output(
            &["table", "json"],
            "How to print; json is one document per line and refresh, until it is interrupted",
        ))
        .arg(now)
        .arg(
            Arg::new("once")
                .long("once")
                .action(ArgAction::SetTrue)
                .help("Print once and end"),
        )
        .arg(
            Arg::new("interval")
                .long("interval")
                .value_name("DURATION")
                .default_value(INTERVAL)
                .help("The time between two refreshes"),
        )
        .arg(super::pictures())
        .args(cluster::arguments())
        .args(plan::deciding_flags().map(argument))
}

impl TopOptions {
    pub(super) fn read(
        matches: &ArgMatches,
        variable: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Self, Refused> {
        Ok(Self {
            sources: Sources::read(matches, variable)?,
            once: matches.get_flag("once"),
            json: matches.get_one::<String>("output").is_some_and(|format| format == "json"),
            interval: interval(matches)?,
            pictures: matches.get_one::<PathBuf>("pictures").cloned(),
        })
    }
}

fn interval(matches: &ArgMatches) -> Result<Duration, Refused> {
    let text = matches.get_one::<String>("interval").map_or(INTERVAL, String::as_str);
    let interval = text.parse().ok().map(|it: GoDuration| it.as_duration());
    interval.filter(|it| *it >= Duration::from_millis(100)).ok_or_else(|| {
        let expected = "expected a duration of 100ms or more, such as 2s";
        Refused::Usage(format!("invalid value {text:?} for --interval: {expected}"))
    })
}
