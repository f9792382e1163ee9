//! What `huepage trace` records with: the first that is to be had of QEMU's user mode with the plugin, DynamoRIO and
//! lackey, on machines where each is another; and the plugin for emulators that Debian 12 does not have. What cannot be
//! installed here is stood in for.

use crate::common;

use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use huepage_sim::record::{AccessKind, Record};
use huepage_sim::trace::TraceReader;
use serde_json::Value;
use tempfile::TempDir;

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn records(machine: &TempDir) -> Vec<Record> {
    let file = File::open(machine.path().join("out.trace")).unwrap();
    TraceReader::new(BufReader::new(file)).unwrap().map(Result::unwrap).collect()
}

/// Stands in for DynamoRIO, of which Debian has no package: it runs the program, leaves a trace where it is told to,
/// and prints one as drmemtrace does.
const DRRUN: &str = r#"#!/bin/sh
folder=
case "$*" in
    "-t drmemtrace -tool view -indir "*/drmemtrace.of.1.dir)
        [ -e "$6/raw" ] || exit 3
        echo "<--record#-> <--instr#->: <---tid---> <record details>" >&2
        echo "1 0: 71 <marker: version 6>" >&2
        echo "2 1: 71 ifetch 4 byte(s) @ 0x0000000000401000 non-branch" >&2
        echo "3 1: 71 write 8 byte(s) @ 0x0000000000601000 by PC 0x0000000000401000" >&2
        echo "4 2: 72 ifetch 4 byte(s) @ 0x0000000000402000 non-branch" >&2
        echo "5 2: 72 read 8 byte(s) @ 0x0000000000601000 by PC 0x0000000000402000" >&2
        exit "${DRRUN_VIEW:-0}" ;;
    "-no_follow_children -t drmemtrace -offline -outdir "*" -- "*)
        mkdir "$6/drmemtrace.of.1.dir" && : > "$6/drmemtrace.of.1.dir/raw"
        shift 7
        exec "$@" ;;
esac
exit 4
"#;

/// A machine with nothing but a shell, `mkdir`, and the tools that are given: their names and texts.
fn machine(tools: &[(&str, &str)]) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    for name in ["sh", "mkdir"] {
        std::os::unix::fs::symlink(Path::new("/bin").join(name), dir.path().join(name)).unwrap();
    }
    for (name, text) in tools {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(path, mode).unwrap();
    }
    dir
}

/// Records `sh -c SCRIPT` there.
fn recorded_on(machine: &TempDir, options: &[&str], script: &str) -> Output {
    let mut command = Command::new(common::HUEPAGE);
    command.args(["trace", "--force", "-o"]).arg(machine.path().join("out.trace")).args(options);
    command.args(["--", "/bin/sh", "-c", script]).env("PATH", machine.path());
    command.stdin(Stdio::null()).output().unwrap()
}

/// An emulator as Debian 13 has it, which exports nothing to plugins.
const STATIC_QEMU: (&str, &str) = ("qemu-x86_64", "#!/bin/sh\nexit 5\n");

#[test]
fn where_qemu_takes_no_plugins_dynamorio_records_and_one_line_says_why() {
    let machine = machine(&[STATIC_QEMU, ("drrun", DRRUN)]);
    let output = recorded_on(&machine, &[], "echo out; exit 7");
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(7), &b"out\n"[..]));
    let said = said(&output);
    let first = said.lines().next().unwrap();
    assert!(
        first.starts_with("huepage: recording with DynamoRIO: ")
            && first.ends_with("takes no plugins"),
        "{said}"
    );
    let reader =
        TraceReader::new(BufReader::new(File::open(machine.path().join("out.trace")).unwrap()))
            .unwrap();
    let records: Vec<Record> = reader.map(Result::unwrap).collect();
    let seen = records.iter().map(|r| (r.kind, r.address.0, r.thread, r.instructions));
    let expected = [(AccessKind::Store, 0x60_1000, 0, 1), (AccessKind::Load, 0x60_1000, 1, 1)];
    assert_eq!(seen.collect::<Vec<_>>(), expected);
    let left = std::fs::read_dir(machine.path())
        .unwrap()
        .filter(|e| e.as_ref().unwrap().path().is_dir())
        .count();
    assert_eq!(left, 0, "what DynamoRIO wrote is gone");
}

#[test]
fn a_report_as_json_has_why_another_recorder_was_chosen_among_its_notes() {
    let output = recorded_on(&machine(&[STATIC_QEMU, ("drrun", DRRUN)]), &["--json"], "exit 0");
    let report: Value =
        serde_json::from_slice(&output.stderr).unwrap_or_else(|e| panic!("{e}: {}", said(&output)));
    assert_eq!(
        (&report["threads"], &report["summary"]["records"]),
        (&2.into(), &2.into()),
        "{report}"
    );
    let notes = report["notes"].to_string();
    assert!(notes.contains("neither children") && notes.contains("takes no plugins"), "{notes}");
}

