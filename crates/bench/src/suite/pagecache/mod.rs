//! What `huepage warm` promises: where pages are, what it costs, what it gains, what it may not
//! harm. Each file is one command of `huepage-bench`; here is what they share.

pub mod adverse;
pub mod cases;
pub mod cost;
pub mod effect;
pub mod grep;
pub mod join;
pub mod place;
pub mod pressure;
pub mod server;
pub mod torture;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde::Deserialize;

use crate::harness;
use crate::harness::{Bench, Guard, NamedSamples, Suite, interleaved, progress, timed};
use crate::launch::bounded;

/// After so long `huepage warm` counts as hanging.
const PATIENCE: Duration = Duration::from_secs(1800);

/// The part of a warm's JSON that is looked at.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Warmed {
    /// Files.
    pub files: u64,
    /// Their pages.
    pub pages: u64,
    /// Pages brought into their colour.
    pub placed: u64,
    /// Pages that were in it before.
    pub already: u64,
    /// Pages left where they were, by reason.
    pub left_alone: BTreeMap<String, u64>,
    /// Files not looked at, by reason.
    pub skipped: BTreeMap<String, u64>,
    /// Time it took by its own account, in seconds.
    pub seconds: f64,
    /// Colours of the cache.
    pub of: u16,
    /// The frames kept for it.
    pub zone: Zone,
    /// From start to end of the process, in seconds; not in the JSON.
    pub wall: f64,
}

/// Frames kept.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Zone {
    /// The bound, in pages.
    pub limit_pages: u64,
    /// The most there ever were, in pages.
    pub peak_pages: u64,
}

impl Warmed {
    /// The share of pages that it says are in their colours, 0 to 1.
    pub fn share(&self) -> f64 {
        if self.pages == 0 { 0.0 } else { (self.placed + self.already) as f64 / self.pages as f64 }
    }
}

impl Bench<'_> {
    /// `huepage warm` with arguments.
    pub fn warm_command<I>(&self, args: I) -> Command
    where
        I: IntoIterator,
        I::Item: Into<OsString>,
    {
        let mut command = self.huepage.command(["warm", "--json"]);
        command.args(self.options).args(args.into_iter().map(Into::into));
        command
    }

    /// Runs `huepage warm` to its end.
    ///
    /// # Errors
    /// When it fails or says no JSON; with the last line that it said.
    pub fn warm<I>(&self, args: I) -> io::Result<Warmed>
    where
        I: IntoIterator,
        I::Item: Into<OsString>,
    {
        let end = bounded(&mut self.warm_command(args), PATIENCE)?;
        let (status, said) = (end.status, end.last());
        if status != 0 {
            return Err(io::Error::other(format!("huepage warm ended with {status}: {said}")));
        }
        let no_json = |e| io::Error::other(format!("huepage warm said no JSON ({e}): {said}"));
        let warmed: Warmed = serde_json::from_slice(&end.out).map_err(no_json)?;
        Ok(Warmed { wall: end.wall, ..warmed })
    }

    /// Places a file or tree in the page cache, as options say; all of it, or nearly so.
    ///
    /// # Errors
    /// When that fails, or more than a tenth is left.
    pub fn place(&self, path: &Path, options: &[&str]) -> io::Result<()> {
        let args = options.iter().map(Into::into).chain([path.as_os_str().to_owned()]);
        let share = self.warm(args)?.share();
        let few = || io::Error::other(format!("only {share:.2} of {} was placed", path.display()));
        if share < 0.9 { Err(few()) } else { Ok(()) }
    }

    /// Where to work: the directories that are named, or below the bench's and in memory.
    pub fn places(&self, named: &[PathBuf]) -> Vec<PathBuf> {
        let usual = || vec![self.dir.to_owned(), PathBuf::from("/dev/shm")];
        if named.is_empty() { usual() } else { named.to_vec() }
    }

    /// A directory of its own for files, gone when dropped.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn scratch(&self) -> io::Result<tempfile::TempDir> {
        tempfile::Builder::new().prefix("warm-").tempdir_in(self.dir)
    }
}

/// The size of a cache of a CPU in KiB, as the kernel tells it.
pub fn cache_kib(cpu: usize, index: u32) -> Option<u64> {
    let path = format!("/sys/devices/system/cpu/cpu{cpu}/cache/index{index}/size");
    std::fs::read_to_string(path).ok()?.trim().trim_end_matches('K').parse().ok()
}

/// The tool that reads and writes files.
///
/// # Errors
/// When it is not there.
pub fn tool() -> io::Result<PathBuf> {
    harness::tool("huepage-pagecache")
}

/// Runs a command that prints one JSON value.
///
/// # Errors
/// When it fails; with the last line that it said.
pub fn measured<T: serde::de::DeserializeOwned>(command: &mut Command) -> io::Result<T> {
    harness::measured(command, PATIENCE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::Huepage;

    #[test]
    fn a_warm_s_json_is_read_and_its_failure_told() {
        let dir = tempfile::tempdir().unwrap();
        let script = dir.path().join("huepage");
        let huepage = Huepage { path: script.clone(), ..Huepage::default() };
        let bench = Bench { huepage: &huepage, options: &[], dir: dir.path() };
        let says = |body: &str| {
            use std::os::unix::fs::PermissionsExt;
            std::fs::write(&script, format!("#!/bin/sh\n{body}\n")).unwrap();
            let mode = std::fs::Permissions::from_mode(0o755);
            std::fs::set_permissions(&script, mode).unwrap();
            bench.warm(["x"])
        };
        let warmed = says(r#"echo '{"pages":10,"placed":7,"already":2,"of":16}'"#).unwrap();
        assert!((warmed.share() - 0.9).abs() < 1e-9 && warmed.of == 16);
        let error = says("echo so it was >&2; exit 102").unwrap_err().to_string();
        assert!(error.contains("102") && error.contains("so it was"), "{error}");
        assert!(says("echo nonsense").is_err());
    }
}
