//! One process that does not run, stopped by a signal or frozen by its control group, does not hold the
//! daemon: it answers, others are taken and decided, a reload, a release and its own end come to an end, and
//! the process is whole and free once it goes on. A daemon that does not run does not make room for another.
//! In declared colours, so that nothing depends on timing; what hangs is killed, and fails.

use crate::common;

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use common::daemon::{Named, World, group};
use common::{Killed, Target};
use rustix::process::{Pid, Signal, kill_process};

/// Beyond this a command hangs: far longer than anything takes, and far shorter than an hour.
const HANGS: Duration = Duration::from_secs(45);

/// What came of a command of huepage, which must not hang.
fn answered(world: &World, args: &[&str]) -> Output {
    let mut command = world.command(args);
    let began = Instant::now();
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut child = Killed(child);
    while child.0.try_wait().unwrap().is_none() {
        assert!(began.elapsed() < HANGS, "{args:?} hangs: {}", world.log());
        std::thread::sleep(Duration::from_millis(5));
    }
    eprintln!("{args:?} took {:.3} s", began.elapsed().as_secs_f64());
    let status = child.0.wait().unwrap();
    let read = |from: Option<&mut dyn std::io::Read>| {
        let mut text = Vec::new();
        from.unwrap().read_to_end(&mut text).unwrap();
        text
    };
    let stdout = read(child.0.stdout.as_mut().map(|out| out as _));
    let stderr = read(child.0.stderr.as_mut().map(|err| err as _));
    Output { status, stdout, stderr }
}

fn signal(pid: u32, signal: Signal) {
    kill_process(Pid::from_raw(pid.cast_signed()).unwrap(), signal).unwrap();
}

/// Threads of ours in a process.
fn agents(pid: &str) -> usize {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
    names.filter(|name| ["huepage-agent", "huepage-worker"].contains(&name.trim())).count()
}

fn share(name: &str, target: &Target) -> String {
    group(name, &format!("pid = {}\nshare = 2", target.pid()))
}

/// A group whose colours a file decides about.
fn by_file(world: &World, name: &str, target: &Target) -> String {
    let file = world.path(name).display().to_string();
    std::fs::write(world.path(name), "5").unwrap();
    let rule = format!(
        "pid = {}\nfloor = 2\nmetric = {{ command = [\"cat\", \"{file}\"], low = 4, high = 6, better = \"lower\", every = 0.1 }}",
        target.pid()
    );
    group(name, &rule)
}

/// All that a daemon does while a process of its first group does not run. It has ended then.
fn goes_on_without_it(world: &mut World, first: &Target, others: [&Target; 3]) {
    let status = answered(world, &["ctl", "status"]);
    assert!(status.status.success(), "{status:?}");
    // Other groups are decided about.
    let count = |world: &World, name: &str| world.group(name)["count"].as_u64().unwrap();
    let before = count(world, "hungry");
    std::fs::write(world.path("hungry"), "1000").unwrap();
    std::fs::write(world.path("sated"), "1").unwrap();
    world.until("gets more", |world| count(world, "hungry") > before);
    // A reload lets go of the one that does not run, and takes another.
    let groups = by_file(world, "hungry", others[0]) + &by_file(world, "sated", others[1]);
    world.write(&(groups + &share("new", others[2])));
    let reloaded = answered(world, &["ctl", "reload"]);
    assert!(reloaded.status.success(), "{reloaded:?} {}", world.log());
    world.settled(others[2]);
    // It is still nobody else's, and a second release is answered.
    let attach =
        answered(world, &["attach", &first.pid(), "--share", "25%", "--colors-from", "declared"]);
    assert_eq!(attach.status.code(), Some(108), "{attach:?}");
    let detach = answered(world, &["detach", &first.pid()]);
    let said = String::from_utf8_lossy(&detach.stderr).into_owned();
    assert!(detach.status.success() && said.contains("is let go when it goes on"), "{said}");
    let stop = answered(world, &["ctl", "stop"]);
    assert!(stop.status.success(), "{stop:?}");
    let began = Instant::now();
    assert!(world.ends_well(), "{}", world.log());
    eprintln!("the daemon ended {:.3} s after that", began.elapsed().as_secs_f64());
}

