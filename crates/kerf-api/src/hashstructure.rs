//! The hash of the Go library hashstructure, in the way in which Karpenter uses it: format 2, slices as sets, zero values left
//! out, quirks included.
//!
//! A field of a Go struct counts unless it has its zero value. Behind a pointer every value counts, and the zero value is the
//! missing pointer: there [`Struct::field`] is given `Some` whatever the value is. Where there is no pointer, `None` stands
//! for the zero value.

use std::collections::BTreeMap;

use crate::duration::GoDuration;

/// The hash of a Go struct: its name, then its fields in the order of their declaration, those with
/// zero values left out.
#[derive(Clone, Copy, Debug)]
pub struct Struct {
    hash: u64,
}

impl Struct {
    pub fn named(name: &str) -> Self {
        Self { hash: bytes(name.as_bytes()) }
    }

    #[must_use]
    pub fn field(self, name: &str, value: Option<u64>) -> Self {
        match value {
            None => self,
            Some(value) => {
                Self { hash: finished(self.hash ^ ordered(bytes(name.as_bytes()), value)) }
            }
        }
    }

    pub fn hash(self) -> u64 {
        self.hash
    }
}

/// Elements are combined without regard to their order, so that two equal ones cancel each other
/// out.
pub fn list(elements: impl Iterator<Item = u64>) -> u64 {
    elements.fold(0, |hash, element| hash ^ element)
}

/// By the hashes of its values.
pub fn map_of<V>(map: &BTreeMap<String, V>, value: impl Fn(&V) -> u64) -> u64 {
    finished(list(map.iter().map(|(key, of)| ordered(bytes(key.as_bytes()), value(of)))))
}

pub fn map(map: &BTreeMap<String, String>) -> u64 {
    map_of(map, |value| bytes(value.as_bytes()))
}

/// A text that is not behind a pointer.
pub fn text(text: &str) -> Option<u64> {
    (!text.is_empty()).then(|| bytes(text.as_bytes()))
}

pub fn int64(value: i64) -> u64 {
    bytes(&value.to_le_bytes())
}

pub fn int32(value: i32) -> u64 {
    bytes(&value.to_le_bytes())
}

pub fn boolean(value: bool) -> u64 {
    bytes(&[value.into()])
}

/// A length of nothing is a zero value and left out.
pub fn duration(duration: &GoDuration) -> u64 {
    let length = Some(nanoseconds(duration)).filter(|length| *length != 0);
    Struct::named("Duration").field("Duration", length.map(int64)).hash
}

pub(crate) fn nanoseconds(duration: &GoDuration) -> i64 {
    i64::try_from(duration.as_duration().as_nanos()).unwrap_or(i64::MAX)
}

fn ordered(first: u64, second: u64) -> u64 {
    bytes(&[first.to_le_bytes(), second.to_le_bytes()].concat())
}

fn finished(hash: u64) -> u64 {
    bytes(&hash.to_le_bytes())
}

/// What all others are made of: FNV-1, which multiplies before it mixes in a byte; the better known FNV-1a does it afterwards.
pub fn bytes(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        hash.wrapping_mul(0x0100_0000_01b3) ^ u64::from(*byte)
    })
}
