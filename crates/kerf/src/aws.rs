//! `kerf aws catalogue`.

use std::{
    io::{self, Write},
    process::ExitCode,
};

use kerf_provider_aws::catalogue_of_account;

/// Prints what the account says.
pub(crate) fn catalogue(region: Option<&str>) -> ExitCode {
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
