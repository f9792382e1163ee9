//! Groups hold colours and processes, take those of a control group as they come, survive the
//! death of their supervisor, and leave every program with the right answer.

use crate::common;

use std::process::{Command, Output};
use std::time::{Duration, Instant};

use common::Target;
use common::cgroup::Made;
use serde_json::{Value, json};
use tempfile::TempDir;

/// A registry and a state directory of a test's own; whatever group is left is deleted.
struct World(TempDir);

impl World {
    fn new() -> World {
        World(tempfile::tempdir().unwrap())
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(common::HUEPAGE);
        command.arg("group").args(args).env("HUEPAGE_STATE_DIR", self.0.path().join("state"));
        command.env("HUEPAGE_RUNTIME_DIR", self.0.path().join("run")).env("NO_COLOR", "1");
        command
    }

    fn group(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    fn done(&self, args: &[&str]) -> String {
        let output = self.group(args);
        assert!(output.status.success(), "{args:?}: {output:?}");
        String::from_utf8(output.stderr).unwrap()
    }

    fn refused(&self, args: &[&str], status: i32, what: &str) {
        let output = self.group(args);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(status), "{args:?}: {text}");
        assert!(text.contains(what) && text.trim_end().lines().count() == 1, "{args:?}: {text}");
    }

    fn json(&self, args: &[&str]) -> Value {
        let output = self.group(args);
        assert!(output.status.success(), "{args:?}: {output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Waits until a group has so many processes, 99 % in their colours.
    fn settled(&self, name: &str, members: usize) -> Value {
        let start = Instant::now();
        loop {
            let found = self.json(&["show", name, "--json"]);
            let all = found["members"].as_array().unwrap();
            let inside = |member: &Value| member["compliance"]["share"].as_f64() >= Some(0.99);
            if all.len() == members && all.iter().all(inside) {
                return found;
            }
            assert!(start.elapsed() < common::HANGS, "{found}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let list = self.group(&["list", "--json"]).stdout;
        let list: Value = serde_json::from_slice(&list).unwrap_or_default();
        for group in list["groups"].as_array().into_iter().flatten() {
            self.group(&["delete", group["name"].as_str().unwrap_or_default()]);
        }
    }
}

const DECLARED: [&str; 2] = ["--colors-from", "declared"];

#[test]
fn a_group_takes_processes_and_lets_them_go() {
    let Some(_turn) = common::live("a_group_takes_processes_and_lets_them_go") else { return };
    let (world, one, two) = (World::new(), Target::start("600"), Target::start("600"));
    let said = world.done(&[&["create", "web", "--colors", "0-7"][..], &DECLARED].concat());
    assert!(said.contains("group web has the colours 0-7"), "{said}");
    world.refused(
        &[&["create", "web", "--share", "25%"][..], &DECLARED].concat(),
        108,
        "delete web",
    );
    world.done(&["add", "web", &one.pid(), &two.pid()]);
    world.refused(&["add", "web", &one.pid()], 108, "already");
    let found = world.settled("web", 2);
    assert_eq!(
        (&found["colors"], found["missed"].as_array().map(Vec::len)),
        (&"0-7".into(), Some(0))
    );
    let list = String::from_utf8(world.group(&["list"]).stdout).unwrap();
    assert!(
        list.contains("web") && list.contains("0-7 of") && list.contains("supervisor"),
        "{list}"
    );
    world.done(&["delete", "web"]);
    assert_eq!(world.json(&["list", "--json"]), json!({ "schema": 1, "groups": [] }));
    world.refused(&["show", "web"], 111, "group list");
    assert_eq!((one.end(), two.end()), (Some(42), Some(42)));
}

#[test]
fn groups_overlap_only_if_asked() {
    let Some(_turn) = common::live("groups_overlap_only_if_asked") else { return };
    let world = World::new();
    let create = |args: &[&'static str]| [&["create"][..], args, &DECLARED].concat();
    world.done(&create(&["web", "--share", "25%"]));
    world.done(&create(&["api", "--share", "25%"]));
    let colors = |name: &str| world.json(&["show", name, "--json"])["colors"].clone();
    assert_ne!(colors("web"), colors("api"));
    world.refused(&create(&["big", "--colors", "all"]), 104, "--overlap");
    world.done(&create(&["big", "--colors", "all", "--overlap"]));
    world.done(&["delete", "big"]);
    world.done(&create(&["others", "--colors", "rest"]));
    world.refused(&create(&["more", "--colors", "rest"]), 104, "every colour is held");
    world.refused(&create(&["one", "--share", "25%"]), 104, "holds the colours");
    let names: Vec<Value> = world.json(&["list", "--json"])["groups"].as_array().unwrap().clone();
    assert_eq!(names.len(), 3, "what was refused is not kept: {names:?}");
    world.refused(&create(&["../x", "--share", "25%"]), 2, "no name");
}

#[test]
fn a_group_outlives_its_supervisor() {
    let Some(_turn) = common::live("a_group_outlives_its_supervisor") else { return };
    for signal in ["-KILL", "-TERM"] {
        let (world, target, short) = (World::new(), Target::start("600"), Target::start("600"));
        world.done(&[&["create", "web", "--share", "50%"][..], &DECLARED].concat());
        world.done(&["add", "web", &target.pid(), &short.pid()]);
        let before = world.settled("web", 2);
        let supervisor = before["supervisor"].to_string();
        assert!(Command::new("kill").args([signal, &supervisor]).status().unwrap().success());
        assert_eq!(short.end(), Some(42));
        let start = Instant::now();
        let stopped = loop {
            let list = world.json(&["list", "--json"]);
            match list["groups"][0]["stopped"].as_str() {
                Some(text) => break text.to_owned(),
                None => assert!(start.elapsed() < common::HANGS, "{list}"),
            }
        };
        assert!(stopped.contains("group start web") && stopped.contains("1 of 2"), "{stopped}");
        world.refused(&["add", "web", &target.pid()], 111, "group start web");
        let said = world.done(&["start", "web"]);
        assert!(said.contains("1 of 2 processes taken again; ended meanwhile"), "{said}");
        let after = world.settled("web", 1);
        assert_eq!(after["colors"], before["colors"]);
        world.refused(&["start", "web"], 108, "supervisor");
        assert_eq!(target.end(), Some(42), "{signal}");
    }
}

#[test]
fn processes_of_a_control_group_are_taken_as_they_come() {
    let test = "processes_of_a_control_group_are_taken_as_they_come";
    let Some(_turn) = common::live(test) else { return };
    let Some(made) = Made::new() else {
        return common::skip(test, "no control group can be made here");
    };
    let (world, first) = (World::new(), Target::start("600"));
    made.take(&first.pid());
    let path = made.0.display().to_string();
    let create = ["create", "web", "--share", "25%", "--cgroup", &path];
    world.done(&[&create[..], &DECLARED].concat());
    world.settled("web", 1);
    let second = Target::start("600");
    made.take(&second.pid());
    world.settled("web", 2);
    world.done(&["delete", "web"]);
    assert_eq!((first.end(), second.end()), (Some(42), Some(42)));
    let none = ["create", "web", "--share", "25%", "--cgroup", "no-such-group"];
    world.refused(&none, 2, "no control group no-such-group");
}

#[test]
fn a_file_names_groups() {
    let Some(_turn) = common::live("a_file_names_groups") else { return };
    let world = World::new();
    let file = world.0.path().join("groups.toml");
    let path = file.display().to_string();
    let table = |name: &str, colors: &str| {
        format!("[[group]]\nname = \"{name}\"\ncolors = \"{colors}\"\ncolors-from = \"declared\"\n")
    };
    std::fs::write(&file, table("web", "0-3") + &table("db", "4-7")).unwrap();
    world.done(&["apply", &path]);
    let again = world.done(&["apply", &path]);
    assert!(again.contains("group web is there") && again.contains("group db is there"), "{again}");
    assert_eq!(world.json(&["list", "--json"])["groups"].as_array().map(Vec::len), Some(2));
    std::fs::write(&file, table("web", "0-1")).unwrap();
    world.refused(&["apply", &path], 108, "defined otherwise");
    std::fs::write(&file, "[[group]]\nname = \"web\"").unwrap();
    world.refused(&["apply", &path], 112, "expected share or colors");
}
