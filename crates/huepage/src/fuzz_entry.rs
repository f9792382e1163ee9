//! The readers of what comes from outside, for tests and fuzz targets that are not part of this crate:
//! nothing here is used by a command. Errors are given as the line that a person would see.

use std::path::Path;

use huepage_color::{CacheGeometry, CacheKind, CacheLevel};
use huepage_linux::kernel::procfs::ProcRoot;
use serde::de::DeserializeOwned;

use crate::daemon::config::DaemonConfig;
use crate::daemon::group::ColorScale;
use crate::daemon::journal::{JournalEntry, line};
pub use crate::daemon::protocol::DaemonRequest;
use crate::daemon::protocol::{DaemonStatus, GroupStatus};
use crate::daemon::state::DaemonState;
use crate::daemon::{matching, metrics, mistake};
use crate::exit::bad_file;

fn parse(text: &str) -> Result<DaemonConfig, String> {
    let told = |error| mistake::bad(error).to_string();
    DaemonConfig::parse(text, Path::new("daemon.toml")).map_err(told)
}

/// A cache for shares to be of, where none is at hand: 1 MiB, 8 ways.
pub(crate) const CACHE: CacheGeometry = CacheGeometry {
    level: CacheLevel::L2,
    kind: CacheKind::Unified,
    size_bytes: 1 << 20,
    line_bytes: 64,
    ways: 8,
    sets: 2048,
    slices: Some(1),
    shared_cpus: 2,
    last_level: false,
};

/// Reads a configuration of the daemon, and looks for processes of its groups.
///
/// # Errors
/// The first mistake.
pub fn daemon_config(text: &str) -> Result<(), String> {
    let config = parse(text)?;
    let nowhere = ProcRoot("/nonexistent".into());
    let numbers = matching::numbers(&nowhere, &config.groups);
    assert!(matching::Claims::new(&nowhere, &config.groups, &numbers).all().is_empty());
    Ok(())
}

/// Whether such a configuration fits into a cache of so many colours.
///
/// # Errors
/// The first mistake.
pub fn daemon_config_fits(text: &str, colors: u16) -> Result<(), String> {
    let config = parse(text)?;
    let sizes = config
        .fit(&ColorScale { colors, cache: &CACHE }, colors)
        .map_err(|error| error.to_string())?;
    assert!(sizes.iter().all(|size| size.floor <= size.ceiling), "{sizes:?}");
    Ok(())
}

/// Reads the file of `huepage group apply`.
///
/// # Errors
/// The first mistake.
pub fn group_file(text: &str) -> Result<usize, String> {
    let told = |what: String| bad_file("groups.toml".as_ref(), what).to_string();
    crate::cmd::group::file::parse(text).map(|groups| groups.len()).map_err(told)
}

/// Reads the daemon's state, and looks for the members of its groups.
///
/// # Errors
/// When it makes no sense.
pub fn daemon_state(path: &Path) -> Result<(), String> {
    let state = DaemonState::read(path).map_err(|error| error.to_string())?;
    for group in &state.groups {
        let _ = state.colors(&group.name, 16);
        let _ = state.survivors(&group.name, &ProcRoot::default());
    }
    Ok(())
}

/// Reads what a daemon answers, and words it: metrics and lines of decisions.
pub fn daemon_answers(bytes: &[u8]) {
    fn read<T: DeserializeOwned>(bytes: &[u8]) -> Option<T> {
        serde_json::from_slice(bytes).ok()
    }
    if let Some(status) = read::<DaemonStatus>(bytes) {
        assert!(metrics::text(&status, &[]).ends_with('\n'));
    }
    let _ = read::<Vec<GroupStatus>>(bytes);
    let _ = read::<Vec<JournalEntry>>(bytes).map(|all| all.iter().map(line).collect::<Vec<_>>());
}

/// Gives the bytes of a runtime to the plugin for NRI, at once and in parts; what it answers, which is the same.
///
/// # Errors
/// What ends the connection.
pub fn nri(bytes: &[u8], part: usize) -> Result<Vec<u8>, String> {
    let at_once = crate::cmd::nri::answers(std::iter::once(bytes));
    let in_parts = crate::cmd::nri::answers(bytes.chunks(part.max(1)));
    assert_eq!(at_once, in_parts);
    at_once
}
