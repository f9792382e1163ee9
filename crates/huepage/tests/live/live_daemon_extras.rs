//! `huepage daemon` with groups that ask for more than colours: superpages, a pollute buffer, files in
//! sequences. Each is what `huepage attach` does with the options of the same names; here it is asserted that groups
//! get it, that it is told, and that a reload gives and takes it. Colours are declared.

use crate::common;

use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};

use common::daemon::{World, group};
use common::pages::{Polluter, inside, large};
use common::{Killed, Target};
use serde_json::Value;
use tempfile::TempDir;

/// A program that walks a large table by chance, for as long as it is let.
fn gups() -> Killed {
    let mut command = Command::new(common::tools().join("huepage-superpages"));
    command.args(["gups", "--mib", "128", "--seconds", "600"]);
    let child = Killed(command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap());
    // It has its memory by then.
    std::thread::sleep(std::time::Duration::from_millis(500));
    child
}

/// What huepage itself says of a process.
fn inspected(world: &World, pid: &str) -> Value {
    let output = world.huepage(&["inspect", pid, "--json"]);
    serde_json::from_slice(&output.stdout).unwrap_or_default()
}

#[test]
fn superpages_are_built_where_a_group_says_so_and_go_back_when_it_does_not() {
    let test = "superpages_are_built_where_a_group_says_so";
    let Some(_turn) = common::live(test) else { return };
    let always = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
    if always.is_ok_and(|text| text.contains("[always]")) {
        return common::skip(test, "the kernel builds superpages itself (THP is always)");
    }
    let (mut world, child) = (World::new(), gups());
    let pid = child.0.id().to_string();
    let walk = |more: &str| group("walk", &format!("pid = {pid}\nshare = \"50%\"\n{more}"));
    let benefit = "superpages = \"approx-online\"\nsuperpages_in_partition = \"benefit\"";
    world.write(&walk(benefit));
    let file = world.path("huepage.toml").display().to_string();
    let dry = world.huepage(&["daemon", "--config", &file, "--dry-run"]).stdout;
    assert!(String::from_utf8_lossy(&dry).contains("superpages by approx-online"), "{dry:?}");
    world.start();
    let built = |world: &World| world.group("walk")["superpages"]["promoted"].as_u64();
    world.until("builds superpages", |world| built(world) >= Some(8));
    world.until("are told", |world| {
        inspected(world, &pid)["engine"]["superpages"].as_u64() >= Some(8)
    });
    says(&world, &["ctl", "status"], "superpages built");
    says(&world, &["ctl", "metrics"], "huepage_group_superpages_built_total{group=\"walk\"}");
    // Where the partition is respected there are none, and it is said why.
    world.write(&walk("superpages = \"approx-online\""));
    world.json(&["ctl", "reload", "--json"]);
    let why = world.group("walk")["no_superpages"].as_str().unwrap_or_default().to_owned();
    assert!(why.contains("the colours"), "{why}");
    world.until("go back", |world| {
        let found = inspected(world, &pid);
        found["engine"]["superpages"] == 0 && found["compliance"]["share"].as_f64() >= Some(0.99)
    });
    world.write(&walk("superpages = \"asap\"\nsuperpages_in_partition = \"benefit\""));
    is_refused(&world, "knows of no TLB misses");
}

/// A reload says why it cannot be, with the place; all stays as it is.
fn is_refused(world: &World, why: &str) {
    let refused = world.huepage(&["ctl", "reload"]);
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(text.contains(why) && text.contains("huepage.toml:"), "{text}");
    assert_eq!(refused.status.code(), Some(112), "{text}");
}

fn says(world: &World, args: &[&str], what: &str) {
    let said = String::from_utf8(world.huepage(args).stdout).unwrap();
    assert!(said.contains(what), "{what}: {said}");
}

