//! Archives whose bytes follow from their contents alone: no owners, no times but the one that is given.

use std::io::Write;

use anyhow::{Result, ensure};
use flate2::{Compression, write::GzEncoder};

const BLOCK: usize = 512;

/// A tar archive in the format `ustar`.
pub(super) struct Archive {
    bytes: Vec<u8>,
    time: i64,
}

pub(super) struct Entry<'a> {
    kind: u8,
    mode: u32,
    contents: &'a [u8],
}

impl<'a> Entry<'a> {
    pub(super) fn file(contents: &'a [u8]) -> Self {
        Self { kind: b'0', mode: 0o644, contents }
    }

    pub(super) fn program(contents: &'a [u8]) -> Self {
        Self { kind: b'0', mode: 0o755, contents }
    }

    pub(super) fn directory() -> Self {
        Self { kind: b'5', mode: 0o755, contents: &[] }
    }
}

impl Archive {
    /// All entries have this time, in seconds since the epoch.
    pub(super) fn new(time: i64) -> Self {
        Self { bytes: Vec::new(), time }
    }

    pub(super) fn add(&mut self, name: &str, entry: &Entry<'_>) -> Result<()> {
        ensure!(name.len() <= 100, "{name} is too long for a tar archive");
        let mut header = [0; BLOCK];
        let mut put = |at: usize, text: &[u8]| header[at..at + text.len()].copy_from_slice(text);
        put(0, name.as_bytes());
        put(100, format!("{:07o}\0", entry.mode).as_bytes());
        put(108, b"0000000\x000000000\0");
        put(124, format!("{:011o}\0", entry.contents.len()).as_bytes());
        put(136, format!("{:011o}\0", self.time).as_bytes());
        // The sum counts its own place as spaces.
        put(148, b"        ");
        put(156, &[entry.kind]);
        put(257, b"ustar\x0000");
        let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        self.bytes.extend(header);
        self.bytes.extend(entry.contents);
        self.bytes.resize(self.bytes.len().next_multiple_of(BLOCK), 0);
        Ok(())
    }

    pub(super) fn finish(mut self) -> Vec<u8> {
        self.bytes.resize(self.bytes.len() + 2 * BLOCK, 0);
        self.bytes
    }
}

/// Without a name and a time in its header.
pub(super) fn gzip(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes)?;
    Ok(encoder.finish()?)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// Another program reads what this one writes.
    #[test]
    fn tar_lists_what_was_put_in() {
        let mut archive = Archive::new(1_700_000_000);
        archive.add("etc/", &Entry::directory()).unwrap();
        archive.add("etc/passwd", &Entry::file(b"nonroot\n")).unwrap();
        archive.add("kerf", &Entry::program(&[7; 1000])).unwrap();
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), gzip(&archive.finish()).unwrap()).unwrap();
        let mut tar = Command::new("tar");
        let listed = tar.args(["--utc", "-tvzf"]).arg(file.path()).output().unwrap();
        assert_eq!(
            String::from_utf8(listed.stdout)
                .unwrap()
                .split_whitespace()
                .collect::<Vec<_>>()
                .join(" "),
            "drwxr-xr-x 0/0 0 2023-11-14 22:13 etc/ -rw-r--r-- 0/0 8 2023-11-14 22:13 etc/passwd \
             -rwxr-xr-x 0/0 1000 2023-11-14 22:13 kerf"
        );
    }
}
