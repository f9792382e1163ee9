//! What a container runtime sends to the plugin for NRI: frames, calls and their messages, cut anywhere.

use huepage::fuzz_entry;

use super::value;

/// The plugin answers the same however the bytes come, and no more than a few times what it was told.
pub fn read_and_check(bytes: &[u8]) {
    let Some((first, rest)) = bytes.split_first() else { return };
    if let Some(answers) = value(fuzz_entry::nri(rest, usize::from(*first))) {
        assert!(answers.len() <= 64 * bytes.len(), "{} bytes", answers.len());
    }
}
