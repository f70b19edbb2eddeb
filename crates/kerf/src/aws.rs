//! `kerf aws`.

use std::{
    io::{self, Write},
    process::ExitCode,
};

use kerf_provider_aws::{Installation, catalogue_of_account, partition_of};

use crate::cli::{AwsCommand, PolicyOptions};

pub(crate) fn run(command: &AwsCommand) -> ExitCode {
    match command {
        AwsCommand::Catalogue { region } => catalogue(region.as_deref()),
        AwsCommand::Policy(options) => policy(options),
    }
}

/// Asks nothing of AWS.
fn policy(options: &PolicyOptions) -> ExitCode {
    let installation = Installation {
        partition: partition_of(&options.region),
        region: &options.region,
        account: &options.account,
        cluster: &options.cluster,
        queue: options.queue.as_deref(),
        node_role: &options.node_role,
        zonal_shift: options.zonal_shift,
    };
    println!("{:#}", installation.policy());
    ExitCode::SUCCESS
}

/// Prints what the account says.
fn catalogue(region: Option<&str>) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let printed = runtime.map_err(|error| error.to_string()).and_then(|runtime| {
        let catalogue = runtime.block_on(catalogue_of_account(region));
        let catalogue = catalogue.map_err(|error| error.to_string())?;
        let written = io::stdout().lock().write_all(catalogue.as_bytes());
        written.map_err(|error| format!("cannot write the catalogue: {error}"))
    });
    match printed {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("kerf: {error}");
            ExitCode::FAILURE
        }
    }
}
