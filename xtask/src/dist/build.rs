//! Static binaries. Rust's own musl is in them; zig compiles and links the little C that there is, for each target on each machine.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use super::version::Version;
use super::{OPERATOR, PLUGIN};
use crate::cargo::{cargo, workspace};
use crate::python;

const ZIG: &str = "xtask/src/dist/zig.txt";

/// The operator and the plugin, built and copied into `directory`.
pub(super) fn both(
    target: &str,
    version: &Version,
    directory: &Path,
) -> Result<(PathBuf, PathBuf)> {
    let libraries = Command::new("rustc")
        .args(["--print", "target-libdir", "--target", target])
        .current_dir(workspace())
        .output()?;
    let libraries = String::from_utf8_lossy(&libraries.stdout).trim().to_owned();
    ensure!(
        Path::new(&libraries).is_dir(),
        "Rust has no standard library for {target} here; run: rustup target add {target}"
    );
    let zig = match python::packages(&workspace().join(ZIG), &[])? {
        Ok(zig) => zig,
        Err(missing) => bail!("{}; cargo-zigbuild and zig come from there", missing.0),
    };
    let build = |features: &[&str], name: &str| -> Result<PathBuf> {
        eprintln!("building {name} for {target}");
        let mut command = cargo(&["zigbuild", "--profile", "dist", "--package", "kerf"]);
        command.args(["--target", target]).args(features);
        let path = env::var_os("PATH").unwrap_or_default();
        let path = [zig.join("bin")].into_iter().chain(env::split_paths(&path));
        command.env("PATH", env::join_paths(path)?);
        command.env("CARGO_ZIGBUILD_ZIG_PATH", zig.join("ziglang/zig"));
        command.env("KERF_VERSION", &version.text).env("KERF_COMMIT", &version.commit);
        command.env("KERF_BUILD_DATE", version.built_at()?.to_string()).env("KERF_TARGET", target);
        ensure!(command.status()?.success(), "{name} cannot be built for {target}");
        let from = target_directory().join(target).join("dist/kerf");
        let to = directory.join(name);
        fs::create_dir_all(directory)?;
        fs::copy(&from, &to).with_context(|| format!("no {}", from.display()))?;
        Ok(to)
    };
    let operator = build(&["--no-default-features", "--features", "aws"], OPERATOR)?;
    let plugin = build(&["--features", "aws"], PLUGIN)?;
    Ok((operator, plugin))
}

fn target_directory() -> PathBuf {
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| workspace().join("target"), PathBuf::from)
}
