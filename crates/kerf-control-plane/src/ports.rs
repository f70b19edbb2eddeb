//! Ports on 127.0.0.1 that no other cluster of ours will use.

use std::fs::{self, File, TryLockError};
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};

/// Below 32768, where Linux starts to hand out ports to outgoing connections: a port taken from that
/// range can be in use by some connection by the time its component binds it.
const FIRST: u16 = 20_000;
const LAST: u16 = 31_999;
pub(crate) const BLOCK: u16 = 16;

/// Sixteen consecutive ports, kept for one cluster by a lock on a file. The lock goes with the open
/// file, which the cluster's guard inherits; so it ends when the cluster does, however it ends.
#[derive(Debug)]
pub(crate) struct PortBlock {
    first: u16,
    lock: File,
}

#[derive(Debug, thiserror::Error)]
pub enum PortError {
    #[error("could not open the port lock {}", path.display())]
    Lock { path: PathBuf, source: io::Error },
    #[error("no {BLOCK} free ports in a row between {FIRST} and {LAST} on 127.0.0.1")]
    Exhausted,
}

impl PortBlock {
    /// Takes the first block that nobody holds and whose ports are all free. `start` says where to
    /// begin looking, so that processes that start together do not all fight for the same block.
    pub(crate) fn reserve(locks: &Path, start: u32) -> Result<Self, PortError> {
        fs::create_dir_all(locks)
            .map_err(|source| PortError::Lock { path: locks.to_owned(), source })?;
        let blocks = (LAST - FIRST + 1) / BLOCK;
        let offset = u16::try_from(start % u32::from(blocks)).unwrap_or(0);
        for index in 0..blocks {
            let first = FIRST + (offset + index) % blocks * BLOCK;
            if let Some(block) = Self::try_reserve(locks, first)? {
                return Ok(block);
            }
        }
        Err(PortError::Exhausted)
    }

    pub(crate) fn port(&self, index: u16) -> u16 {
        debug_assert!(index < BLOCK);
        self.first + index
    }

    /// The locked file, to be inherited by the process that must outlive the cluster's components.
    pub(crate) fn lock(&self) -> io::Result<File> {
        self.lock.try_clone()
    }

    fn try_reserve(locks: &Path, first: u16) -> Result<Option<Self>, PortError> {
        let path = locks.join(first.to_string());
        let lock =
            File::create(&path).map_err(|source| PortError::Lock { path: path.clone(), source })?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(source)) => return Err(PortError::Lock { path, source }),
        }
        // Held by something that is not ours, and does not know about locks.
        let free = (first..first + BLOCK)
            .all(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok());
        Ok(free.then_some(Self { first, lock }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wait::poll_blocking;

    fn is_free(locks: &Path, first: u16) -> bool {
        PortBlock::try_reserve(locks, first).unwrap().is_some()
    }

    /// Soon, not at once: a process that another test is just starting has a copy of every open file
    /// until it runs its program.
    fn becomes_free(locks: &Path, first: u16) -> bool {
        poll_blocking(|| is_free(locks, first))
    }

    #[test]
    fn two_blocks_do_not_overlap() {
        let locks = tempfile::tempdir().unwrap();
        let one = PortBlock::reserve(locks.path(), 7).unwrap();
        let two = PortBlock::reserve(locks.path(), 7).unwrap();
        assert!(one.port(0).abs_diff(two.port(0)) >= BLOCK, "{one:?} {two:?}");
    }

    #[test]
    fn a_dropped_block_can_be_reserved_again() {
        let locks = tempfile::tempdir().unwrap();
        let first = PortBlock::reserve(locks.path(), 11).unwrap().port(0);
        assert!(becomes_free(locks.path(), first));
    }

    #[test]
    fn a_block_stays_reserved_while_an_heir_of_the_lock_lives() {
        let locks = tempfile::tempdir().unwrap();
        let block = PortBlock::reserve(locks.path(), 13).unwrap();
        let (first, heir) = (block.port(0), block.lock().unwrap());
        drop(block);
        assert!(!is_free(locks.path(), first));
        drop(heir);
        assert!(becomes_free(locks.path(), first));
    }

    #[test]
    fn a_block_with_a_port_in_use_is_passed_over() {
        let locks = tempfile::tempdir().unwrap();
        let first = PortBlock::reserve(locks.path(), 17).unwrap().port(0);
        assert!(becomes_free(locks.path(), first));
        let _taken = TcpListener::bind((Ipv4Addr::LOCALHOST, first + 5)).unwrap();
        assert!(!is_free(locks.path(), first));
    }
}
