//! Four live groups under `huepage daemon`, one of them hungry for the cache, by what the residency sensor says
//! of them: the hungry one gets more, from those who can do with less, and every decision is explained. How soon,
//! and what comes of it in colours that are real, is measured by `huepage-bench daemon-settle`, not here: colours
//! are declared, and a busy machine takes its time.

use crate::common;

use std::collections::BTreeSet;
use std::process::{Command, Stdio};

use common::Killed;
use common::daemon::{World, group};
use serde_json::Value;

const GROUPS: [&str; 4] = ["hungry", "stream", "tiny", "sleeper"];

fn kernel(workload: &str) -> Killed {
    let mut command = Command::new(common::tools().join("huepage-kernel"));
    command.args([workload, "--seconds", "600"]);
    let mut child = Killed(command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap());
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert!(child.0.try_wait().unwrap().is_none(), "{workload} has ended");
    child
}

fn sleeper() -> Killed {
    let mut command = Command::new("sleep");
    Killed(command.arg("600").stdin(Stdio::null()).spawn().unwrap())
}

/// One for each of [`GROUPS`].
fn programs() -> [Killed; 4] {
    // Whatever the L2 is, a walk by chance over so much of it misses.
    [
        kernel("random:size=64M,rounds=250000"),
        kernel("sequential:size=64M,rounds=250000"),
        kernel("random:size=64K,rounds=250000000"),
        sleeper(),
    ]
}

fn counts(world: &World) -> [u64; 4] {
    let groups = world.json(&["ctl", "groups", "--json"]);
    let of = |name: &str| {
        let all = groups["groups"].as_array().unwrap();
        let found = all.iter().find(|group| group["name"] == name);
        found.and_then(|group| group["count"].as_u64()).unwrap()
    };
    GROUPS.map(of)
}

/// The colours of a list such as `0-2,5`.
fn colors(text: &str) -> BTreeSet<u64> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        first.parse::<u64>().unwrap()..=last.parse().unwrap()
    };
    text.split(',').flat_map(range).collect()
}

#[test]
fn the_hungry_one_of_four_groups_gets_more_and_every_decision_is_explained() {
    let test = "the_hungry_one_of_four_groups_gets_more";
    let Some(_turn) = common::live(test) else { return };
    let programs = programs();
    let rules = [
        "miss_rate = { low = 0.01, high = 0.05 }\npriority = 5",
        "miss_rate = { low = 0.5, high = 1.0 }",
        "miss_rate = { low = 0.3, high = 0.6 }",
        "miss_rate = { low = 0.3, high = 0.6 }",
    ];
    let mut text = String::new();
    for ((name, program), rule) in GROUPS.iter().zip(&programs).zip(rules) {
        text += &group(name, &format!("pid = {}\n{rule}", program.0.id()));
    }
    let mut world = World::new();
    // To be seen soon, they are watched more than anybody else would be.
    world.write_paced("interval = 0.5\nrest = 1\ncpu = 5", &text);
    world.start();
    let first = counts(&world);
    // A sensor may need several tries on a busy machine; only what it says in the end counts.
    if !world.comes(|world| world.group("hungry")["reading"].is_number()) {
        let why = world.group("hungry")["trouble"].to_string();
        return common::skip(test, format!("{why} {}", world.log()));
    }
    // By a colour at least of each step that it takes at a time.
    world.until("gets more", |world| counts(world)[0] >= first[0] + 2);
    let last = counts(&world);
    assert!(last[1..].iter().sum::<u64>() < first[1..].iter().sum(), "{first:?}, {last:?}");
    assert!(last.iter().all(|&count| count >= 1), "{last:?}");
    all_is_explained(&world);
    nobody_has_another_s(&world);
}

/// Partitions are disjoint.
fn nobody_has_another_s(world: &World) {
    let groups = world.json(&["ctl", "groups", "--json"]);
    let groups = groups["groups"].as_array().unwrap();
    let all: Vec<BTreeSet<u64>> =
        groups.iter().map(|g| colors(g["colors"].as_str().unwrap())).collect();
    let union: BTreeSet<u64> = all.iter().flatten().copied().collect();
    assert_eq!(union.len(), all.iter().map(BTreeSet::len).sum::<usize>(), "{groups:#?}");
}

/// Every decision has a reason with what was read, and is in the log as it is remembered.
fn all_is_explained(world: &World) {
    let said = world.json(&["ctl", "decisions", "--last", "1000", "--json"]);
    let log = world.log();
    assert_eq!(said["schema"], 1, "{said:#}");
    let decisions = said["decisions"].as_array().unwrap();
    assert!(decisions.len() >= 2, "{said:#}");
    for decision in decisions {
        let text = |key: &str| decision[key].as_str().unwrap();
        let reason = text("reason");
        assert!(reason.contains("miss rate") || reason.contains("priority"), "{decision}");
        let known = |line: &str| line.contains(text("group")) && line.ends_with(reason);
        assert!(log.lines().any(known), "{decision} is not in the log: {log}");
    }
    let changes = |of: &Value| of["from"] != of["to"] && of["group"] == "hungry";
    assert!(decisions.iter().any(changes), "{said:#}");
}