#[test]
fn a_trace_of_dynamorio_that_ends_early_or_is_missing_fails() {
    let machine = machine(&[("drrun", &DRRUN.replace("${DRRUN_VIEW:-0}", "9"))]);
    let output = recorded_on(&machine, &["--recorder=dynamorio"], "exit 0");
    assert_eq!(output.status.code(), Some(125), "{}", said(&output));
    assert!(said(&output).contains("drmemtrace failed (exit status: 9)"), "{}", said(&output));
    let idle = DRRUN.replace("mkdir", "[ -d").replace(".dir\" &&", ".dir\" ] ||");
    let machine = self::machine(&[("drrun", &idle)]);
    let output = recorded_on(&machine, &["--recorder=dynamorio"], "exit 0");
    assert!(said(&output).contains("it left 0 traces where one was expected"), "{}", said(&output));
}

#[test]
fn without_plugins_and_dynamorio_lackey_records_and_without_that_it_says_what_to_install() {
    let lackey = "#!/bin/sh\nfor word; do case $word in --log-fd=*) fd=${word#*=} ;; esac; done\necho ' S 601000,8' >&$fd\n";
    let output = recorded_on(&machine(&[STATIC_QEMU, ("valgrind", lackey)]), &[], "exit 0");
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let said_first = said(&output).lines().next().unwrap().to_owned();
    for part in [
        "recording with lackey, which is many times slower",
        "takes no plugins",
        "`drrun` of DynamoRIO was not found",
    ] {
        assert!(said_first.contains(part), "{said_first}");
    }
    let output = recorded_on(&machine(&[]), &[], "exit 0");
    assert_eq!(output.status.code(), Some(125), "{}", said(&output));
    assert!(said(&output).contains("apt-get install qemu-user"), "{}", said(&output));
}

/// Stands in for a QEMU with plugins of versions 2 to 5; `None` without a compiler.
fn emulator(test: &str) -> Option<TempDir> {
    let machine = machine(&[]);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/record/emulator.c");
    let mut gcc = Command::new("gcc");
    gcc.args(["-O1", "-rdynamic", "-o"]).arg(machine.path().join("qemu-x86_64")).arg(source);
    match gcc.arg("-ldl").status() {
        Ok(status) => assert!(status.success(), "emulator.c does not compile"),
        Err(error) => {
            common::skip(test, format!("gcc: {error}; run scripts/setup-programs.sh"));
            return None;
        }
    }
    Some(machine)
}

#[test]
fn emulators_since_9_0_load_the_plugin_and_it_records_all_that_they_tell() {
    let Some(machine) = emulator("emulators since 9.0") else { return };
    for interface in ["2", "3", "4", "5"] {
        let mut command = Command::new(common::HUEPAGE);
        command.args(["trace", "--force", "-o"]).arg(machine.path().join("out.trace"));
        command.args(["--recorder=qemu", "--", "/bin/true", "1000"]);
        command.env("PATH", machine.path()).env("INTERFACE", interface);
        let output = command.output().unwrap();
        assert!(output.status.success(), "version {interface}: {}", said(&output));
        let records = records(&machine);
        let expected = (0..1000).map(|i| (AccessKind::Store, 0x60_1000 + 8 * i, 8));
        let seen = records.iter().map(|r| (r.kind, r.address.0, r.bytes));
        assert!(seen.eq(expected), "version {interface}: {} records", records.len());
        // The last instruction of the last block comes after the last access.
        let instructions: u64 = records.iter().map(|r| u64::from(r.instructions)).sum();
        assert_eq!(instructions, 3 * 1000 - 1, "version {interface}");
    }
}

#[test]
fn a_recording_that_does_not_begin_fails() {
    let Some(machine) = emulator("a recording that does not begin") else { return };
    let mut command = Command::new(common::HUEPAGE);
    command.args(["trace", "-o"]).arg(machine.path().join("out.trace"));
    // A version that refuses the plugin.
    let output =
        command.args(["--", "/bin/true", "9"]).env("PATH", machine.path()).env("INTERFACE", "1");
    let output = output.output().unwrap();
    assert_eq!(output.status.code(), Some(125), "{}", said(&output));
    for part in ["the plugin is for version 2", "did not begin under QEMU"] {
        assert!(said(&output).contains(part), "{}", said(&output));
    }
}

/// Each symbol is resolved, so that none is missing that these emulators no longer have.
#[test]
fn the_plugins_for_emulators_since_9_0_need_nothing_that_they_lack() {
    let Some(machine) = emulator("symbols of emulators since 9.0") else { return };
    let beside = Path::new(common::HUEPAGE).parent().unwrap();
    for (plugin, loads) in [
        ("libhuepage_qemu_trace_3.so", true),
        ("libhuepage_qemu_lab_3.so", true),
        // It needs what 9.0 took away: the emulator sees that.
        ("libhuepage_qemu_trace.so", false),
    ] {
        let mut command = Command::new(machine.path().join("qemu-x86_64"));
        let output = command.arg("--load").arg(beside.join(plugin)).output().unwrap();
        assert_eq!(output.status.success(), loads, "{plugin}: {}", said(&output));
    }
}
