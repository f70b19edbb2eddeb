//! Where answers go: standard output, or a file that is known to be writable before the work begins.

use std::{
    env, fs,
    io::{self, Write},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use serde::Serialize;

use crate::cli::Format;

/// What every answer for programs begins with.
pub(crate) const API_VERSION: &str = "kerf.sh/v1alpha1";

/// An answer of a command, as programs get it.
pub(crate) trait Answer: Serialize {
    /// As `kind` has it.
    const KIND: &'static str;
}

/// An answer with its version and kind in front.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Versioned<'a, A> {
    api_version: &'static str,
    kind: &'static str,
    #[serde(flatten)]
    answer: &'a A,
}

impl<'a, A: Answer> Versioned<'a, A> {
    fn new(answer: &'a A) -> Self {
        Self { api_version: API_VERSION, kind: A::KIND, answer }
    }
}

/// The answer for programs, or for people as `render` has it.
pub(crate) fn text<A: Answer>(
    answer: &A,
    format: Format,
    render: impl FnOnce(&A) -> String,
) -> Result<String, String> {
    let versioned = Versioned::new(answer);
    match format {
        Format::Table => Ok(render(answer)),
        Format::Json => serde_json::to_string_pretty(&versioned)
            .map(|text| text + "\n")
            .map_err(|error| error.to_string()),
        Format::Yaml => serde_saphyr::to_string(&versioned).map_err(|error| error.to_string()),
    }
}

/// The answer on one line, so that a stream of them can be read line by line.
pub(crate) fn line<A: Answer>(answer: &A) -> serde_json::Result<String> {
    Ok(serde_json::to_string(&Versioned::new(answer))? + "\n")
}

/// To standard output. A reader that has seen enough (`kerf plan | head`) is not an error.
pub(crate) fn print(text: &str) -> io::Result<()> {
    match io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error),
        _ => Ok(()),
    }
}

/// A file to be written at the end. That it cannot be written is found at the beginning.
#[derive(Debug)]
pub(crate) struct Pending {
    path: PathBuf,
    readers: Readers,
}

/// Who may read the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Readers {
    /// Only the user.
    Owner,
    /// As the umask says.
    #[cfg(feature = "simulate")]
    Usual,
}

impl Pending {
    pub(crate) fn open(path: &Path, readers: Readers) -> io::Result<Self> {
        let pending = Self { path: path.to_owned(), readers };
        match fs::metadata(path) {
            Ok(there) if there.is_dir() => return Err(io::ErrorKind::IsADirectory.into()),
            // A file that may not be written is not replaced either.
            Ok(_) => drop(fs::OpenOptions::new().append(true).open(path)?),
            Err(_) => {}
        }
        if pending.is_replaced() {
            // Tried and removed at once: a command that is interrupted leaves nothing behind.
            drop(pending.beside()?);
        }
        Ok(pending)
    }

    /// The whole file or none: it takes the place of an older one only when it is complete.
    pub(crate) fn finish(
        self,
        write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> io::Result<()> {
        if !self.is_replaced() {
            return write(&mut fs::OpenOptions::new().write(true).open(&self.path)?);
        }
        let mut file = self.beside()?;
        write(&mut file)?;
        file.as_file().sync_all()?;
        file.persist(&self.path)?;
        Ok(())
    }

    /// Devices and pipes are written in place.
    fn is_replaced(&self) -> bool {
        fs::metadata(&self.path).is_ok_and(|there| there.is_file()) || !self.path.exists()
    }

    fn beside(&self) -> io::Result<tempfile::NamedTempFile> {
        let directory = self.path.parent().filter(|parent| *parent != Path::new(""));
        let mode = if self.readers == Readers::Owner { 0o600 } else { 0o666 };
        tempfile::Builder::new()
            .permissions(fs::Permissions::from_mode(mode))
            .tempfile_in(directory.unwrap_or(Path::new(".")))
    }
}

/// Whether standard error lets a line be drawn over: a terminal that is not dumb.
#[cfg(feature = "simulate")]
pub(crate) fn draws_on_stderr() -> bool {
    io::IsTerminal::is_terminal(&io::stderr()) && !is_dumb()
}

#[cfg(feature = "simulate")]
pub(crate) fn is_dumb() -> bool {
    env::var_os("TERM").is_some_and(|term| term == "dumb")
}

/// How wide standard output is. Without a terminal and without `COLUMNS` it has no end.
pub(crate) fn width() -> Option<usize> {
    let given = env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    let of_terminal = || {
        let size = rustix::termios::tcgetwinsize(io::stdout()).ok()?;
        Some(usize::from(size.ws_col))
    };
    given.or_else(of_terminal).filter(|columns| *columns > 0)
}
