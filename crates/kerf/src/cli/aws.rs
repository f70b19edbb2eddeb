//! `kerf aws`.

use clap::{Arg, ArgMatches};

pub(super) fn command() -> clap::Command {
    clap::Command::new("aws")
        .about("Commands that ask an AWS account")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(
            clap::Command::new("catalogue")
                .about("Print the instance types, zones and on-demand prices of a region as an account sees them")
                .long_about(
                    "Print the instance types, zones and on-demand prices of a region as an account sees them.\n\n\
                     The output is a catalogue for --aws-catalogue: it makes plans exact for the region, and gives an operator \
                     in an isolated VPC the prices that it cannot ask for. Credentials are found as AWS's own programs find \
                     them. It needs ec2:DescribeInstanceTypes, ec2:DescribeInstanceTypeOfferings and pricing:GetProducts.",
                )
                .after_help(
                    "Example:\n  \
                     kerf aws catalogue --aws-region=eu-west-1 > catalogue.json\n  \
                     kerf plan --provider=aws --aws-catalogue=catalogue.json -f my.yaml",
                )
                .args_override_self(true)
                .arg(
                    Arg::new("aws-region")
                        .long("aws-region")
                        .value_name("REGION")
                        .help("Region to ask for; AWS's own configuration says it if this does not"),
                ),
        )
}

/// The region that is asked for by `kerf aws catalogue`, the only one of these commands.
pub(super) fn region(matches: &ArgMatches) -> Option<String> {
    let (_, flags) = matches.subcommand()?;
    flags.get_one::<String>("aws-region").filter(|region| !region.is_empty()).cloned()
}