/// What passes by comes to lie in the buffer of its group, which has these colours, and what is kept in
/// the group's other colours; as the page tables have it.
fn is_apart(of_program: &Polluter, world: &World, colors: &str, of: u64) {
    let pages = (of_program.passes.1 - of_program.passes.0) / 4096;
    world.until("fills the buffer", |world| {
        let group = world.group("join");
        assert_eq!(group["buffer"], colors, "{group:#}");
        group["buffer_pages"].as_u64() >= Some(pages)
    });
    let lies = |range| inside(&of_program.by_color(range, of), colors);
    world.until("lies there", |_| lies(of_program.passes) == [pages, 0]);
    let whole = world.settled_of(&of_program.pid());
    world.until("the rest is beside it", |_| {
        let kept = of_program.by_color(of_program.keeps, of);
        lies(of_program.keeps)[0] == 0 && inside(&kept, &whole)[1] == 0
    });
}

#[test]
fn a_group_keeps_a_buffer_for_what_pollutes_which_follows_its_colours() {
    let Some(_turn) = common::live("a_group_keeps_a_buffer_for_what_pollutes") else { return };
    let (mut world, polluter) = (World::new(), Polluter::start());
    let (pid, (start, end)) = (polluter.pid(), polluter.passes);
    let join =
        |share: u16, more: &str| group("join", &format!("pid = {pid}\nshare = {share}\n{more}"));
    let buffer = format!("pollute_buffer = \"1/4\"\nconfine = \"{start:x}-{end:x}\"");
    world.write(&join(8, &buffer));
    world.start();
    let of = world.json(&["ctl", "status", "--json"])["of"].as_u64().unwrap();
    let pages = (end - start) / 4096;
    is_apart(&polluter, &world, "6-7", of);
    let seen = inspected(&world, &pid);
    assert_eq!(seen["partition"]["buffer"], "6-7", "{seen:#}");
    assert_eq!(seen["pollute"]["processes"][0]["stage"], "confined as asked", "{seen:#}");
    says(&world, &["ctl", "status"], "polluting pages in the buffer, colours 6-7");
    let figure = format!("huepage_group_buffer_pages{{group=\"join\"}} {pages}");
    says(&world, &["ctl", "metrics"], &figure);
    // Fewer colours: the buffer shrinks, and stays where it may.
    world.write(&join(4, &buffer));
    world.json(&["ctl", "reload", "--json"]);
    is_apart(&polluter, &world, "3", of);
    // Without one everything is everywhere in the group's colours again.
    world.write(&join(4, ""));
    world.json(&["ctl", "reload", "--json"]);
    assert!(world.group("join")["buffer"].is_null());
    assert_eq!(world.settled_of(&pid), "0-3");
    // And no buffer leaves nothing for the rest.
    world.write(&join(1, "pollute_buffer = \"1/16\""));
    is_refused(&world, "huepage.toml:14:18: the buffer takes 1 of the 1 colours");
}

/// What `huepage run` offers without a partition a group has without colours.
#[test]
fn a_group_without_colours_has_what_is_done_for_it() {
    let Some(_turn) = common::live("a_group_without_colours") else { return };
    let (mut world, polluter, target) = (World::new(), Polluter::start(), Target::start("600"));
    let (pid, (start, end)) = (polluter.pid(), polluter.passes);
    let confine = format!("confine = \"{start:x}-{end:x}\"");
    let join = group("join", &format!("pid = {pid}\npollute_buffer = \"1/8\"\n{confine}"));
    let build = group("build", &format!("pid = {}\nsuperpages = \"asap\"", target.pid()));
    world.write(&(join.clone() + &build));
    world.start();
    let pages = (end - start) / 4096;
    world.until("confines", |world| {
        let process = &world.group("join")["pollute"]["processes"][0];
        process["pages_in_buffer"].as_u64() >= Some(pages)
    });
    let found = world.group("build");
    assert_eq!(
        (&found["rule"], &found["processes"][0]),
        (&"without a partition".into(), &target.pid().parse::<u64>().unwrap().into()),
        "{found:#}"
    );
    assert!(world.log().contains(&format!("build: took {} ", target.pid())), "{}", world.log());
    let none = String::from_utf8(world.huepage(&["ctl", "decisions"]).stdout).unwrap();
    assert!(none.contains("none: no group has a miss_rate or metric"), "{none}");
    // What is only watched is free at once.
    assert!(world.huepage(&["detach", &target.pid()]).status.success());
    assert_eq!(target.end(), Some(42));
    world.write(&group("join", &format!("pid = {pid}\nshare = \"50%\"")));
    is_refused_with(&world, "cannot get or lose its colours");
    world.write(&(join + &group("spread", "pid = 1\nrecolor_conflicts = true\nshare = \"5%\"")));
    is_refused(&world, "recolor_conflicts cannot be combined with share");
}

