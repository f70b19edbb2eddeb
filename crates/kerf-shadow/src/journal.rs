//! A directory with a record: files that begin with everything there is and go on with what changes.
//!
//! `record-000001.jsonl` is the first. A file is begun under another name and gets its own when its base is complete, so a reader
//! never sees half of one. A line that was cut off by a crash is cut off for good when the next recorder opens the directory.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, BufRead, BufReader, BufWriter, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
};

use jiff::Timestamp;

use crate::{
    entry::{Entry, Header, VERSION, What},
    state::State,
};

/// How large a record gets.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// A file that is larger is followed by another.
    pub file: u64,
    /// When all files are larger, the oldest is deleted.
    pub all: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { file: 16 << 20, all: 1 << 30 }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    #[error("cannot {what} {}: {source}", path.display())]
    Io { what: &'static str, path: PathBuf, source: io::Error },
    #[error("another kerf shadow writes to {}; stop it, or give another directory", dir.display())]
    InUse { dir: PathBuf },
    #[error(
        "{} has no record; make one with kerf shadow --record {}",
        dir.display(), dir.display()
    )]
    Empty { dir: PathBuf },
    #[error("{} line {line} is no entry of a record: {problem}", path.display())]
    Line { path: PathBuf, line: usize, problem: String },
    #[error(
        "{} was written by another version of kerf (format {found}; this one reads {VERSION}); use that version, or another directory",
        path.display()
    )]
    Version { path: PathBuf, found: u32 },
    #[error("{} has the record of another cluster; give another directory", dir.display())]
    OtherCluster { dir: PathBuf },
}

/// A record that is being written.
#[derive(Debug)]
pub struct Journal {
    dir: PathBuf,
    limits: Limits,
    cluster: String,
    /// Locked as long as this lives.
    _lock: File,
    current: Option<Current>,
}

#[derive(Debug)]
struct Current {
    number: u32,
    path: PathBuf,
    file: BufWriter<File>,
    start: Timestamp,
    last: u64,
    size: u64,
}

