//! `kerf crds`.

use std::{
    io::{self, Write},
    process::ExitCode,
};

use kerf_api::crd;
use kerf_provider::Provider;

/// The core's CRDs and the provider's.
pub(crate) fn print(provider: &dyn Provider) -> ExitCode {
    let yaml = match crd::crds_yaml(crd::crds(&[provider.additions()])) {
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
