//! Processes in containers, of root and of an ordinary user, are confined, inspected and released by
//! the identifier of the container, and say the same as without. runc starts them, in control groups
//! with the names that Docker and Podman give, and once Podman itself.

use crate::common;

use std::fs;
use std::os::unix::fs::{chown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// Counts in 24 MiB of memory until SIGUSR1 comes, says how many different counts the pages have, which is
/// one, and ends with 42. A machine that is busy has all the time it needs.
const SCRIPT: &str = "
import os, signal, time
told = []
signal.signal(signal.SIGUSR1, lambda *_: told.append(1))
memory = bytearray(b'x' * (24 << 20))
while not told:
    for at in range(0, len(memory), 4096):
        memory[at] = (memory[at] + 1) % 250
    time.sleep(0.01)
print('counts', len(set(memory[0::4096])), len(memory), flush=True)
os._exit(42)
";
/// What it says.
const ANSWER: &str = "counts 1 25165824\n";
/// Pages that are in its memory and movable, at least.
const PAGES: u64 = 4096;
/// An ordinary user and its group.
const USER: u32 = 65534;
/// crun starts nothing where both versions of control groups are mounted and the newer has a controller.
const CRUN: &str = "umount /sys/fs/cgroup/unified 2>/dev/null; exec crun \"$@\"";
const OWN: &str = "huepage-test-containers";
/// What packages install for Podman and CRI-O.
const OCI_HOOK: &str = include_str!("../../../../packaging/oci-hook.json");

/// A container that a runtime has started, with a computation of known answer as its first process.
struct Container {
    runtime: &'static str,
    id: String,
    dir: tempfile::TempDir,
    rootless: bool,
    child: Child,
}

/// The hierarchies of control groups, or the only one.
fn hierarchies() -> Vec<PathBuf> {
    let mount = PathBuf::from("/sys/fs/cgroup");
    if mount.join("cgroup.procs").is_file() {
        return vec![mount];
    }
    let entries = fs::read_dir(&mount).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(|path| path.join("cgroup.procs").is_file()).collect()
}

impl Container {
    /// `digit` makes its identifier.
    fn start(digit: &str, rootless: bool) -> Container {
        Container::start_with("runc", digit, rootless, |_| {})
    }

    /// The same by this runtime, with a configuration that is changed before.
    fn start_with(
        runtime: &'static str,
        digit: &str,
        rootless: bool,
        change: impl FnOnce(&mut Value),
    ) -> Container {
        let id = digit.repeat(64);
        let dir = tempfile::tempdir().unwrap();
        bundle(dir.path());
        let scope = if rootless { format!("libpod-{id}") } else { id.clone() };
        let mut config: Value = serde_json::from_slice(&spec(dir.path(), rootless)).unwrap();
        config["process"]["terminal"] = json!(false);
        config["process"]["args"] = json!(["/usr/bin/python3", "-c", SCRIPT]);
        config["linux"]["cgroupsPath"] = json!(format!("/{OWN}/docker/{scope}"));
        let mounts = config["mounts"].as_array_mut().unwrap();
        let usr = json!({ "destination": "/usr", "type": "bind", "source": "/usr" });
        mounts.push(usr);
        mounts.last_mut().unwrap()["options"] = json!(["rbind", "ro"]);
        config["linux"]["seccomp"] = profile();
        if rootless {
            let own = json!([{ "containerID": 0, "hostID": USER, "size": 1 }]);
            config["linux"]["uidMappings"] = own.clone();
            config["linux"]["gidMappings"] = own;
        }
        change(&mut config);
        fs::write(dir.path().join("config.json"), config.to_string()).unwrap();
        for hierarchy in hierarchies() {
            let parent = hierarchy.join(OWN).join("docker");
            fs::create_dir_all(&parent).unwrap();
            if rootless {
                give_all(&hierarchy.join(OWN));
            }
        }
        if rootless {
            give_all(dir.path());
        }
        let mut run = command(runtime, dir.path(), rootless);
        run.args(["run", "--bundle"]).arg(dir.path()).arg(&id);
        run.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = run.spawn().unwrap();
        Container { runtime, id, dir, rootless, child }
    }

    fn command(&self) -> Command {
        command(self.runtime, self.dir.path(), self.rootless)
    }

    /// The number of its first process, once that runs; else what the runtime says.
    fn pid(&mut self) -> Result<i32, String> {
        let started = Instant::now();
        loop {
            let state = self.command().arg("state").arg(&self.id).output();
            let state: Value = serde_json::from_slice(&state.unwrap().stdout).unwrap_or_default();
            if state["status"] == "running" {
                return Ok(i32::try_from(state["pid"].as_i64().unwrap()).unwrap());
            }
            if self.child.try_wait().unwrap().is_some() || started.elapsed() > common::HANGS {
                let mut said = String::new();
                let pipe = self.child.stderr.as_mut().unwrap();
                let _ = std::io::Read::read_to_string(pipe, &mut said);
                return Err(said);
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Begins another process in it; its number outside.
    fn exec(&self, words: &[&str]) -> i32 {
        let file = self.dir.path().join("exec.pid");
        let mut exec = self.command();
        exec.args(["exec", "--detach", "--pid-file"]).arg(&file).arg(&self.id).args(words);
        let status = exec.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
        assert!(status.unwrap().success());
        fs::read_to_string(file).unwrap().trim().parse().unwrap()
    }

    /// Tells its first process to end; that one's status, which is 42 for the right answer, and output.
    fn finish(mut self) -> (Option<i32>, String) {
        let mut kill = self.command();
        let told = kill.arg("kill").arg(&self.id).arg("USR1").output().unwrap();
        assert!(told.status.success(), "{told:?}");
        let status = self.child.wait().unwrap().code();
        let mut said = String::new();
        let _ = std::io::Read::read_to_string(self.child.stdout.as_mut().unwrap(), &mut said);
        (status, said)
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        let mut delete = self.command();
        let _ = delete.args(["delete", "--force"]).arg(&self.id).output();
        let _ = self.child.kill();
        let _ = self.child.wait();
        for hierarchy in hierarchies() {
            let own = hierarchy.join(OWN);
            for name in [self.id.clone(), format!("libpod-{}", self.id)] {
                let _ = fs::remove_dir(own.join("docker").join(name));
            }
            let _ = fs::remove_dir(own.join("docker"));
            let _ = fs::remove_dir(own);
        }
    }
}

/// A runtime as root or as the user, with its state below a directory.
fn command(runtime: &str, dir: &Path, rootless: bool) -> Command {
    let user = USER.to_string();
    let as_user = ["setpriv", "--reuid", &user, "--regid", &user, "--clear-groups", runtime];
    let words = match runtime {
        _ if rootless => as_user.map(str::to_owned).to_vec(),
        "crun" => ["unshare", "--mount", "sh", "-c", CRUN, "crun"].map(str::to_owned).to_vec(),
        _ => vec![runtime.to_owned()],
    };
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).arg("--root").arg(dir.join("state")).env("XDG_RUNTIME_DIR", dir);
    command
}

/// A root file system with directories alone: the rest is the host's.
fn bundle(dir: &Path) {
    let root = dir.join("rootfs");
    for name in ["usr", "proc", "dev", "sys", "tmp", "etc"] {
        fs::create_dir_all(root.join(name)).unwrap();
    }
    for name in ["bin", "lib", "lib64"] {
        symlink(format!("usr/{name}"), root.join(name)).unwrap();
    }
}

/// The seccomp filter that Podman gives its containers, if it is installed, with Docker's rule that
/// clone(2) makes no namespace; else one with that rule alone.
fn profile() -> Value {
    const NAMESPACES: u32 = 0x7e02_0000;
    let clone = json!({ "names": ["clone"], "action": "SCMP_ACT_ALLOW",
        "args": [{ "index": 0, "value": NAMESPACES, "valueTwo": 0, "op": "SCMP_CMP_MASKED_EQ" }] });
    let text = fs::read("/usr/share/containers/seccomp.json").unwrap_or_default();
    let Ok(podman) = serde_json::from_slice::<Value>(&text) else {
        eprintln!("a profile of its own: Podman's is not installed");
        let deny = json!({ "names": ["userfaultfd"], "action": "SCMP_ACT_ERRNO" });
        return json!({ "defaultAction": "SCMP_ACT_ALLOW", "syscalls": [deny] });
    };
    let mut rules = vec![clone];
    for rule in podman["syscalls"].as_array().unwrap() {
        // Rules for capabilities that these containers have not.
        if rule["includes"].get("caps").is_some() || rule["action"] != "SCMP_ACT_ALLOW" {
            continue;
        }
        let names = rule["names"].as_array().unwrap().iter().filter(|name| *name != "clone");
        let names: Vec<&Value> = names.collect();
        rules.push(json!({ "names": names, "action": rule["action"], "args": rule["args"] }));
    }
    json!({ "defaultAction": "SCMP_ACT_ERRNO", "architectures": ["SCMP_ARCH_X86_64"], "syscalls": rules })
}

/// The configuration that runc proposes.
fn spec(dir: &Path, rootless: bool) -> Vec<u8> {
    let mut spec = Command::new("runc");
    spec.arg("spec").args(rootless.then_some("--rootless")).current_dir(dir);
    assert!(spec.status().unwrap().success());
    fs::read(dir.join("config.json")).unwrap()
}

/// Gives a directory and all below it to the user.
fn give_all(path: &Path) {
    for entry in walkdir::WalkDir::new(path).into_iter().flatten() {
        if !entry.path_is_symlink() {
            let _ = chown(entry.path(), Some(USER), Some(USER));
        }
    }
}

fn inspect(pid: i32) -> Option<Value> {
    let output = common::huepage(&["inspect", "--json", &pid.to_string()]);
    output.status.success().then(|| serde_json::from_slice(&output.stdout).unwrap())
}

/// Waits until a process is confined, and its pages comply, of which there are so many at least.
fn settled(pid: i32, pages: u64) -> Value {
    let started = Instant::now();
    let complies = |found: &Value| {
        let found = &found["compliance"];
        found["share"].as_f64() >= Some(0.99) && found["movable"].as_u64() >= Some(pages)
    };
    loop {
        let found = inspect(pid).unwrap_or_default();
        if complies(&found) {
            return found;
        }
        let compliance = &found["compliance"];
        assert!(started.elapsed() < common::HANGS, "process {pid}: {compliance}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// What `/proc/PID/status` says.
fn status(pid: i32, key: &str) -> String {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(key)).unwrap();
    line.trim_start_matches(':').trim().to_owned()
}

/// The turn of a test that starts containers; none where one of these runtimes is missing.
fn with_runtimes(test: &str, runtimes: &[&str]) -> Option<common::Turn> {
    let turn = common::live(test)?;
    let missing = |name: &&&str| Command::new(name).arg("--version").output().is_err();
    let Some(name) = runtimes.iter().find(missing) else { return Some(turn) };
    common::skip(test, format!("no {name} here; scripts/setup-programs.sh installs it"));
    None
}

fn a_container_is_confined(test: &str, digit: &str, rootless: bool) {
    let Some(_turn) = with_runtimes(test, &["runc"]) else { return };
    let mut container = Container::start(digit, rootless);
    let pid = match container.pid() {
        Ok(pid) => pid,
        Err(said) => return common::skip(test, format!("runc starts no container here: {said}")),
    };
    assert!(status(pid, "NSpid").ends_with("\t1"), "a pid namespace of its own");
    let options = ["attach", "-q", "--share", "50%", "--colors-from", "declared"];
    let short = &container.id[..12];
    let attached = common::huepage(&[&options[..], &["--container", short]].concat());
    assert!(attached.status.success(), "{attached:?}");
    assert_eq!(status(pid, "Seccomp"), "2", "a filter");
    settled(pid, PAGES);
    for task in fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten() {
        let tid: i32 = task.file_name().to_str().unwrap().parse().unwrap();
        if status(tid, "Name").starts_with("huepage") {
            assert_eq!(status(tid, "CapPrm"), "0000000000000000", "thread {tid}");
        }
    }
    // One that begins later joins by itself.
    let late = container.exec(&["/bin/sleep", "60"]);
    settled(late, 1);
    for pid in [pid, late] {
        let released = common::huepage(&["detach", &pid.to_string()]);
        assert!(released.status.success(), "{released:?}");
    }
    assert_eq!(container.finish(), (Some(42), ANSWER.to_owned()));
}

#[test]
fn a_container_of_root_is_confined() {
    a_container_is_confined("a_container_of_root_is_confined", "a", false);
}

#[test]
fn a_container_of_an_ordinary_user_is_confined() {
    a_container_is_confined("a_container_of_an_ordinary_user_is_confined", "b", true);
}

#[test]
fn a_container_whose_configuration_names_a_share_starts_confined() {
    let test = "a_container_whose_configuration_names_a_share_starts_confined";
    let runtimes = ["runc", "crun"];
    let Some(_turn) = with_runtimes(test, &runtimes) else { return };
    for (runtime, digit) in runtimes.into_iter().zip(["c", "d"]) {
        let mut container = Container::start_with(runtime, digit, false, |config| {
            let words = ["huepage", "oci-hook", "--", "--colors-from", "declared"];
            let hook = json!({ "path": common::HUEPAGE, "args": words });
            config["hooks"] = json!({ "poststart": [hook] });
            config["annotations"] = json!({ "org.huepage.share": "L2:0=1" });
        });
        let pid = match container.pid() {
            Ok(pid) => pid,
            Err(said) => {
                return common::skip(test, format!("{runtime} starts no container: {said}"));
            }
        };
        let found = settled(pid, PAGES);
        assert_eq!(found["schemata"].as_str(), Some("L2:0=1"), "{runtime}: {found}");
        assert_eq!(container.finish(), (Some(42), ANSWER.to_owned()), "{runtime}");
    }
}

/// Podman with its state below a directory, and with the hook that packages install.
fn podman(dir: &Path) -> Command {
    let mut hook: Value = serde_json::from_str(OCI_HOOK).unwrap();
    hook["hook"]["path"] = json!(common::HUEPAGE);
    let hooks = dir.join("hooks");
    fs::create_dir_all(&hooks).unwrap();
    fs::write(hooks.join("oci-hook.json"), hook.to_string()).unwrap();
    let mut podman = Command::new("podman");
    podman.args(["--runtime", "runc", "--cgroup-manager", "cgroupfs", "--storage-driver", "vfs"]);
    for (option, name) in [("--root", "kept"), ("--runroot", "run"), ("--tmpdir", "tmp")] {
        podman.arg(option).arg(dir.join(name));
    }
    podman.arg("--hooks-dir").arg(hooks);
    podman
}

#[test]
fn a_container_of_podman_starts_confined() {
    let test = "a_container_of_podman_starts_confined";
    let Some(_turn) = common::live(test) else { return };
    let dir = tempfile::tempdir().unwrap();
    bundle(dir.path());
    let limits = ["--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024"];
    let mut run = podman(dir.path());
    run.args(["run", "--detach", "--network", "none", "--volume", "/usr:/usr:ro"]).args(limits);
    run.args(["--annotation", "org.huepage.share=L2:0=1", "--rootfs"]);
    run.arg(dir.path().join("rootfs")).args(["/usr/bin/python3", "-c", SCRIPT]);
    let started = match run.output() {
        Ok(started) => started,
        Err(_) => return common::skip(test, "no podman; scripts/setup-programs.sh installs it"),
    };
    let told = String::from_utf8_lossy(&started.stderr);
    if !started.status.success() {
        return common::skip(test, format!("podman starts no container here: {told}"));
    }
    let id = String::from_utf8(started.stdout).unwrap().trim().to_owned();
    let podman = |words: &[&str]| {
        let output = podman(dir.path()).args(words).arg(&id).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let pid = podman(&["inspect", "--format", "{{.State.Pid}}"]);
    let found = settled(pid.trim().parse().unwrap_or_else(|_| panic!("{pid}: {told}")), PAGES);
    podman(&["kill", "--signal", "USR1"]);
    let ended = [podman(&["wait"]), podman(&["logs"])];
    podman(&["rm", "--force"]);
    for name in ["libpod_parent/conmon", "libpod_parent"] {
        hierarchies().iter().for_each(|one| _ = fs::remove_dir(one.join(name)));
    }
    assert_eq!(found["schemata"].as_str(), Some("L2:0=1"), "{found}");
    assert_eq!(ended, ["42\n", ANSWER]);
}

#[test]
fn a_container_that_is_not_there_is_named() {
    let Some(_turn) = common::live("a_container_that_is_not_there_is_named") else { return };
    let options = ["attach", "-q", "--share", "50%", "--colors-from", "declared", "--container"];
    for (id, status, said) in [
        ("0123456789ab", 102, "no process is in a container 0123456789ab"),
        ("0123", 2, "give 12 digits"),
        ("no/id", 2, "no identifier"),
    ] {
        let output = common::huepage(&[&options[..], &[id]].concat());
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(status), "{error}");
        assert!(error.contains(said), "{error}");
    }
}