impl Journal {
    /// Opens a directory to write, and gives back what its record says of the cluster, and until when.
    pub(crate) fn open(
        dir: &Path,
        limits: Limits,
    ) -> Result<(Self, State, Option<Timestamp>), JournalError> {
        fs::create_dir_all(dir).map_err(failed("make the directory", dir))?;
        let path = dir.join("record.lock");
        let lock = File::create(&path).map_err(failed("create", &path))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(fs::TryLockError::WouldBlock) => {
                return Err(JournalError::InUse { dir: dir.to_owned() });
            }
            Err(fs::TryLockError::Error(source)) => return Err(failed("lock", &path)(source)),
        }
        let mut journal = Self {
            dir: dir.to_owned(),
            limits,
            cluster: String::new(),
            _lock: lock,
            current: None,
        };
        let mut state = State::default();
        let Some((number, path)) = files(dir)?.pop() else { return Ok((journal, state, None)) };
        let whole = whole_lines(&path)?;
        let file = OpenOptions::new().write(true).open(&path).map_err(failed("open", &path))?;
        file.set_len(whole).map_err(failed("cut", &path))?;
        let mut reader = FileReader::open(&path)?;
        let (header, mut last) = (reader.header.clone(), 0);
        while let Some(Entry(at, what)) = reader.next()? {
            last = at;
            state.apply(what);
        }
        let mut file = BufWriter::new(file);
        file.seek(SeekFrom::End(0)).map_err(failed("open", &path))?;
        let (start, until) = (header.start, time(header.start, last));
        journal.cluster = header.cluster;
        journal.current = Some(Current { number, path, file, start, last, size: whole });
        Ok((journal, state, Some(until)))
    }

    /// Says which cluster this is. A record is of one cluster.
    pub(crate) fn identify(&mut self, cluster: &str) -> Result<(), JournalError> {
        if !self.cluster.is_empty() && !cluster.is_empty() && self.cluster != cluster {
            return Err(JournalError::OtherCluster { dir: self.dir.clone() });
        }
        cluster.clone_into(&mut self.cluster);
        Ok(())
    }

    /// Whether there is a file to go on with.
    pub(crate) fn has_begun(&self) -> bool {
        self.current.is_some()
    }

    pub(crate) fn append(&mut self, now: Timestamp, what: What) -> Result<(), JournalError> {
        match &mut self.current {
            Some(current) => current.append(now, what),
            None => Ok(()),
        }
    }

    /// What was written is with the operating system after this: it survives the end of this process.
    pub(crate) fn flush(&mut self) -> Result<(), JournalError> {
        let Some(current) = &mut self.current else { return Ok(()) };
        current.file.flush().map_err(failed("write", &current.path))
    }

    /// And after this it is on the disk.
    pub(crate) fn sync(&mut self) -> Result<(), JournalError> {
        self.flush()?;
        let Some(current) = &self.current else { return Ok(()) };
        current.file.get_ref().sync_data().map_err(failed("write", &current.path))
    }

    pub(crate) fn is_full(&self) -> bool {
        self.current.as_ref().is_none_or(|current| current.size >= self.limits.file)
    }

    /// Begins the next file with everything there is, and deletes the oldest ones that are too much.
    pub(crate) fn rotate(&mut self, now: Timestamp, base: Vec<What>) -> Result<(), JournalError> {
        self.sync()?;
        let number = self.current.as_ref().map_or(1, |current| current.number + 1);
        let path = self.dir.join(format!("record-{number:06}.jsonl"));
        let partial = path.with_extension("partial");
        let file = File::create(&partial).map_err(failed("create", &partial))?;
        let mut next = Current {
            number,
            path: partial.clone(),
            file: BufWriter::new(file),
            start: now,
            last: 0,
            size: 0,
        };
        let header = Header { kerf_record: VERSION, start: now, cluster: self.cluster.clone() };
        next.line(&header)?;
        for what in base {
            next.append(now, what)?;
        }
        next.file.flush().map_err(failed("write", &partial))?;
        next.file.get_ref().sync_data().map_err(failed("write", &partial))?;
        fs::rename(&partial, &path).map_err(failed("rename", &partial))?;
        next.path = path;
        self.current = Some(next);
        self.shrink()
    }

    fn shrink(&self) -> Result<(), JournalError> {
        let mut sizes = Vec::new();
        for (_, path) in files(&self.dir)? {
            let size = fs::metadata(&path).map_err(failed("look at", &path))?.len();
            sizes.push((path, size));
        }
        let mut all: u64 = sizes.iter().map(|(_, size)| size).sum();
        let newest = sizes.len().saturating_sub(1);
        for (path, size) in &sizes[..newest] {
            if all <= self.limits.all {
                break;
            }
            fs::remove_file(path).map_err(failed("delete", path))?;
            all -= size;
        }
        Ok(())
    }
}

impl Current {
    fn append(&mut self, now: Timestamp, what: What) -> Result<(), JournalError> {
        let at = now.as_millisecond() - self.start.as_millisecond();
        // A clock that is set back does not turn the order of things around.
        self.last = self.last.max(u64::try_from(at).unwrap_or_default());
        self.line(&Entry(self.last, what))
    }

    fn line(&mut self, value: &impl serde::Serialize) -> Result<(), JournalError> {
        let wrong = |source| failed("write", &self.path)(source);
        let mut line = serde_json::to_vec(value).map_err(|error| wrong(error.into()))?;
        line.push(b'\n');
        self.size += line.len() as u64;
        self.file.write_all(&line).map_err(failed("write", &self.path))
    }
}

/// A record that is read.
#[derive(Clone, Debug)]
pub struct Trace {
    files: Vec<PathBuf>,
    start: Timestamp,
    bytes: u64,
}

/// An entry, by its time.
#[derive(Debug, PartialEq)]
pub(crate) struct Seen {
    pub(crate) at: Timestamp,
    pub(crate) what: What,
    /// Whether it was so when the record began.
    pub(crate) of_base: bool,
}

impl Trace {
    /// Opens a directory to read. Someone may write to it meanwhile.
    pub fn open(dir: &Path) -> Result<Self, JournalError> {
        let files: Vec<PathBuf> = files(dir)?.into_iter().map(|(_, path)| path).collect();
        let first = files.first().ok_or_else(|| JournalError::Empty { dir: dir.to_owned() })?;
        let start = FileReader::open(first)?.header.start;
        let sizes = files.iter().filter_map(|path| fs::metadata(path).ok());
        let bytes = sizes.map(|about| about.len()).sum();
        Ok(Self { files, start, bytes })
    }

