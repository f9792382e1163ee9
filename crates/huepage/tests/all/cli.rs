//! The command line from outside: help, exit statuses, the form of errors. What commands do
//! once they run is tested beside them.

use crate::common;

use assert_cmd::Command;

fn huepage(args: &[&str]) -> Command {
    let mut command = Command::cargo_bin("huepage").expect("the binary is built");
    command.args(args);
    command
}

/// Standard output, standard error, exit status.
fn output(args: &[&str]) -> (String, String, Option<i32>) {
    let output = huepage(args).output().expect("it runs");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    (text(output.stdout), text(output.stderr), output.status.code())
}

const COMMANDS: [&str; 10] =
    ["run", "attach", "detach", "inspect", "verify", "info", "doctor", "demo", "trace", "sim"];

#[test]
fn help_names_every_command_and_every_exit_status() {
    let (help, _, status) = output(&["--help"]);
    assert_eq!(status, Some(0));
    for command in COMMANDS {
        assert!(help.contains(&format!("\n  {command}")), "{command} is missing:\n{help}");
    }
    for status in (100..=111).chain([0, 1, 2, 125, 126, 127]) {
        assert!(help.contains(&format!("\n  {status:>3}  ")), "{status} is missing:\n{help}");
    }
}

#[test]
fn every_command_explains_itself_with_an_example() {
    for command in COMMANDS {
        let (help, _, status) = output(&[command, "--help"]);
        assert_eq!(status, Some(0), "{command}");
        assert!(help.contains("Example") && help.contains(&format!("huepage {command}")), "{help}");
    }
}

#[test]
fn arguments_that_make_no_sense_end_with_2() {
    let cases: [&[&str]; 10] = [
        &[],
        &["walk"],
        &["run", "--share", "50%"],
        &["run", "--", "true"],
        &["run", "--share", "50%", "--colors", "0", "--", "true"],
        &["run", "--share", "50%", "--strict", "--fallback", "--", "true"],
        &["run", "--share", "50%", "--fault-around", "0", "--", "true"],
        &["run", "--share", "50%", "--stock", "lots", "--", "true"],
        &["attach", "--share", "50%"],
        &["detach", "0"],
    ];
    for case in cases {
        let (out, err, status) = output(case);
        assert_eq!(status, Some(2), "{case:?}: {err}");
        assert!(out.is_empty() && !err.is_empty(), "{case:?}");
    }
}

#[test]
fn what_was_meant_is_said_where_an_option_is_mistyped_or_missing() {
    let cases: [(&[&str], &str); 3] = [
        (&["run", "--shares", "25%", "--", "true"], "did you mean `--share`?"),
        (&["run", "--", "true"], "say `--share 25%` or `--colors 0-3`"),
        (&["profile", "--jsn", "--", "true"], "did you mean `--json`?"),
    ];
    for (args, expected) in cases {
        let (_, err, status) = output(args);
        assert_eq!(status, Some(2), "{args:?}: {err}");
        assert!(err.contains(expected) && err.lines().count() == 1, "{args:?}: {err}");
    }
}

#[test]
fn a_reader_that_has_gone_away_is_no_error() {
    let dir = tempfile::tempdir().unwrap();
    let (text, file) = (dir.path().join("t.lackey"), dir.path().join("t.trace"));
    let lines: String = (0..5000).map(|i| format!(" L {:x},8\n", 0x1000 + i * 64)).collect();
    std::fs::write(&text, lines).unwrap();
    let [text, file] = [&text, &file].map(|path| path.to_str().unwrap());
    let imported = output(&["trace", "import", text, "-o", file, "--program", "ls"]);
    assert_eq!(imported.2, Some(0), "{}", imported.1);
    for args in [
        &["--help"][..],
        &["run", "--help"],
        &["info", "--no-probe"],
        &["info", "--no-probe", "--json"],
        &["trace", "info", file],
        &["trace", "head", file, "-n", "5000"],
        &["trace", "stats", file],
        &["trace", "stats", file, "--json"],
    ] {
        let output = common::unread(std::process::Command::new(common::HUEPAGE).args(args));
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{args:?}: {said}");
        assert!(!said.contains("panicked") && !said.contains("pipe"), "{args:?}: {said}");
    }
}

#[test]
fn nothing_is_colored_in_a_pipe() {
    for args in [&["info", "--no-probe"][..], &["--help"], &["run"]] {
        let (out, err, _) = output(args);
        assert!(!out.contains('\x1b') && !err.contains('\x1b'), "{args:?}");
    }
}

#[test]
fn a_full_disk_is_told_in_a_line_that_says_what_to_do() {
    for args in
        [&["sim", "--policy", "list"][..], &["info", "--no-probe"], &["completions", "fish"]]
    {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("a full disk");
        let mut command = std::process::Command::new(assert_cmd::cargo::cargo_bin("huepage"));
        let output = command.args(args).stdout(full).output().expect("it runs");
        let said = String::from_utf8(output.stderr).expect("UTF-8");
        assert_eq!(output.status.code(), Some(125), "{args:?}: {said}");
        let right = said.starts_with("huepage: cannot write to standard output: ");
        assert!(right && said.ends_with("; make room, or write elsewhere\n"), "{args:?}: {said}");
    }
}
