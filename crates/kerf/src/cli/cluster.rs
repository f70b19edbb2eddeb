//! Which cluster a command reads: the flags of kubectl that say so.

use std::path::PathBuf;

use clap::{Arg, ArgMatches, value_parser};
use kerf_runtime::client::Target;

/// For every command that reads a cluster.
pub(super) fn arguments() -> [Arg; 2] {
    const HEADING: &str = "Cluster";
    [
        Arg::new("kubeconfig")
            .long("kubeconfig")
            .value_name("PATH")
            .value_parser(value_parser!(PathBuf))
            .help_heading(HEADING)
            .help("The kubeconfig to read [default: as KUBECONFIG says, the pod's own, or $HOME/.kube/config]"),
        Arg::new("context")
            .long("context")
            .value_name("NAME")
            .help_heading(HEADING)
            .help("The context of the kubeconfig to use [default: its current one]"),
    ]
}

/// For commands that show things of namespaces.
pub(super) fn namespace(help: &'static str) -> Arg {
    Arg::new("namespace").short('n').long("namespace").value_name("NAME").help(help)
}

pub(super) fn read_target(matches: &ArgMatches) -> Target {
    Target {
        kubeconfig: matches.get_one::<PathBuf>("kubeconfig").cloned(),
        context: matches.get_one::<String>("context").cloned(),
    }
}

pub(super) fn read_namespace(matches: &ArgMatches) -> Option<String> {
    matches.get_one::<String>("namespace").cloned()
}