    /// When the record begins. Older files may have been deleted.
    pub fn start(&self) -> Timestamp {
        self.start
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Goes through all entries in order, each with what the error type of the caller allows.
    pub(crate) fn each<E: From<JournalError>>(
        &self,
        mut take: impl FnMut(Seen) -> Result<(), E>,
    ) -> Result<(), E> {
        for (index, path) in self.files.iter().enumerate() {
            let mut reader = FileReader::open(path)?;
            let mut in_base = false;
            while let Some(Entry(at, what)) = reader.next()? {
                match what {
                    What::BaseBegins => in_base = true,
                    What::BaseEnds => in_base = false,
                    // Later files repeat what is known.
                    _ if in_base && index > 0 => {}
                    what => {
                        take(Seen { at: time(reader.header.start, at), what, of_base: in_base })?;
                    }
                }
            }
        }
        Ok(())
    }
}

struct FileReader {
    path: PathBuf,
    header: Header,
    lines: BufReader<File>,
    line: usize,
    buffer: String,
}

impl FileReader {
    fn open(path: &Path) -> Result<Self, JournalError> {
        let file = File::open(path).map_err(failed("open", path))?;
        let mut lines = BufReader::new(file);
        let mut buffer = String::new();
        lines.read_line(&mut buffer).map_err(failed("read", path))?;
        let header: Header = serde_json::from_str(&buffer).map_err(|error| JournalError::Line {
            path: path.to_owned(),
            line: 1,
            problem: error.to_string(),
        })?;
        if header.kerf_record != VERSION {
            return Err(JournalError::Version { path: path.to_owned(), found: header.kerf_record });
        }
        Ok(Self { path: path.to_owned(), header, lines, line: 1, buffer })
    }

    /// A line without an end is still being written.
    fn next(&mut self) -> Result<Option<Entry>, JournalError> {
        self.buffer.clear();
        self.lines.read_line(&mut self.buffer).map_err(failed("read", &self.path))?;
        if !self.buffer.ends_with('\n') {
            return Ok(None);
        }
        self.line += 1;
        let entry = serde_json::from_str(&self.buffer).map_err(|error| JournalError::Line {
            path: self.path.clone(),
            line: self.line,
            problem: error.to_string(),
        })?;
        Ok(Some(entry))
    }
}

fn time(start: Timestamp, at: u64) -> Timestamp {
    let at = jiff::SignedDuration::from_millis(i64::try_from(at).unwrap_or(i64::MAX));
    start.saturating_add(at).unwrap_or(start)
}

/// The files of a record in their order, with their numbers.
fn files(dir: &Path) -> Result<Vec<(u32, PathBuf)>, JournalError> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed("read", dir)(error)),
    };
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.map_err(failed("read", dir))?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let number = name.strip_prefix("record-").and_then(|rest| rest.strip_suffix(".jsonl"));
        if let Some(number) = number.and_then(|number| number.parse().ok()) {
            files.push((number, path));
        }
    }
    files.sort();
    Ok(files)
}

/// How many bytes of a file are whole lines.
fn whole_lines(path: &Path) -> Result<u64, JournalError> {
    let file = File::open(path).map_err(failed("open", path))?;
    let (mut reader, mut whole, mut line) = (BufReader::new(file), 0, Vec::new());
    loop {
        line.clear();
        let read = reader.read_until(b'\n', &mut line).map_err(failed("read", path))?;
        if !line.ends_with(b"\n") {
            return Ok(whole);
        }
        whole += read as u64;
    }
}

