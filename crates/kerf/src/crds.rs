//! `kerf crds`.

use std::{
    io::{self, Write},
    process::ExitCode,
};

pub(crate) fn print() -> ExitCode {
    let yaml = match kerf_api::crds_yaml(kerf_provider_kwok::crds()) {
        Ok(yaml) => yaml,
        Err(error) => {
            eprintln!("kerf: {error}");
            return ExitCode::FAILURE;
        }
    };
    // A reader that has seen enough (`kerf crds | head`) is not an error.
    let _ = io::stdout().lock().write_all(yaml.as_bytes());
    ExitCode::SUCCESS
}
