//! `cargo xtask dist`: everything that a release is made of, without a container daemon.

mod build;
mod image;
mod sbom;
mod tar;
mod version;

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use clap::Args;

use self::tar::{Archive, Entry};
use self::version::Version;
use crate::cargo::workspace;

/// What a release is built for, and how Kubernetes and OCI call it.
const TARGETS: [(&str, &str); 2] =
    [("x86_64-unknown-linux-musl", "amd64"), ("aarch64-unknown-linux-musl", "arm64")];

/// The operator, as it is in the image; and what people run, which has the simulations as well. They are two because the testbed
/// brings tokio's virtual time along, and a production build must not have it.
const OPERATOR: &str = "kerf";
const PLUGIN: &str = "kubectl-kerf";

#[derive(Args)]
pub(crate) struct Dist {
    /// The version; that of the tag if not given
    #[arg(long)]
    version: Option<String>,
    /// A target, such as x86_64-unknown-linux-musl; all of them if not given
    #[arg(long = "target", value_name = "TARGET")]
    targets: Vec<String>,
    /// Where to put everything
    #[arg(long, default_value = "target/release-files", value_name = "DIRECTORY")]
    output: PathBuf,
    /// Take the binaries from DIRECTORY/TARGET/{kerf,kubectl-kerf} and build none
    #[arg(long, value_name = "DIRECTORY")]
    binaries: Option<PathBuf>,
    /// The certificates that the image gets, as PEM
    #[arg(long, default_value = "/etc/ssl/certs/ca-certificates.crt", value_name = "FILE")]
    ca_certificates: PathBuf,
}

/// The binaries of one target.
struct Built {
    architecture: &'static str,
    operator: PathBuf,
    plugin: PathBuf,
}

pub(crate) fn run(dist: &Dist) -> Result<()> {
    let version = Version::find(dist.version.as_deref())?;
    let output = std::path::absolute(&dist.output)?;
    let mut built = Vec::new();
    for (target, architecture) in wanted(&dist.targets)? {
        let (operator, plugin) = match &dist.binaries {
            Some(given) => (given.join(target).join(OPERATOR), given.join(target).join(PLUGIN)),
            None => build::both(target, &version, &output.join("binaries").join(target))?,
        };
        built.push(Built { architecture, operator, plugin });
    }
    let certificates = fs::read(&dist.ca_certificates).with_context(|| {
        format!(
            "no certificates in {}; --ca-certificates names them",
            dist.ca_certificates.display()
        )
    })?;
    let files = Files { output: &output, version: &version };
    files.extras(&built)?;
    for one in &built {
        files.archive(one)?;
    }
    image::write(&output, &version, &certificates, &built)?;
    let sbom = sbom::cyclonedx(&version)?;
    fs::write(files.path("sbom.cdx.json"), format!("{sbom:#}\n"))?;
    for line in files.checksums()? {
        println!("{line}");
    }
    println!("in {}", output.display());
    Ok(())
}

fn wanted(names: &[String]) -> Result<Vec<(&'static str, &'static str)>> {
    for name in names {
        let known = TARGETS.map(|(target, _)| target);
        ensure!(known.contains(&&**name), "unknown target {name}: expected {}", known.join(" or "));
    }
    let is_wanted = |target: &str| names.is_empty() || names.iter().any(|name| name == target);
    Ok(TARGETS.into_iter().filter(|(target, _)| is_wanted(target)).collect())
}

struct Files<'a> {
    output: &'a Path,
    version: &'a Version,
}

impl Files<'_> {
    fn path(&self, rest: &str) -> PathBuf {
        self.output.join(format!("kerf-{}-{rest}", self.version.text))
    }

    /// Completions and manual pages, by a binary that runs here.
    fn extras(&self, built: &[Built]) -> Result<()> {
        let here = match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            other => other,
        };
        let runs = built.iter().find(|one| one.architecture == here);
        let Some(Built { plugin, .. }) = runs else {
            eprintln!("no binary runs here ({here}): no completions and no manual pages");
            return Ok(());
        };
        let directory = self.output.join("completions");
        fs::create_dir_all(&directory)?;
        for (shell, file) in [("bash", "kerf.bash"), ("zsh", "_kerf"), ("fish", "kerf.fish")] {
            let printed = Command::new(plugin).args(["completions", shell]).output()?;
            ensure!(printed.status.success(), "{} prints no completions", plugin.display());
            fs::write(directory.join(file), printed.stdout)?;
        }
        let man = self.output.join("man");
        let written = Command::new(plugin).arg("man").arg(&man).status()?;
        ensure!(written.success(), "{} writes no manual pages", plugin.display());
        Ok(())
    }

    /// `kerf-VERSION-linux-amd64.tar.gz`
    fn archive(&self, built: &Built) -> Result<()> {
        let mut archive = Archive::new(self.version.built_at);
        for (name, path) in [(OPERATOR, &built.operator), (PLUGIN, &built.plugin)] {
            let binary = fs::read(path).with_context(|| format!("no {}", path.display()))?;
            archive.add(name, &Entry::program(&binary))?;
        }
        for name in ["LICENSE", "NOTICE"] {
            archive.add(name, &Entry::file(&fs::read(workspace().join(name))?))?;
        }
        for directory in ["completions", "man"] {
            let Ok(entries) = fs::read_dir(self.output.join(directory)) else { continue };
            let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
            paths.sort();
            for path in paths {
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                archive.add(&format!("{directory}/{name}"), &Entry::file(&fs::read(&path)?))?;
            }
        }
        let name = format!("linux-{}.tar.gz", built.architecture);
        fs::write(self.path(&name), tar::gzip(&archive.finish())?)?;
        Ok(())
    }

    /// `SHA256SUMS` of what is downloaded, as `sha256sum --check` reads it. The lines have sizes in addition.
    fn checksums(&self) -> Result<Vec<String>> {
        let mut paths = Vec::new();
        for entry in fs::read_dir(self.output)? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if path.is_file() && name.starts_with("kerf-") {
                paths.push((name, path));
            }
        }
        paths.sort();
        let (mut sums, mut lines) = (String::new(), Vec::new());
        for (name, path) in paths {
            let bytes = fs::read(&path)?;
            let sum = image::sha256(&bytes);
            let _ = writeln!(sums, "{sum}  {name}");
            lines.push(format!("{sum}  {:>9}  {name}", bytes.len()));
        }
        fs::write(self.output.join("SHA256SUMS"), sums)?;
        Ok(lines)
    }
}
