//! The reader of recorded observations, and all that is done with what it reads: nothing may
//! panic, and what was read is written and read again the same. Hash files with it, also held
//! against what was read.

use huepage_recover::{
    HashFile, RecoverOptions, cluster, known, parse, recover_permuted, render, verify_masks,
};

/// Reads `bytes`; panics where a promise is broken.
pub fn read_and_check(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(file) = HashFile::parse(text) {
        assert_eq!(HashFile::parse(&file.render().unwrap()), Ok(file));
    }
    let Ok(seen) = parse(text) else { return };
    assert_eq!(parse(&render(&seen)).as_ref(), Ok(&seen));
    if seen.list.len() <= 500 {
        let options = RecoverOptions { trials: 50, ..RecoverOptions::default() };
        for (_, file) in known::all().into_iter().take(2) {
            // Recovers the hash as well.
            let _ = verify_masks(&seen, &file.masks(), &options);
        }
        let _ = recover_permuted(&seen, 6);
        let _ = cluster(&seen);
    }
}
