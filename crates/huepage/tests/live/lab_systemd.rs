//! The unit of docs/huepage.service under a systemd that is the first process of an emulated machine: the service is
//! started, reloaded, found hanging by the watchdog, and stopped, and its group is a control group of another unit.
//! systemd, its libraries and the kernel are Debian's.

use crate::common;
use crate::lab::{booted, lab, walks};

use std::fs;
use std::path::Path;

/// The script that systemd starts.
const SCRIPT: &str = include_str!("../lab/systemd.sh");
/// The unit that is shipped.
const UNIT: &str = include_str!("../../../../docs/huepage.service");
/// A group that is the control group of a service.
const GROUPS: &str = "[daemon]\nlevel = \"llc\"\ncolors_from = \"pfn\"\nlook = 0.2\n\
    [[group]]\nname = \"victim\"\ncgroup = \"system.slice/victim.service\"\nshare = \"50%\"\n";
/// What systemd consists of.
const SYSTEMD: [&str; 3] =
    ["/lib/systemd/systemd", "/lib/systemd/systemd-shutdown", "/bin/systemctl"];
/// Targets that units order themselves by: none of them has anything in it here.
const TARGETS: [&str; 4] = ["sysinit", "basic", "multi-user", "shutdown"];

/// Units in a directory: the one that is shipped, what it governs, and what runs the script.
fn write_units(directory: &Path) {
    let write = |name: &str, text: &str| fs::write(directory.join(name), text).unwrap();
    let plain = "[Unit]\nDefaultDependencies=no\n";
    TARGETS.iter().for_each(|target| write(&format!("{target}.target"), plain));
    let script = directory.join("script");
    fs::write(&script, SCRIPT).unwrap();
    write("lab.target", "[Unit]\nRequires=lab.service\n");
    let run = format!("ExecStart=/bin/sh {}", script.display());
    let terminal = "Type=oneshot\nTTYPath=/dev/ttyS0\nStandardOutput=tty\nStandardError=tty\n";
    write("lab.service", &format!("{plain}[Service]\n{terminal}{run}\n"));
    let walks = walks();
    write("victim.service", &format!("{plain}[Service]\nExecStart={walks} hold 4096\n"));
    let places = UNIT.replace("/usr/local/bin/huepage", "/bin/huepage");
    write("huepage.service", &places);
    fs::create_dir(directory.join("huepage.service.d")).unwrap();
    // There is no journal.
    let log = "[Service]\nStandardOutput=append:/run/huepage.log\nStandardError=append:/run/huepage.log\n";
    write("huepage.service.d/log.conf", log);
}

#[test]
fn the_service_lives_under_systemd() {
    let test = "the_service_lives_under_systemd";
    let Some(_turn) = booted(test) else { return };
    if let Some(missing) = SYSTEMD.iter().find(|path| !Path::new(path).is_file()) {
        return common::skip(test, format!("{missing} is missing; apt-get install systemd"));
    }
    // Not in /tmp: the service has one of its own.
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    write_units(directory.path());
    let groups = directory.path().join("groups.toml");
    fs::write(&groups, GROUPS).unwrap();
    let (units, walks) = (directory.path().display().to_string(), walks());
    let append = format!(
        "rdinit=/lib/systemd/systemd systemd.unit=lab.target SYSTEMD_UNIT_PATH={units} SYSTEMD_COLORS=0"
    );
    let mut args = vec!["--append", &append, "--pack", &units, "--pack", &walks];
    SYSTEMD
        .iter()
        .chain(&["/etc/passwd", "/etc/group"])
        .for_each(|path| args.extend(["--pack", path]));
    let output = lab("lab-4-core.toml", &[&args[..], &["boot", "--", "true"]].concat());
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    for line in [
        "started: 0 active",
        "inside started: \"share\":1.0",
        "reloaded: 0 active",
        "inside reloaded: \"share\":1.0",
        "restarts: 1 active active",
        "inside restarted: \"share\":1.0",
        "stopped: 0 inactive active",
        "in no partition",
        "nonsense: failed",
    ] {
        assert!(text.contains(line), "no `{line}` in {text}");
    }
    assert!(output.status.success(), "{output:?}");
}
