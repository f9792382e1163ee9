//! The reader of recorded observations, and all that is done with what it reads: nothing may
//! panic, and what was read is written and read again the same. Hash files with it.

#![no_main]

use huepage_recover::{HashFile, Options, cluster, parse, recover, recover_permuted, render};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(file) = HashFile::parse(text) {
        assert_eq!(HashFile::parse(&file.render().unwrap()), Ok(file));
    }
    let Ok(seen) = parse(text) else { return };
    assert_eq!(parse(&render(&seen)).as_ref(), Ok(&seen));
    if seen.list.len() <= 500 {
        let _ = recover(&seen, &Options { trials: 50, ..Options::default() });
        let _ = recover_permuted(&seen, 6);
        let _ = cluster(&seen);
    }
});