fn failed(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> JournalError + use<> {
    let path = path.to_owned();
    move |source| JournalError::Io { what, path, source }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::{ObjectKey, Phase, Pod};
    use serde_json::json;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_767_225_600 + second).unwrap()
    }

    fn pool(name: &str) -> What {
        What::Object(json!({"kind": "NodePool", "metadata": {"name": name}}))
    }

    fn base(state: &mut State, what: &[What]) -> Vec<What> {
        what.iter().cloned().for_each(|what| state.apply(what));
        state.base()
    }

    fn read(dir: &Path) -> Vec<(i64, What, bool)> {
        let mut all = Vec::new();
        let trace = Trace::open(dir).unwrap();
        let each: Result<(), JournalError> = trace.each(|seen| {
            all.push((seen.at.as_second() - 1_767_225_600, seen.what, seen.of_base));
            Ok(())
        });
        each.unwrap();
        all
    }

    #[test]
    fn a_record_goes_on_where_it_was_cut_off() {
        let dir = tempfile::tempdir().unwrap();
        let (mut journal, mut state, until) = Journal::open(dir.path(), Limits::default()).unwrap();
        assert_eq!(until, None);
        journal.rotate(at(0), base(&mut state, &[pool("a")])).unwrap();
        journal.append(at(5), pool("b")).unwrap();
        journal.flush().unwrap();
        let again = Journal::open(dir.path(), Limits::default()).unwrap_err().to_string();
        assert!(again.contains("another kerf shadow writes to"), "{again}");
        drop(journal);
        let file = dir.path().join("record-000001.jsonl");
        let mut text = fs::read_to_string(&file).unwrap();
        text.push_str("[9000,{\"podGo");
        fs::write(&file, text).unwrap();

        let (mut journal, state, until) = Journal::open(dir.path(), Limits::default()).unwrap();
        assert_eq!(until, Some(at(5)));
        assert_eq!(state.counts(), (0, 2));
        journal.append(at(3), What::Alive).unwrap();
        journal.append(at(60), What::Blind(55_000)).unwrap();
        journal.sync().unwrap();
        assert_eq!(
            read(dir.path()),
            [
                (0, pool("a"), true),
                (5, pool("b"), false),
                (5, What::Alive, false),
                (60, What::Blind(55_000), false),
            ]
        );
    }

    #[test]
    fn a_record_has_a_size_and_loses_its_oldest_part() {
        let dir = tempfile::tempdir().unwrap();
        let limits = Limits { file: 300, all: 800 };
        let (mut journal, mut state, _) = Journal::open(dir.path(), limits).unwrap();
        journal.rotate(at(0), base(&mut state, &[pool("a")])).unwrap();
        let key = ObjectKey { kind: "NodePool".into(), namespace: String::new(), name: "a".into() };
        for second in 1..100 {
            let pod = Pod {
                id: format!("{second:016x}"),
                of: 1,
                node: String::new(),
                phase: Phase::Pending,
                leaves: false,
                evicted: None,
            };
            state.apply(What::PodGone(format!("{:016x}", second - 1)));
            journal.append(at(second), What::Pod(pod.clone())).unwrap();
            state.apply(What::Pod(pod));
            if journal.is_full() {
                journal.rotate(at(second), state.base()).unwrap();
            }
        }
        let sizes: u64 = files(dir.path())
            .unwrap()
            .iter()
            .map(|(_, path)| fs::metadata(path).unwrap().len())
            .sum();
        assert!(sizes <= limits.all + limits.file, "{sizes}");
        let all = read(dir.path());
        assert!(all[0].0 > 50, "what is old is gone: {:?}", all[0]);
        assert!(all[0].2 && all.iter().filter(|(_, _, of_base)| *of_base).count() == 2, "{all:?}");
        assert_eq!(all.last().unwrap().0, 99);
        journal.append(at(100), What::ObjectGone(key)).unwrap();
    }

    #[test]
    fn a_directory_belongs_to_one_cluster_and_one_format() {
        let dir = tempfile::tempdir().unwrap();
        let told = Trace::open(dir.path()).unwrap_err().to_string();
        assert!(told.contains("has no record; make one with kerf shadow --record"), "{told}");
        let (mut journal, mut state, _) = Journal::open(dir.path(), Limits::default()).unwrap();
        journal.identify("one").unwrap();
        journal.rotate(at(0), state.base()).unwrap();
        drop(journal);
        let (mut journal, _, _) = Journal::open(dir.path(), Limits::default()).unwrap();
        journal.identify("one").unwrap();
        let told = journal.identify("two").unwrap_err().to_string();
        assert!(told.contains("has the record of another cluster"), "{told}");
        let file = dir.path().join("record-000002.jsonl");
        fs::write(&file, "{\"kerfRecord\":9,\"start\":\"2026-01-01T00:00:00Z\"}\n").unwrap();
        drop(journal);
        let told = Journal::open(dir.path(), Limits::default()).unwrap_err().to_string();
        assert!(told.contains("format 9; this one reads 1"), "{told}");
    }
}
