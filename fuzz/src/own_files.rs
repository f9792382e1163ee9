//! Files that huepage itself has written and somebody may have damaged: the registry of supervisors, the
//! state of the daemon, stored groups.

use std::fs;
use std::os::unix::fs::DirBuilderExt as _;

use huepage::fuzz_entry;
use huepage_color::{CacheLevel, Provenance};
use huepage_linux::color::partition_registry::{Registry, choose_share};
use huepage_linux::control::groups::GroupStore;
use huepage_linux::kernel::procfs::ProcRoot;

use super::value;

/// An entry of the registry under the number of this process, and the colours that are chosen beside what
/// it claims. Seeds have words in the places of number and start, so that the entry counts as alive.
pub fn registry(bytes: &[u8]) {
    let own = std::process::id().cast_signed();
    let start = ProcRoot::default().stat(own).expect("this process").start_time;
    let text = String::from_utf8_lossy(bytes);
    let text = text.replace("@PID@", &own.to_string()).replace("@START@", &start.to_string());
    let dir = tempfile::tempdir().expect("a directory");
    let place = dir.path().join("registry");
    fs::DirBuilder::new().mode(0o700).create(&place).expect("a directory");
    fs::write(place.join(format!("{own}.json")), text).expect("written");
    let registry = Registry::open_at(place, ProcRoot::default()).expect("a private directory");
    value(registry.list());
    value(registry.find_member(1));
    value(registry.find_group("web"));
    let claims = value(registry.claimed(CacheLevel::L2, Provenance::Probed)).unwrap_or_default();
    assert_eq!(choose_share(3, 16, &claims).len(), 3);
}

/// The daemon's state, and a stored group.
pub fn state(bytes: &[u8]) {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("daemon.json");
    fs::write(&file, bytes).expect("written");
    value(fuzz_entry::daemon_state(&file));
    let store = GroupStore::open_at(dir.path().join("groups"), ProcRoot::default()).expect("made");
    fs::write(dir.path().join("groups/web.json"), bytes).expect("written");
    if let Some(Some(group)) = value(store.get("web")) {
        value(store.survivors(&group));
    }
    assert!(store.get("../daemon").is_err(), "a name is no path");
}
