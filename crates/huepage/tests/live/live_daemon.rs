//! `huepage daemon` and `ctl`, live, in declared colours so that nothing depends on timing: groups are
//! taken and confined, reloaded, frozen and released; a dry run touches nobody; a killed daemon leaves
//! everybody unharmed, and the next one takes everybody up again in the same colours.

use crate::common;

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

use common::Target;
use common::daemon::{Named, World, group};

#[test]
fn groups_are_taken_reloaded_and_released() {
    let Some(_turn) = common::live("groups_are_taken_reloaded_and_released") else { return };
    let (mut world, one) = (World::new(), Target::start("600"));
    let two = Named::start(&world, "hpd");
    let web = group("web", &format!("pid = {}\nshare = 4", one.pid()));
    world.write(&(web.clone() + &group("none", "command = \"no-such-program\"\nshare = 2")));
    world.start();
    assert_eq!(world.settled(&one), "0-3");
    assert!(world.log().contains("none: no process matches"), "{}", world.log());
    let said = world.json(&["ctl", "status", "--json"]);
    assert_eq!((&said["processes"], &said["groups"]), (&1.into(), &2.into()));
    assert!(said["troubles"].to_string().contains("none: no process matches"), "{said}");
    // Who tells of miss rates, and why nobody better.
    let sensor = said["sensor"].as_str().unwrap();
    assert!(sensor.starts_with("residency (not pmu: ") || sensor.starts_with("pmu ("), "{said}");
    let second =
        world.huepage(&["daemon", "--config", world.path("huepage.toml").to_str().unwrap()]);
    assert_eq!(second.status.code(), Some(108), "{second:?}");
    // The other process by its command; the first group keeps its colours.
    let pattern = two.name().replace("hpd", "h?d*");
    let named = group("rest", &format!("command = \"{pattern}\"\nshare = 4"));
    world.write(&(web + &named));
    world.json(&["ctl", "reload", "--json"]);
    let (first, other) = (world.settled(&one), world.settled_of(&two.pid()));
    assert_eq!(first, "0-3");
    assert!(other != first && other.len() == first.len(), "{first} and {other}");
    assert_eq!(world.group("rest")["processes"].to_string(), format!("[{}]", two.pid()));
    a_mistake_changes_nothing(&world);
    // A process that the file names no more is let go.
    world.write(&named.replace(&pattern, "no-such-program"));
    world.json(&["ctl", "reload", "--json"]);
    for pid in [one.pid(), two.pid()] {
        world.until("released", |world| {
            world.huepage(&["inspect", &pid]).status.code() == Some(111)
        });
    }
    figures_are_there(&world);
    stops(&mut world);
    drop((one, two));
}

fn a_mistake_changes_nothing(world: &World) {
    world.write("[[group]]\nname = \"web\"\nshade = 1\n");
    let refused = world.huepage(&["ctl", "reload"]);
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(112), "{text}");
    assert!(text.contains("huepage.toml:12:1: unknown field `shade`, expected"), "{text}");
    assert_eq!(world.group("web")["colors"], "0-3");
}

fn figures_are_there(world: &World) {
    let metrics = world.huepage(&["ctl", "metrics"]).stdout;
    let metrics = String::from_utf8(metrics).unwrap();
    assert!(metrics.contains("huepage_group_colors{group=\"rest\"} 4"), "{metrics}");
    promtool_accepts(&metrics);
    let file = std::fs::read_to_string(world.path("metrics/huepage.prom")).unwrap();
    assert!(file.contains("# HELP"), "{file}");
}

/// Prometheus's own tool: a name, a type or a unit that it would not have is an error.
fn promtool_accepts(metrics: &str) {
    let mut promtool = Command::new("promtool");
    promtool.args(["check", "metrics"]).stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut started = match promtool.spawn() {
        Ok(started) => started,
        Err(error) => return common::skip("promtool_accepts", format!("promtool: {error}")),
    };
    started.stdin.take().expect("a pipe").write_all(metrics.as_bytes()).expect("written");
    let output = started.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{output:?}");
}

fn stops(world: &mut World) {
    assert!(world.huepage(&["ctl", "stop"]).status.success());
    assert!(world.ends_well());
    let gone = world.huepage(&["ctl", "status"]);
    assert_eq!(gone.status.code(), Some(111), "{gone:?}");
}