/// Has a process go on when it is dropped, be it by a test that failed.
struct Halted<'a>(&'a str, &'a dyn Fn(&str));

impl Drop for Halted<'_> {
    fn drop(&mut self) {
        self.1(self.0);
    }
}

/// A daemon with a process that does not run from a moment on, as `halt` has it, until `go_on`.
fn holds_nobody(halt: impl Fn(&str), go_on: impl Fn(&str)) {
    let mut world = World::new();
    let first = Target::start("600");
    let others = [(); 3].map(|()| Target::start("600"));
    let [hungry, sated, new] = &others;
    let groups = by_file(&world, "hungry", hungry) + &by_file(&world, "sated", sated);
    world.write(&(share("first", &first) + &groups));
    world.start();
    for target in [&first, hungry, sated] {
        world.settled(target);
    }
    let pid = first.pid();
    halt(&pid);
    let halted = Halted(&pid, &go_on);
    goes_on_without_it(&mut world, &first, [hungry, sated, new]);
    drop(halted);
    // It is free, whole, and nothing of ours is left in it.
    world.until("the agent leaves", |_| agents(&first.pid()) == 0);
    assert_eq!(first.end(), Some(42));
    for other in others {
        assert_eq!(agents(&other.pid()), 0);
        assert_eq!(other.end(), Some(42));
    }
}

#[test]
fn a_process_that_is_stopped_holds_nobody() {
    let Some(_turn) = common::live("a_process_that_is_stopped_holds_nobody") else { return };
    let send = |pid: &str, what| signal(pid.parse().unwrap(), what);
    holds_nobody(|pid| send(pid, Signal::STOP), |pid| send(pid, Signal::CONT));
}

/// A control group of this test that can be frozen, and what to write where.
struct Freezer(PathBuf, &'static str, [&'static str; 2]);

impl Freezer {
    fn new() -> Option<Freezer> {
        let name = format!("huepage-freezer-{}", std::process::id());
        let root = Path::new("/sys/fs/cgroup");
        let version_2 = ("cgroup.freeze", ["1", "0"]);
        let version_1 = ("freezer.state", ["FROZEN", "THAWED"]);
        let places = [("", version_2), ("unified", version_2), ("freezer", version_1)];
        places.into_iter().find_map(|(below, (file, words))| {
            let made = root.join(below).join(&name);
            std::fs::create_dir(&made).ok()?;
            let freezer = Freezer(made, file, words);
            freezer.0.join(file).exists().then_some(freezer)
        })
    }

    fn freeze(&self, pid: &str) {
        self.write("cgroup.procs", pid).unwrap();
        self.write(self.1, self.2[0]).unwrap();
    }

    fn thaw(&self) -> io::Result<()> {
        self.write(self.1, self.2[1])
    }

    /// Writes what the kernel made; a file of our own would keep a directory that is no control group.
    fn write(&self, name: &str, text: &str) -> io::Result<()> {
        OpenOptions::new().write(true).open(self.0.join(name))?.write_all(text.as_bytes())
    }
}

