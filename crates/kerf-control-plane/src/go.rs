//! Building programs from the Go module registry.

use std::fs::{self, File, TryLockError};
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

#[derive(Debug, thiserror::Error)]
pub enum GoError {
    #[error("Go is not installed: `go env GOVERSION` does not run")]
    NotInstalled(#[source] io::Error),
    #[error("`go {step}` failed: {output}")]
    Failed { step: &'static str, output: String },
    #[error("could not {what} {}", path.display())]
    Files { what: &'static str, path: PathBuf, source: io::Error },
}

/// What is built together: one wrapper module that pins every version.
#[derive(Debug)]
pub(crate) struct Recipe {
    /// What it is called on disk: `kubernetes-1.36.4`.
    pub(crate) name: String,
    pub(crate) go_mod: &'static str,
    pub(crate) go_sum: &'static str,
    pub(crate) linker_flags: String,
    pub(crate) programs: Vec<Built>,
    /// For whoever waits: `Kubernetes 1.36.4, etcd 3.6.8`.
    pub(crate) what: String,
}

/// A program of a recipe.
#[derive(Debug)]
pub(crate) struct Built {
    /// The package of its `main`.
    pub(crate) package: String,
    /// What `go build` calls it.
    pub(crate) program: &'static str,
    pub(crate) name: &'static str,
}

/// The directory with the programs, if this version of the wrapper module has been built before with
/// any Go. It does not need Go to be installed.
pub(crate) fn built(recipe: &Recipe, cache: &Path) -> Option<PathBuf> {
    let prefix = recipe.key_prefix();
    let mut complete: Vec<_> = fs::read_dir(cache)
        .ok()?
        .filter_map(Result::ok)
        .map(|entry| entry.file_name())
        .filter(|name| {
            name.to_str().is_some_and(|name| name.starts_with(&prefix) && !name.contains('~'))
        })
        .map(|name| cache.join(name).join("bin"))
        .filter(|bin| bin.is_dir())
        .collect();
    complete.sort();
    complete.pop()
}

/// Builds unless that has been done, and returns the directory with the programs.
///
/// The result appears under its name by one rename, so an interrupted build leaves nothing that
/// could be taken for a finished one; and a lock makes a second build wait for the first.
pub(crate) fn build(
    recipe: &Recipe,
    cache: &Path,
    mut progress: impl FnMut(&str),
) -> Result<PathBuf, GoError> {
    let key = format!("{}{}", recipe.key_prefix(), go_version()?);
    let home = cache.join(&key);
    let bin = home.join("bin");
    if bin.is_dir() {
        return Ok(bin);
    }
    create_dir(cache)?;
    let lock = lock(&cache.join(format!("{key}~lock")), &mut progress)?;
    if bin.is_dir() {
        return Ok(bin);
    }

    // Nobody else works in here while we hold the lock.
    let partial = cache.join(format!("{key}~partial"));
    if partial.exists() {
        files("remove", &partial, fs::remove_dir_all(&partial))?;
    }
    let (module, built) = (partial.join("module"), partial.join("done/bin"));
    create_dir(&module)?;
    create_dir(&built)?;
    write(&module.join("go.mod"), recipe.go_mod)?;
    write(&module.join("go.sum"), recipe.go_sum)?;

    let packages: Vec<_> = recipe.programs.iter().map(|one| one.package.clone()).collect();
    let go = Go { module: &module, lock: &lock };
    progress(&format!(
        "{}: building with Go in {} (once; minutes on a few cores)",
        recipe.what,
        cache.display(),
    ));
    let listed = go.run("list", &["-deps"], &packages, |seconds, lines| {
        progress(&format!("downloading: {lines} modules, {seconds} s"));
    })?;
    let total = listed.lines().count();
    let output = format!("-o={}/", built.display());
    let flags = ["-v", "-trimpath", "-ldflags", &recipe.linker_flags, &output];
    go.run("build", &flags, &packages, |seconds, lines| {
        progress(&format!("compiling: {lines} of at most {total} packages, {seconds} s"));
    })?;

    for program in &recipe.programs {
        let from = built.join(program.program);
        files("rename", &from, fs::rename(&from, built.join(program.name)))?;
    }
    files("rename", &partial, fs::rename(partial.join("done"), &home))?;
    files("remove", &partial, fs::remove_dir_all(&partial))?;
    progress(&format!("done: {}", bin.display()));
    Ok(bin)
}

struct Go<'a> {
    module: &'a Path,
    lock: &'a File,
}

impl Go<'_> {
    /// Runs a go command to its end; calls `tick` every few seconds with the time it has taken and
    /// the number of lines it has written to stderr, which is one per module or package.
    fn run(
        &self,
        step: &'static str,
        flags: &[&str],
        packages: &[String],
        mut tick: impl FnMut(u64, usize),
    ) -> Result<String, GoError> {
        const TICK: Duration = Duration::from_secs(15);
        let failed = |error: io::Error| GoError::Failed { step, output: error.to_string() };
        let started = Instant::now();
        let mut child = go_command(self.module)
            .arg(step)
            .args(flags)
            .args(packages)
            // Go does not read it. But should we be killed, Go goes on as an orphan and must keep
            // the lock, which lives as long as any copy of the file.
            .stdin(self.lock.try_clone().map_err(failed)?)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(failed)?;

        let (sender, lines) = mpsc::channel();
        let mut stdout = child.stdout.take();
        let stderr = child.stderr.take();
        let reader = thread::spawn(move || {
            let mut text = String::new();
            stdout.as_mut().map_or(Ok(0), |stdout| stdout.read_to_string(&mut text)).map(|_| text)
        });
        thread::spawn(move || {
            for line in stderr.into_iter().flat_map(|stderr| BufReader::new(stderr).lines()) {
                let Ok(line) = line else { return };
                if sender.send(line).is_err() {
                    return;
                }
            }
        });

        let mut errors = Vec::new();
        let mut next = TICK;
        loop {
            match lines.recv_timeout(next.saturating_sub(started.elapsed())) {
                Ok(line) => errors.push(line),
                Err(RecvTimeoutError::Timeout) => {
                    tick(started.elapsed().as_secs(), errors.len());
                    next += TICK;
                }
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        let status = child.wait().map_err(failed)?;
        if !status.success() {
            let tail = errors.iter().rev().take(20).rev().cloned().collect::<Vec<_>>().join("\n");
            return Err(GoError::Failed { step, output: format!("{status}\n{tail}") });
        }
        reader.join().unwrap_or_else(|_| Err(io::Error::other("reader panicked"))).map_err(failed)
    }
}

/// The environment decides about registries and caches; only what would make the result depend on
/// the machine is fixed here.
fn go_command(module: &Path) -> Command {
    let mut command = Command::new("go");
    command.current_dir(module).env("CGO_ENABLED", "0").env("GOWORK", "off");
    command
}

fn go_version() -> Result<String, GoError> {
    let output =
        Command::new("go").args(["env", "GOVERSION"]).output().map_err(GoError::NotInstalled)?;
    if !output.status.success() {
        let output = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(GoError::Failed { step: "env GOVERSION", output });
    }
    // A vendor's Go may add words after the version.
    let version = String::from_utf8_lossy(&output.stdout);
    Ok(version.split_whitespace().next().unwrap_or("unknown").to_owned())
}

impl Recipe {
    /// Two builds of the same module with the same flags and the same Go are equal to the bit, so that
    /// is what a directory is named after.
    fn key_prefix(&self) -> String {
        let recipe = [self.go_mod, self.go_sum, &self.linker_flags].concat();
        format!("{}-{:016x}-", self.name, fnv1a(recipe.as_bytes()))
    }
}

/// The standard library's hashers may change with a Rust release; a name on disk may not.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

fn lock(path: &Path, progress: &mut impl FnMut(&str)) -> Result<File, GoError> {
    let lock = files("create", path, File::create(path))?;
    match lock.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            progress("another build is under way, waiting for it");
            files("lock", path, lock.lock())?;
        }
        Err(TryLockError::Error(error)) => files("lock", path, Err(error))?,
    }
    Ok(lock)
}

fn create_dir(path: &Path) -> Result<(), GoError> {
    files("create", path, fs::create_dir_all(path))
}

fn write(path: &Path, text: &str) -> Result<(), GoError> {
    files("write", path, fs::write(path, text))
}

fn files<T>(what: &'static str, path: &Path, result: io::Result<T>) -> Result<T, GoError> {
    result.map_err(|source| GoError::Files { what, path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_as_fnv_1a_is_defined() {
        assert_eq!(fnv1a(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a(b"a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(fnv1a(b"foobar"), 0x8594_4171_f739_67e8);
    }

    #[test]
    fn finds_only_what_was_finished() {
        let cache = tempfile::tempdir().unwrap();
        let recipe = crate::program::recipe();
        let finished = cache.path().join(format!("{}go1.99.0", recipe.key_prefix())).join("bin");
        for name in [
            format!("{}go1.99.0~partial/bin", recipe.key_prefix()),
            "kubernetes-1.0.0-0000000000000000-go1.99.0/bin".to_owned(),
        ] {
            fs::create_dir_all(cache.path().join(name)).unwrap();
        }
        assert_eq!(built(&recipe, cache.path()), None);
        fs::create_dir_all(&finished).unwrap();
        assert_eq!(built(&recipe, cache.path()), Some(finished));
    }
}
