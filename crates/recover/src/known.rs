//! Published hashes, as shipped in `machines/hashes/`. They are names for what was found and
//! guesses to be verified, and never taken for the hash of a machine.

use huepage_color::gf2;

use crate::file::HashFile;

/// File names, without `.toml`, and texts.
const FILES: [(&str, &str); 9] = [
    ("intel-2", include_str!("../../../machines/hashes/intel-2.toml")),
    ("intel-4", include_str!("../../../machines/hashes/intel-4.toml")),
    ("intel-8", include_str!("../../../machines/hashes/intel-8.toml")),
    ("intel-2-bit38", include_str!("../../../machines/hashes/intel-2-bit38.toml")),
    ("intel-4-bit38", include_str!("../../../machines/hashes/intel-4-bit38.toml")),
    ("intel-gen11-8", include_str!("../../../machines/hashes/intel-gen11-8.toml")),
    ("xeon-gold-6130", include_str!("../../../machines/hashes/xeon-gold-6130.toml")),
    ("xeon-e5-1410", include_str!("../../../machines/hashes/xeon-e5-1410.toml")),
    ("xeon-e5-2690", include_str!("../../../machines/hashes/xeon-e5-2690.toml")),
];

/// All of them, by file name.
///
/// # Panics
/// Never: the texts are part of the program, and a test reads each.
pub fn all() -> Vec<(&'static str, HashFile)> {
    let read = |&(name, text): &(&'static str, &str)| {
        (name, HashFile::parse(text).expect("shipped hashes are well-formed"))
    };
    FILES.iter().map(read).collect()
}

/// The published hashes that say the same as `masks` of the address bits in `seen`, parities
/// that are 0 there put aside.
pub fn like(masks: &[u64], seen: u64) -> Vec<&'static str> {
    let cut =
        |masks: &[u64]| gf2::reduce(&masks.iter().map(|mask| mask & seen).collect::<Vec<_>>());
    let same = |file: &HashFile| {
        let reduced = cut(&file.masks());
        reduced.len() == file.masks().len() && reduced == cut(masks)
    };
    all().into_iter().filter(|(_, file)| same(file)).map(|(name, _)| name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shipped_file_is_well_formed_and_named() {
        for (name, file) in all() {
            assert!(!file.masks().is_empty() && !file.source.is_empty(), "{name}");
            assert!(file.measured.is_none(), "{name} was not measured here");
        }
    }

    #[test]
    fn a_hash_is_known_by_its_span_within_the_bits_seen() {
        let masks = [0x1b5f575440 ^ 0x2eb5faa880, 0x2eb5faa880];
        assert_eq!(like(&masks, (1 << 39) - 1), ["intel-4"]);
        let cut = masks.map(|mask| mask & 0x1_fffe_0000);
        assert_eq!(like(&cut, 0x1_fffe_0000), ["intel-4", "intel-4-bit38", "xeon-e5-1410"]);
        assert!(like(&[0x40], (1 << 39) - 1).is_empty());
    }
}