/// A reload says why it cannot be; all stays as it is.
fn is_refused_with(world: &World, why: &str) {
    let refused = world.huepage(&["ctl", "reload"]);
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(text.contains(why), "{text}");
    assert_eq!(refused.status.code(), Some(112), "{text}");
}

#[test]
fn a_program_is_unharmed_while_its_buffer_comes_moves_and_goes() {
    let Some(_turn) = common::live("a_program_is_unharmed_while_its_buffer") else { return };
    let (mut world, target) = (World::new(), Target::start("600"));
    let pid = target.pid();
    // All of its memory that is large: it is written to all the time.
    let ranges: Vec<String> =
        large(&pid, 8 << 20).iter().map(|(start, end)| format!("{start:x}-{end:x}")).collect();
    assert!(!ranges.is_empty());
    for (share, part) in [(8, "1/4"), (6, "1/2"), (8, "1/8"), (4, "1/4"), (8, "1/2")] {
        let buffer = format!(
            "pid = {pid}\nshare = {share}\npollute_buffer = \"{part}\"\nconfine = {ranges:?}"
        );
        world.write(&group("answer", &buffer));
        if world.log().is_empty() {
            world.start();
        } else {
            world.json(&["ctl", "reload", "--json"]);
        }
        world.until("moves", |world| {
            let group = world.group("answer");
            let [all, inside] =
                ["polluting_pages", "buffer_pages"].map(|n| group[n].as_u64().unwrap_or(0));
            all >= 2048 && inside * 100 >= all * 98
        });
    }
    assert_eq!(target.end(), Some(42));
}

/// A shell that reads the files whose names it is given, and says so.
fn shell() -> Killed {
    let script = "while read file; do cksum < \"$file\"; done";
    let mut command = Command::new("sh");
    command.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped());
    Killed(command.spawn().unwrap())
}

#[test]
fn files_of_a_group_are_placed_before_they_are_read() {
    let test = "files_of_a_group_are_placed";
    let Some(_turn) = common::live_alone(test) else { return };
    let Some(dir) = disk(test) else { return };
    let (mut world, mut one, mut two) = (World::new(), shell(), shell());
    let files = |pids: &str| {
        let place = dir.path().display();
        let keys = format!(
            "page_cache = \"srm-rescan\"\npage_cache_wait = 20000\npage_cache_include = \"{place}\""
        );
        group("files", &format!("pid = {pids}\nshare = 4\n{keys}"))
    };
    world.write(&files(&one.0.id().to_string()));
    world.start();
    world.settled_of(&one.0.id().to_string());
    let opens = |world: &World| world.group("files")["page_cache"]["opens"].as_u64();
    world.until("is served", |world| opens(world).is_some());
    let placed = |world: &World| world.group("files")["page_cache"]["placed"].as_u64();
    read(&mut one, &dir.path().join("one"));
    // Most of 1024 pages: what is reclaimed or read meanwhile says nothing.
    world.until("places", |world| placed(world) >= Some(900));
    // One that comes later, by a reload, while the service runs.
    world.write(&files(&format!("[{}, {}]", one.0.id(), two.0.id())));
    world.json(&["ctl", "reload", "--json"]);
    world.settled_of(&two.0.id().to_string());
    world.until("knows both", |world| {
        world.group("files")["processes"].as_array().map(Vec::len) == Some(2)
    });
    read(&mut two, &dir.path().join("two"));
    world.until("places of both", |world| placed(world) >= Some(1800));
    says(&world, &["ctl", "metrics"], "huepage_group_files_placed_total{group=\"files\"} 2");
    // Groups whose colours change have no files placed.
    let pid = one.0.id();
    let keys = "miss_rate = { low = 0.1, high = 0.4 }\npage_cache = \"srm\"";
    world.write(&group("files", &format!("pid = {pid}\n{keys}")));
    is_refused(&world, "page_cache cannot be combined with miss_rate");
    for (shell, reads) in [(one, 1), (two, 1)] {
        assert_eq!(lines_of(shell), reads, "{}", world.log());
    }
}

