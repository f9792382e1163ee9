//! The documents against the binary: exit statuses, commands and options that they name must
//! exist, and every status must be documented.

use assert_cmd::Command;

const README: &str = include_str!("../../../../README.md");
const SPECIFICATION: &str = include_str!("../../../../SPECIFICATION.md");
const STATUSES: &str = include_str!("../../../../docs/reference/exit-statuses.md");
const SERVICE: &str = include_str!("../../../../docs/huepage.service");

fn help(args: &[&str]) -> String {
    let mut command = Command::cargo_bin("huepage").expect("the binary is built");
    let output = command.args(args).arg("--help").output().expect("it runs");
    String::from_utf8(output.stdout).expect("UTF-8")
}

#[test]
fn the_table_of_exit_statuses_is_that_of_the_help() {
    let help = help(&[]);
    let (_, table) = help.split_once("Exit status:\n").expect("a table of statuses");
    let rows = table.lines().map_while(|line| line.trim_start().split_once("  "));
    let mut count = 0;
    for (status, meaning) in rows.filter(|(status, _)| status.parse::<u8>().is_ok()) {
        let documented = match meaning.split_once(" (`run`") {
            Some((short, _)) => format!("| {status} | {short} |"),
            None => format!("| {status} | {meaning} |"),
        };
        assert!(STATUSES.contains(&documented), "the page of exit statuses lacks: {documented}");
        count += 1;
    }
    assert!(count > 10, "only {count} statuses in:\n{help}");
    assert_eq!(STATUSES.lines().filter(|l| is_status_row(l)).count(), count);
}

fn is_status_row(line: &str) -> bool {
    let cell = line.strip_prefix("| ").and_then(|rest| rest.split(' ').next());
    cell.is_some_and(|cell| cell.parse::<u8>().is_ok())
}

#[test]
fn every_command_and_option_of_the_readme_exists() {
    let commands = [
        "run", "attach", "detach", "inspect", "verify", "info", "doctor", "demo", "trace", "sim",
        "group", "daemon", "ctl", "profile", "probe", "warm", "record", "replay", "top",
    ];
    for command in commands {
        assert!(README.contains(&format!("huepage {command}")), "README.md lacks {command}");
    }
    let all: String = commands.iter().map(|command| help(&[command])).collect();
    let options = README.split(|c: char| c.is_whitespace() || "`,.()".contains(c));
    // Options of cargo, which the README also shows.
    let foreign = ["--release", "--workspace", "--path", "--", "--help"];
    for option in options.filter(|w| w.starts_with("--") && !foreign.contains(w)) {
        assert!(all.contains(option), "no command has {option}");
    }
}

#[test]
fn the_readme_has_two_set_up_commands_and_the_checks_run_its_test_command() {
    let (_, start) = README.split_once("## Start").expect("a section on starting");
    let block = start.split("```").nth(1).expect("a block of commands");
    let lines: Vec<&str> = block.lines().skip(1).filter(|l| !l.is_empty()).collect();
    let commands: Vec<&str> =
        lines.iter().map(|l| l.split('#').next().unwrap_or(l).trim()).collect();
    assert_eq!(commands, ["cargo run --release -- demo", "cargo test --workspace"]);
    let checks = include_str!("../../../../.ci/run");
    let runs = |line: &str| !line.starts_with('#') && line.contains(commands[1]);
    assert!(checks.lines().any(runs), ".ci/run does not run {}", commands[1]);
}

#[test]
fn the_layout_has_every_crate() {
    let layout = include_str!("../../../../docs/development/layout.md");
    let crates = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).expect("crates");
    let names = crates.map(|entry| entry.expect("an entry").file_name());
    let names: Vec<String> = names.map(|name| name.to_string_lossy().into_owned()).collect();
    assert!(names.len() >= 8, "{names:?}");
    for name in names {
        assert!(layout.contains(&format!("| `crates/{name}` |")), "the layout lacks {name}");
    }
}

#[test]
fn no_document_promises_what_is_still_to_do() {
    for (name, text) in [("README.md", README), ("SPECIFICATION.md", SPECIFICATION)] {
        for word in ["TODO", "FIXME", "@@"] {
            assert!(!text.contains(word), "{name} holds {word}");
        }
    }
}

#[test]
fn the_unit_makes_sense_to_systemd() {
    let verify = std::process::Command::new("systemd-analyze").arg("--version").output();
    if !verify.is_ok_and(|output| output.status.success()) {
        return huepage_testing::lacks(
            "the_unit_makes_sense_to_systemd",
            "there is no systemd-analyze",
        );
    }
    let installed = "/usr/local/bin/huepage";
    assert!(SERVICE.matches(installed).count() >= 3);
    let text = SERVICE.replace(installed, env!("CARGO_BIN_EXE_huepage"));
    assert_eq!(verified(&text), "", "and nothing else");
    assert!(verified(&text.replace("Type=notify", "Type=odd")).contains("odd"));
}

/// What systemd finds to say of a unit.
fn verified(text: &str) -> String {
    let dir = tempfile::tempdir().expect("a directory");
    let unit = dir.path().join("huepage.service");
    std::fs::write(&unit, text).expect("written");
    let mut command = std::process::Command::new("systemd-analyze");
    let output = command.arg("verify").arg(&unit).output().expect("it runs");
    let said = String::from_utf8(output.stderr).expect("UTF-8");
    // It looks at the units that this machine has, too.
    said.lines().filter(|line| line.contains("huepage.service")).collect()
}
