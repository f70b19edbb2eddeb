//! `kerf aws`.

use clap::{Arg, ArgAction, ArgMatches};

use super::Refused;

pub(super) fn command() -> clap::Command {
    clap::Command::new("aws")
        .about("Commands for an AWS account")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(policy())
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

fn policy() -> clap::Command {
    let flag = |name: &'static str, value: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_name(value).help(help)
    };
    clap::Command::new("policy")
        .about("Print the IAM policy that the operator needs for a cluster")
        .long_about(
            "Print the IAM policy that the operator needs for a cluster, and no more.\n\n\
             Nothing is asked of AWS. The policy allows Kerf to launch instances that it tags as the cluster's, and to change or \
             delete only what carries these tags.",
        )
        .after_help(
            "Example:\n  \
             kerf aws policy --cluster-name=sawmill --aws-region=eu-west-1 --interruption-queue=sawmill > policy.json\n  \
             aws iam create-policy --policy-name=kerf-sawmill --policy-document=file://policy.json",
        )
        .args_override_self(true)
        .arg(flag("cluster-name", "NAME", "Name of the cluster").required(true))
        .arg(flag("aws-region", "REGION", "Region of the cluster").required(true))
        .arg(flag("account", "ACCOUNT", "Account of the cluster; any if it is not given").default_value("*"))
        .arg(flag("interruption-queue", "QUEUE", "SQS queue of interruption messages, if there is one"))
        .arg(flag("node-role", "ROLE", "Role of the nodes, or a pattern of several [default: KarpenterNodeRole-NAME]"))
        .arg(
            Arg::new("enable-zonal-shift")
                .long("enable-zonal-shift")
                .action(ArgAction::SetTrue)
                .help("Allow to read zonal shifts, for operators with --enable-zonal-shift"),
        )
}

/// What is asked for.
#[derive(Debug)]
pub(crate) enum AwsCommand {
    Catalogue { region: Option<String> },
    Policy(PolicyOptions),
}

#[derive(Debug)]
pub(crate) struct PolicyOptions {
    pub(crate) cluster: String,
    pub(crate) region: String,
    pub(crate) account: String,
    pub(crate) queue: Option<String>,
    pub(crate) node_role: String,
    pub(crate) zonal_shift: bool,
}

impl AwsCommand {
    pub(super) fn read(matches: &ArgMatches) -> Result<Self, Refused> {
        let missing = || Refused::Usage("a command is missing; see kerf aws --help".to_owned());
        let (name, flags) = matches.subcommand().ok_or_else(missing)?;
        let text =
            |flag: &str| flags.get_one::<String>(flag).filter(|value| !value.is_empty()).cloned();
        if name == "catalogue" {
            return Ok(Self::Catalogue { region: text("aws-region") });
        }
        let needed = |flag: &str| {
            text(flag).ok_or_else(|| {
                Refused::Usage(format!("--{flag} is empty; see kerf aws policy --help"))
            })
        };
        let cluster = needed("cluster-name")?;
        Ok(Self::Policy(PolicyOptions {
            node_role: text("node-role").unwrap_or_else(|| format!("KarpenterNodeRole-{cluster}")),
            region: needed("aws-region")?,
            account: needed("account")?,
            queue: text("interruption-queue"),
            zonal_shift: flags.get_flag("enable-zonal-shift"),
            cluster,
        }))
    }
}