/// A directory whose files can be placed.
fn disk(test: &str) -> Option<TempDir> {
    let dir = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let found = Command::new("stat").args(["-f", "-c", "%T"]).arg(dir.path()).output().unwrap();
    let kind = String::from_utf8_lossy(&found.stdout).trim().to_owned();
    if ["ext2/ext3", "xfs", "btrfs"].contains(&kind.as_str()) {
        return Some(dir);
    }
    common::skip(test, format!("files of {kind} are not placed"));
    None
}

/// Has a shell read a file of 1024 pages that is on the disk and not in the cache.
fn read(shell: &mut Killed, path: &Path) {
    let mut file = File::create(path).unwrap();
    file.write_all(&vec![7; 4 << 20]).unwrap();
    file.sync_all().unwrap();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    drop(file);
    writeln!(shell.0.stdin.as_mut().unwrap(), "{}", path.display()).unwrap();
}

/// What a program says until its input ends.
fn lines_of(mut child: Killed) -> usize {
    drop(child.0.stdin.take());
    BufReader::new(child.0.stdout.take().unwrap()).lines().count()
}

#[test]
fn what_nobody_touches_stays_when_a_group_grows_by_redistribution() {
    let test = "what_nobody_touches_stays_when_a_group_grows";
    let Some(_turn) = common::live(test) else { return };
    if !common::pages::reads_accessed_bits() {
        return common::skip(test, "accessed bits cannot be read here");
    }
    let (mut world, waits, works) = (World::new(), Polluter::start(), Target::start("600"));
    let reload = |world: &World, growth: &str, share: u16| {
        let of = |name: &str, pid: &str| group(name, &format!("pid = {pid}\nshare = {share}"));
        let groups = of("waits", &waits.pid()) + &of("works", &works.pid());
        let pace = format!("interval = 0.2\nrest = 0.3\ngrowth = \"{growth}\"");
        world.write_paced(&pace, &groups);
        world.huepage(&["ctl", "reload"]);
    };
    let of_waiting = |world: &World| {
        let colors = world.settled_of(&waits.pid());
        let of = world.json(&["ctl", "status", "--json"])["of"].as_u64().unwrap();
        (waits.by_color(waits.passes, of), colors)
    };
    reload(&world, "redistribution", 2);
    world.start();
    let (before, two) = of_waiting(&world);
    world.settled(&works);
    let all: u64 = before.iter().sum();
    assert_eq!(inside(&before, &two)[0], all);
    // More colours: what waits stays where it is, what works comes there.
    let moved = |world: &World| world.group("works")["recolored"].as_u64().unwrap();
    let then = moved(&world);
    reload(&world, "redistribution", 6);
    world.until("works elsewhere", |world| moved(world) > then + 64);
    let (after, six) = of_waiting(&world);
    assert_ne!(two, six);
    assert!(inside(&after, &two)[0] * 100 >= all * 95, "{before:?} in {two}, {after:?} in {six}");
    // Back, and evenly: now it moves as well.
    reload(&world, "even", 2);
    world.settled_of(&waits.pid());
    reload(&world, "even", 6);
    is_even(&world, || of_waiting(&world), all);
    assert_eq!(works.end(), Some(42));
}

/// Pages come to lie in six colours alike, more or less.
fn is_even(world: &World, look: impl Fn() -> (Vec<u64>, String), all: u64) {
    world.until("is even", |_| {
        let (now, six) = look();
        inside(&now, &six)[0] == all && now.iter().max().unwrap() * 6 <= all * 2
    });
}
