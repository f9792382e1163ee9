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
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::harness;
use crate::harness::{Bench, Guard, NamedSamples, Suite, progress, timed};
use crate::launch;

/// After so long `huepage warm` counts as hanging.
const PATIENCE: Duration = Duration::from_secs(1800);

/// The part of a warm's JSON that is looked at.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
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
    pub refused: BTreeMap<String, u64>,
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
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
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
        let started = Instant::now();
        let output = launch::bounded(&mut self.warm_command(args), PATIENCE)?;
        let wall = started.elapsed().as_secs_f64();
        let status = launch::shell_status(output.status);
        let said = String::from_utf8_lossy(&output.stderr);
        let said = said.lines().last().unwrap_or_default();
        if status != 0 {
            return Err(io::Error::other(format!("huepage warm ended with {status}: {said}")));
        }
        let warmed: Warmed = serde_json::from_slice(&output.stdout)
            .map_err(|e| io::Error::other(format!("huepage warm said no JSON ({e}): {said}")))?;
        Ok(Warmed { wall, ..warmed })
    }

    /// A directory of its own for files, gone when dropped.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn scratch(&self) -> io::Result<tempfile::TempDir> {
        tempfile::Builder::new().prefix("warm-").tempdir_in(self.dir)
    }
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
        let huepage = Huepage { path: script.clone() };
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