impl Drop for Freezer {
    fn drop(&mut self) {
        let _ = self.thaw();
        // Who is in it has ended, or ends now.
        for _ in 0..100 {
            if std::fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

#[test]
fn a_process_that_is_frozen_holds_nobody() {
    let test = "a_process_that_is_frozen_holds_nobody";
    let Some(_turn) = common::live(test) else { return };
    let Some(freezer) = Freezer::new() else {
        return common::skip(test, "no control group that can be frozen can be made");
    };
    eprintln!("frozen by {}", freezer.0.join(freezer.1).display());
    holds_nobody(|pid| freezer.freeze(pid), |_| freezer.thaw().unwrap());
}

#[test]
fn a_daemon_that_does_not_answer_is_still_the_only_one() {
    let Some(_turn) = common::live("a_daemon_that_does_not_answer_is_still_the_only_one") else {
        return;
    };
    let (mut world, one) = (World::new(), Target::start("600"));
    world.write(&share("one", &one));
    world.start();
    world.settled(&one);
    signal(world.daemon(), Signal::STOP);
    let file = world.path("huepage.toml").display().to_string();
    let second = answered(&world, &["daemon", "--config", &file]);
    let said = String::from_utf8_lossy(&second.stderr).into_owned();
    assert_eq!(second.status.code(), Some(108), "{said}");
    assert!(said.contains("a daemon runs already"), "{said}");
    signal(world.daemon(), Signal::CONT);
    assert_eq!(world.settled(&one), "0-1");
    assert_eq!(one.end(), Some(42));
}

#[test]
fn groups_are_full_at_their_limit_and_hurt_no_other() {
    let Some(_turn) = common::live("groups_are_full_at_their_limit") else { return };
    let mut world = World::new();
    let start = |letter: &str| Named::start(&world, &format!("hpcrowd{letter}"));
    let (crowd, other) = (["a", "b", "c"].map(start), Target::start("600"));
    let named = crowd[0].name().replace("hpcrowda", "hpcrowd?");
    let rule = format!("command = \"{named}\"\nmax_members = 2\nshare = 2");
    world.write(&(group("crowd", &rule) + &share("other", &other)));
    world.start();
    world.settled(&other);
    let members = |world: &World| world.group("crowd")["processes"].as_array().unwrap().len();
    world.until("two are taken", |world| members(world) == 2);
    world.until("that is said", |world| {
        world.log().contains("crowd: 2 processes are all that max_members allows")
    });
    let status = world.json(&["ctl", "status", "--json"]);
    assert!(status["troubles"].to_string().contains("max_members"), "{status}");
    assert_eq!(members(&world), 2);
    // One place is free, and the third gets it.
    let taken = world.group("crowd")["processes"].clone();
    let gone = crowd.iter().position(|one| taken.to_string().contains(&one.pid())).unwrap();
    signal(crowd[gone].pid().parse().unwrap(), Signal::KILL);
    world.until("another is taken", |world| {
        let now = world.group("crowd")["processes"].clone();
        members(world) == 2 && now != taken
    });
    assert_eq!(other.end(), Some(42));
}

#[test]
fn only_named_users_and_programs_may_join() {
    let Some(_turn) = common::live("only_named_users_and_programs_may_join") else { return };
    let mut world = World::new();
    let (one, other) = (Named::start(&world, "hpone"), Named::start(&world, "hpother"));
    let own = world.path(one.name()).display().to_string();
    // The names of both fit everywhere.
    let any = "command = \"hp*\"";
    world.write(
        &(group("strangers", &format!("{any}\nuser = \"nobody\"\nshare = 2"))
            + &group(
                "program",
                &format!("{any}\nuser = [\"root\", 4711]\nexe = \"{own}\"\nshare = 2"),
            )),
    );
    world.start();
    world.settled_of(&one.pid());
    assert_eq!(world.group("program")["processes"].to_string(), format!("[{}]", one.pid()));
    assert_eq!(world.group("strangers")["processes"].to_string(), "[]");
    assert_eq!(world.huepage(&["inspect", &other.pid()]).status.code(), Some(111));
    let file = world.path("huepage.toml").display().to_string();
    let said = Command::new(common::HUEPAGE)
        .args(["daemon", "--dry-run", "--config", &file])
        .env("HUEPAGE_RUNTIME_DIR", world.path("run"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    assert!(said.contains("the user root and the program "), "{said}");
}