#[test]
fn a_dry_run_says_what_it_would_do_and_touches_nobody() {
    let Some(_turn) = common::live("a_dry_run_says_what_it_would_do") else { return };
    let (world, target) = (World::new(), Target::start("600"));
    world.write(
        &(group("web", &format!("pid = {}\nshare = \"50%\"", target.pid()))
            + &group(
                "more",
                "command = \"no-such-program\"\nmiss_rate = { low = 0.1, high = 0.4 }\nceiling = 3",
            )),
    );
    let file = world.path("huepage.toml").display().to_string();
    let said = world.json(&["daemon", "--config", &file, "--dry-run", "--json"]);
    assert_eq!(said["groups"][0]["processes"][0]["pid"].to_string(), target.pid());
    assert_eq!(said["groups"][1]["processes"].as_array().map(Vec::len), Some(0));
    let text = world.huepage(&["daemon", "--config", &file, "--dry-run"]).stdout;
    let text = String::from_utf8(text).unwrap();
    assert!(
        text.contains("no process matches now") && text.contains("nothing was changed"),
        "{text}"
    );
    assert!(text.contains("1 to 3 colours, by the miss rate: 0.1 to 0.4"), "{text}");
    assert_eq!(world.huepage(&["inspect", &target.pid()]).status.code(), Some(111));
    assert!(!world.path("state").exists() && !world.path("metrics").exists());
    assert_eq!(target.end(), Some(42));
}

#[test]
fn mistakes_in_the_file_are_told_with_their_place() {
    let Some(_turn) = common::live("mistakes_in_the_file_are_told") else { return };
    let world = World::new();
    for (groups, place, what) in [
        ("", "1:1", "at least one [[group]]"),
        ("[[group]]\nname = \"a\"\npid = 1\nshare = \"0.001%\"\n", "13:9", "25%"),
        (
            "[[group]]\nname = \"a\"\npid = 1\nshare = 60000\n[[group]]\nname = \"b\"\npid = 2\nshare = 1\n",
            "13:9",
            "are left",
        ),
    ] {
        world.write(groups);
        for args in [&["--dry-run"][..], &[]] {
            let file = world.path("huepage.toml").display().to_string();
            let output = world.huepage(&[&["daemon", "--config", &file], args].concat());
            let text = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(112), "{text}");
            assert!(
                text.contains(&format!("huepage.toml:{place}: ")) && text.contains(what),
                "{text}"
            );
            assert_eq!(text.lines().count(), 1, "{text}");
        }
    }
}

