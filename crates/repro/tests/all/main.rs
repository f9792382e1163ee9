//! `huepage-repro` from the command line, on runs short enough for a test.

mod coloris;
mod rocs;
mod romer;
mod scolari;
mod srm;
mod together;

use std::fmt::Write as _;

use assert_cmd::Command;
use serde_json::Value;
use tempfile::TempDir;

/// `huepage-repro`, in two parts: a paper's command, and more arguments.
fn repro(paper: &[&str], arguments: &[&str]) -> Command {
    let mut command = Command::cargo_bin("huepage-repro").expect("built");
    command.args(paper).args(arguments).env("NO_COLOR", "1");
    command
}

fn output(command: &mut Command) -> String {
    let assert = command.assert().success();
    String::from_utf8(assert.get_output().stdout.clone()).expect("text")
}

fn json(command: &mut Command) -> Value {
    serde_json::from_str(&output(command)).expect("JSON")
}

fn refused(mut command: Command, status: i32, what: &str) {
    let assert = command.assert().failure().code(status);
    let text = String::from_utf8(assert.get_output().stderr.clone()).expect("text");
    assert!(text.contains(what), "{text}");
}

/// A trace of loads, as `--trace` takes it.
fn trace(folder: &TempDir, name: &str, addresses: impl Iterator<Item = u64>) -> String {
    let (path, mut text) = (folder.path().join(format!("{name}.din")), String::new());
    addresses.for_each(|address| _ = writeln!(text, "0 {address:x}"));
    std::fs::write(&path, text).expect("a trace");
    format!("{name}={}", path.display())
}
