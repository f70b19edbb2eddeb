//! Python packages for developer commands. Nothing of them is committed or shipped; all is kept in the cache.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::cache::cache;

/// Why a command that needs Python cannot do its work on this machine.
#[derive(Debug)]
pub(crate) struct Missing(pub(crate) String);

/// A directory with the packages of a requirements file, installed by pip when they are asked for the first time. The name of the
/// directory holds what was asked for, so another version is another directory.
pub(crate) fn packages(requirements: &Path, options: &[&str]) -> Result<Result<PathBuf, Missing>> {
    let wanted = fs::read_to_string(requirements)
        .with_context(|| format!("cannot read {}", requirements.display()))?;
    let name = requirements.file_stem().unwrap_or_default().to_string_lossy();
    let home = cache().join("python").join(format!("{name}-{:016x}", fnv(wanted.as_bytes())));
    if home.join("complete").exists() {
        return Ok(Ok(home));
    }
    if !answers(&["-m", "pip", "--version"]) {
        return Ok(Err(Missing("python3 with pip is needed and was not found".to_owned())));
    }
    eprintln!("installing {name} for Python into {}", home.display());
    let mut pip = Command::new("python3");
    pip.args([
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--upgrade",
        "--root-user-action",
        "ignore",
    ]);
    pip.args(options).arg("--target").arg(&home).arg("--requirement").arg(requirements);
    if !pip.status().context("cannot run pip")?.success() {
        return Ok(Err(Missing(format!("pip could not install {name}; it says why above"))));
    }
    fs::write(home.join("complete"), wanted)?;
    Ok(Ok(home))
}

/// What a program of Python prints.
pub(crate) fn output(program: &str, arguments: &[&Path]) -> Result<Vec<u8>> {
    let output = Command::new("python3").arg("-c").arg(program).args(arguments).output()?;
    if !output.status.success() {
        bail!("python3: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(output.stdout)
}

fn answers(arguments: &[&str]) -> bool {
    let mut command = Command::new("python3");
    command.args(arguments).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// FNV-1a: a name for a text.
pub(crate) fn fnv(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xCBF2_9CE4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01B3)
    })
}
