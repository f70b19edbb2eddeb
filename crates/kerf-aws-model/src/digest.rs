//! A number for content, for names that say what they stand for.

/// FNV-1a over the parts, each with its length, so that where one ends counts, and the end of `MurmurHash3`, so that the last byte
/// counts in all bits. Names in an account live longer than a version of a library, so that the function is our own.
pub(crate) fn digest<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut mix = |bytes: &[u8]| {
        for byte in bytes {
            hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    };
    for part in parts {
        mix(&(part.len() as u64).to_le_bytes());
        mix(part);
    }
    for factor in [0xff51_afd7_ed55_8ccd_u64, 0xc4ce_b9fe_1a85_ec53] {
        hash = (hash ^ (hash >> 33)).wrapping_mul(factor);
    }
    hash ^ (hash >> 33)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_do_not_change_with_a_release() {
        let of = |parts: &[&str]| digest(parts.iter().map(|part| part.as_bytes()));
        assert_ne!(of(&["ab", "c"]), of(&["a", "bc"]));
        assert_eq!(
            (of(&[]), of(&["a", "b"])),
            (17_280_346_270_528_514_342, 10_367_048_572_567_043_072)
        );
    }
}