/// Residency sees the L2: where there is a last level behind it and no PMU, a miss rate of that is refused.
#[test]
fn a_miss_rate_of_another_cache_than_is_seen_is_refused() {
    let Some(_turn) = common::live("a_miss_rate_of_another_cache") else { return };
    let world = World::new();
    let file = world.path("huepage.toml");
    let text = "[daemon]\nlevel = \"llc\"\nsensor = \"residency\"\n[[group]]\nname = \"a\"\npid = 1\n\
        miss_rate = { low = 0.1, high = 0.4 }\n";
    std::fs::write(&file, text).unwrap();
    let info = world.json(&["info", "--json"]);
    let levels = info["machine"]["caches"].to_string();
    let output = world.huepage(&["daemon", "--dry-run", "--config", &file.display().to_string()]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if levels.contains("\"level\":3") {
        assert_eq!(output.status.code(), Some(112), "{said}");
        assert!(said.contains("huepage.toml:7:13: group a has a miss_rate of the L3"), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    } else {
        eprintln!("no L3 here: {levels}");
        assert!(!said.contains("has a miss_rate"), "{said}");
    }
}

/// A group of one process that goes by the number in the file of its name.
fn by_metric(world: &World, name: &str, target: &Target) -> String {
    let file = world.path(name).display().to_string();
    let what = format!(
        "pid = {}\nfloor = 2\nmetric = {{ command = [\"cat\", \"{file}\"], low = 4, high = 6, better = \"lower\", every = 0.1 }}",
        target.pid()
    );
    group(name, &what)
}

fn count(world: &World, name: &str) -> u64 {
    world.group(name)["count"].as_u64().unwrap()
}

/// What a group of so many colours reads that is slow, and less so with every colour by far more than
/// chance, however many the cache has.
fn slow(colors: u64) -> u64 {
    1000 / colors
}

/// One is slow; whether the other has its floor by now.
fn takes_all(world: &World, one: &str, other: &str) -> bool {
    std::fs::write(world.path(one), slow(count(world, one)).to_string()).unwrap();
    count(world, other) == 2
}

#[test]
fn colours_follow_a_metric_and_freeze() {
    let Some(_turn) = common::live("colours_follow_a_metric_and_freeze") else { return };
    let (mut world, one, two) = (World::new(), Target::start("600"), Target::start("600"));
    for name in ["one", "two"] {
        std::fs::write(world.path(name), "5").unwrap();
    }
    world.write(&(by_metric(&world, "one", &one) + &by_metric(&world, "two", &two)));
    world.start();
    let before = (world.settled(&one), world.settled(&two));
    let half = count(&world, "one");
    assert!(half > 2 && half == count(&world, "two"), "{before:?}");
    // The other has time.
    std::fs::write(world.path("two"), "1").unwrap();
    world.until("takes all but the floor", |world| takes_all(world, "one", "two"));
    assert_eq!(count(&world, "one"), 2 * half - 2);
    let (more, fewer) = (world.settled(&one), world.settled(&two));
    assert_ne!((&more, &fewer), (&before.0, &before.1));
    let said = world.json(&["ctl", "decisions", "--json"]);
    let reasons = said.to_string();
    assert!(reasons.contains("above 6: takes") && reasons.contains("below 4"), "{said:#}");
    assert!(world.log().contains(&format!("metric {}", slow(half))), "{}", world.log());
    // Frozen, nothing moves, whatever is read.
    assert!(world.huepage(&["ctl", "freeze"]).status.success());
    std::fs::write(world.path("one"), "1").unwrap();
    std::fs::write(world.path("two"), "9").unwrap();
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(count(&world, "two"), 2);
    // A killed daemon leaves both alone; the next one has the same colours, and is still frozen.
    world.kill();
    world.start();
    assert_eq!((world.settled(&one), world.settled(&two)), (more, fewer));
    assert_eq!(world.json(&["ctl", "status", "--json"])["frozen"], true);
    assert!(world.huepage(&["ctl", "thaw"]).status.success());
    world.until("gives back", |world| takes_all(world, "two", "one"));
    drop((one, two));
}

#[test]
fn a_killed_daemon_harms_nobody_and_the_next_one_goes_on() {
    let Some(_turn) = common::live("a_killed_daemon_harms_nobody") else { return };
    let (mut world, one, two) = (World::new(), Target::start("600"), Target::start("600"));
    let groups = group("web", &format!("pid = {}\nshare = 4", one.pid()))
        + &group(
            "db",
            &format!(
                "pid = {}\nmiss_rate = {{ low = 0.1, high = 0.9 }}\nfloor = 2\nceiling = 4",
                two.pid()
            ),
        );
    world.write(&groups);
    for time in 0_u64..4 {
        world.start();
        if time % 2 == 0 {
            let colors = (world.settled(&one), world.settled(&two));
            assert_ne!(colors.0, colors.1);
            let state = std::fs::read_to_string(world.path("state/daemon.json")).unwrap();
            assert!(state.contains(&one.pid()) && state.contains(&two.pid()), "{state}");
        } else {
            std::thread::sleep(Duration::from_millis(137 * time));
        }
        world.kill();
    }
    world.start();
    assert_eq!(world.settled(&one), "0-3");
    // They compute until they are told to end, and then say what came of it.
    assert_eq!((one.end(), two.end()), (Some(42), Some(42)));
    world.until("ended", |world| world.json(&["ctl", "status", "--json"])["processes"] == 0);
    let runs = std::fs::read_dir(world.path("run")).unwrap().flatten();
    let names: Vec<String> = runs.map(|e| e.file_name().to_string_lossy().into_owned()).collect();
    // Its two sockets, a file for each group, two locks; what the killed ones left is swept.
    assert_eq!(names.len(), 6, "{names:?}");
}
