//! The readers of files that an administrator writes: the daemon's configuration, groups, machines.

use huepage::fuzz_entry;
use huepage_sim::machine::Machine;

use super::value;

/// The daemon's configuration, and how it fits into caches of some sizes.
pub fn config(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if value(fuzz_entry::daemon_config(text)).is_some() {
        for colors in [1, 16, 64, 1024] {
            value(fuzz_entry::daemon_config_fits(text, colors));
        }
    }
}

/// The file of `huepage group apply`.
pub fn groups(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    value(fuzz_entry::group_file(text));
}

/// Machine files.
pub fn machine(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    value(Machine::parse(text));
}
