//! What `huepage lab` says where it cannot boot anything.

use std::process::Command;

/// The command on a machine of the repository, with nothing on the path.
fn lab(args: &[&str]) -> (Option<i32>, String) {
    let machine = concat!(env!("CARGO_MANIFEST_DIR"), "/../../machines/lab-4-core.toml");
    let mut command = Command::new(env!("CARGO_BIN_EXE_huepage"));
    command.args(["lab", "--machine", machine]).args(args).env("PATH", "/nonexistent");
    let output = command.output().unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn what_is_missing_is_named_in_one_line() {
    let (status, said) = lab(&["boot", "--", "true"]);
    assert_eq!((status, said.lines().count()), (Some(1), 1), "{said}");
    for package in ["qemu-system-x86", "busybox-static"] {
        assert!(said.contains(package), "{said}");
    }
}

#[test]
fn kernels_and_machines_that_are_not_there_are_named() {
    let (status, said) = lab(&["--kernel", "no-such-kernel", "shell"]);
    assert!(status == Some(112) && said.contains("no-such-kernel"), "{said}");
    let (status, said) = lab(&["--cpus", "64", "shell"]);
    assert!(status == Some(2) && said.contains("--cpus 4"), "{said}");
}
