//! What else runs while something is measured: the loads of the promises about the first command and about
//! probing. Each ends when it is dropped.

use std::io;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use clap::ValueEnum;
use tempfile::TempDir;

use crate::harness::{Guard, tool};

/// What else runs.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackgroundLoad {
    /// Nothing of ours
    Idle,
    /// A random walk over 16 MiB on the last CPU
    Walk,
    /// A stream over 16 MiB on CPU 0, where all of what is measured is as well
    Stream,
    /// A build of this project
    Build,
}

/// A load, ended when dropped.
pub struct Noise {
    _load: Option<Guard>,
    _dir: TempDir,
}

impl Noise {
    /// Starts a load and waits until it works.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(load: BackgroundLoad) -> io::Result<Noise> {
        let dir = tempfile::tempdir()?;
        let last = std::thread::available_parallelism()?.get() - 1;
        let command = match load {
            BackgroundLoad::Idle => None,
            BackgroundLoad::Walk => Some(endless("huepage-walk", last)?),
            BackgroundLoad::Stream => Some(endless("huepage-stream", 0)?),
            BackgroundLoad::Build => Some(build(dir.path())),
        };
        let load = command.as_ref().map(Guard::load).transpose()?;
        if load.is_some() {
            std::thread::sleep(Duration::from_secs(2));
        }
        Ok(Noise { _load: load, _dir: dir })
    }
}

/// Works on 16 MiB on one CPU until it is killed.
fn endless(name: &str, cpu: usize) -> io::Result<Command> {
    let mut command = Command::new(tool(name)?);
    command.args(["--kib", "16384", "--seconds", "1e6", "--cpu", &cpu.to_string()]);
    Ok(command)
}

/// Checks this project over and over, into a directory of its own.
fn build(dir: &Path) -> Command {
    let mut command = Command::new("sh");
    let script = "while cargo check --offline --workspace; do rm -rf \"$CARGO_TARGET_DIR\"; done";
    command.args(["-c", script]).env("CARGO_TARGET_DIR", dir.join("target"));
    command.current_dir(env!("CARGO_MANIFEST_DIR"));
    command
}
