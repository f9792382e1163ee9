//! `huepage daemon` with groups that gain and lose colours as COLORIS has it: what nobody touches stays in colours
//! that were lost and is told apart, what is used moves; of what is to fill new colours by Selective Moving one
//! page in so many moves. As page tables have it, in declared colours. And a group that is named by its control group.

use crate::common;

use common::Target;
use common::cgroup::Made;
use common::daemon::{World, group};
use common::pages::{Polluter, Range, by_color, colors, frames, inside, large};
use serde_json::Value;

/// The file for two programs, with so many colours for each.
fn write(world: &World, keys: &str, waits: &Polluter, works: &Target, share: u16) {
    let of = |name: &str, pid: &str| group(name, &format!("pid = {pid}\nshare = {share}"));
    let groups = of("waits", &waits.pid()) + &of("works", &works.pid());
    world.write_paced(&format!("interval = 0.2\nrest = 0.3\n{keys}"), &groups);
}

/// The same while the daemon runs, which has taken it up then.
fn rewrite(world: &World, keys: &str, waits: &Polluter, works: &Target, share: u16) {
    write(world, keys, waits, works, share);
    world.json(&["ctl", "reload", "--json"]);
}

fn colors_of(world: &World, name: &str) -> String {
    world.group(name)["colors"].as_str().unwrap().to_owned()
}

/// Colours of the cache.
fn universe(world: &World) -> u64 {
    world.json(&["ctl", "status", "--json"])["of"].as_u64().unwrap()
}

/// What a program computes in, beside stacks of threads. To be asked before an agent comes, which has memory
/// of its own.
fn used(works: &Target) -> Range {
    let there = |range: &Range| {
        frames(&works.pid(), *range).into_iter().filter(|&frame| frame != 0).count()
    };
    large(&works.pid(), 8 << 20).into_iter().max_by_key(there).unwrap()
}

/// What a program computes in lies in its group's colours. The area has pages of others at its ends.
fn works_in(world: &World, works: &Target, range: Range, list: &str) {
    let of = universe(world);
    world.until("what is used moves", |_| {
        let [own, others] = inside(&by_color(&frames(&works.pid(), range), of), list);
        own >= 2048 && own >= others * 32
    });
}

fn inspected(world: &World, pid: &str) -> Value {
    let output = world.huepage(&["inspect", pid, "--json"]);
    serde_json::from_slice(&output.stdout).unwrap_or_default()
}

/// So many looks of the engine later.
fn looked(world: &World, pid: &str) {
    let audits = |world: &World| inspected(world, pid)["engine"]["audits"].as_u64();
    let then = audits(world).unwrap();
    world.until("looks again", |world| audits(world) >= Some(then + 3));
}

/// Pages of which frames did not change, of all.
fn unmoved(before: &[u64], after: &[u64]) -> [usize; 2] {
    let same = before.iter().zip(after).filter(|(a, b)| a == b && **a != 0).count();
    [same, before.iter().filter(|&&frame| frame != 0).count()]
}

#[track_caller]
fn stayed(before: &[u64], after: &[u64]) {
    let [same, all] = unmoved(before, after);
    assert!(all > 100 && same * 100 >= all * 95, "{same} of {all}");
}

/// What is told of pages that wait: as many as lie outside, counted as outside.
fn is_told(world: &World, pid: &str, outside: u64) {
    let found = inspected(world, pid);
    let told = found["census"]["left_alone"]["untouched"].as_u64();
    assert!(told >= Some(outside * 95 / 100), "{outside} of them: {found:#}");
    assert!(found["engine"]["untouched"].as_u64() >= told, "{found:#}");
    assert!(found["compliance"]["share"].as_f64() < Some(0.9), "{found:#}");
    let says = |args: &[&str], what: &str| {
        let said = String::from_utf8(world.huepage(args).stdout).unwrap();
        assert!(said.contains(what), "{what}: {said}");
    };
    says(&["inspect", pid], "left until touched");
    says(&["ctl", "groups"], " untouched");
    says(&["ctl", "status"], "pages left outside until touched");
    says(&["ctl", "metrics"], "huepage_group_untouched_pages{group=\"waits\"}");
    assert!(world.group("waits")["untouched"].as_u64() >= told);
}

/// Has a daemon begin with two colours for each, and six after that, so that all are in use, wherever memory
/// came from.
fn start_with_six(world: &mut World, waits: &Polluter, works: &Target) {
    write(world, "growth = \"even\"", waits, works, 2);
    world.start();
    let two = world.settled_of(&waits.pid());
    world.settled(works);
    rewrite(world, "growth = \"even\"", waits, works, 6);
    let of = universe(world);
    world.until("is in more colours", |_| {
        let [own, others] = inside(&waits.by_color(waits.passes, of), &two);
        others >= own
    });
    world.settled(works);
    rewrite(world, LAZY, waits, works, 6);
}

const LAZY: &str = "growth = \"redistribution\"\nshrink = \"lazy\"";
const EAGER: &str = "growth = \"redistribution\"\nshrink = \"eager\"";

#[test]
fn what_nobody_touches_stays_in_lost_colours_and_what_is_used_moves() {
    let test = "what_nobody_touches_stays_in_lost_colours";
    let Some(_turn) = common::live(test) else { return };
    if !common::pages::reads_accessed_bits() {
        return common::skip(test, "accessed bits cannot be read here");
    }
    let (mut world, mut waits, works) = (World::new(), Polluter::start(), Target::start("600"));
    let (pid, computes) = (waits.pid(), used(&works));
    start_with_six(&mut world, &waits, &works);
    let of = universe(&world);
    let six = world.settled_of(&pid);
    let before = frames(&pid, waits.passes);
    // Fewer colours: what works comes there, what waits stays.
    rewrite(&world, LAZY, &waits, &works, 2);
    let two = colors_of(&world, "waits");
    assert_eq!(colors(&two).len(), 2);
    works_in(&world, &works, computes, &colors_of(&world, "works"));
    looked(&world, &pid);
    let after = frames(&pid, waits.passes);
    stayed(&before, &after);
    let outside = inside(&by_color(&after, of), &two)[1];
    assert!(outside > 0, "{six} to {two}");
    is_told(&world, &pid, outside);
    // The colours come back, and nothing is to be done.
    rewrite(&world, LAZY, &waits, &works, 6);
    assert_eq!(colors_of(&world, "waits"), six);
    world.settled_of(&pid);
    world.until("is forgotten", |world| world.group("waits")["untouched"] == 0);
    stayed(&before, &frames(&pid, waits.passes));
    // They go again, and now what waited works.
    rewrite(&world, LAZY, &waits, &works, 2);
    let two = colors_of(&world, "waits");
    looked(&world, &pid);
    stayed(&before, &frames(&pid, waits.passes));
    waits.work();
    let lies = |range| inside(&waits.by_color(range, of), &two);
    world.until("moves when it is used", |_| {
        let kept = lies(waits.keeps);
        kept[0] > 0 && kept[1] == 0
    });
    // Whatever is left outside moves when nothing is to wait any more.
    rewrite(&world, EAGER, &waits, &works, 2);
    world.settled_of(&pid);
    world.until("moves in the end", |_| lies(waits.passes)[1] == 0);
    assert!(world.group("waits")["untouched"].is_null());
    assert_eq!(works.end(), Some(42));
}

#[test]
fn a_killed_daemon_leaves_waiting_pages_and_right_answers() {
    let test = "a_killed_daemon_leaves_waiting_pages";
    let Some(_turn) = common::live(test) else { return };
    if !common::pages::reads_accessed_bits() {
        return common::skip(test, "accessed bits cannot be read here");
    }
    let (mut world, mut waits, works) = (World::new(), Polluter::start(), Target::start("600"));
    start_with_six(&mut world, &waits, &works);
    world.settled_of(&waits.pid());
    rewrite(&world, LAZY, &waits, &works, 2);
    world.until("waits", |world| world.group("waits")["untouched"].as_u64() > Some(100));
    world.kill();
    let before = frames(&waits.pid(), waits.passes);
    waits.work();
    // The next one brings what lies outside there: it knows of no page that is to wait.
    world.start();
    world.settled_of(&waits.pid());
    assert!(unmoved(&before, &frames(&waits.pid(), waits.passes))[0] < before.len());
    assert_eq!(works.end(), Some(42));
}

#[test]
fn selective_moving_moves_one_page_in_so_many_of_each_colour() {
    let test = "selective_moving_moves_one_page_in_so_many";
    let Some(_turn) = common::live(test) else { return };
    let Some(ways) = ways() else { return common::skip(test, "the L2 has no number of ways") };
    let (mut world, waits, works) = (World::new(), Polluter::start(), Target::start("600"));
    let (area, keys) = (used(&works), "growth = \"selective\"");
    write(&world, keys, &waits, &works, 2);
    world.start();
    let of = universe(&world);
    let two = world.settled_of(&waits.pid());
    world.settled(&works);
    let before = frames(&waits.pid(), waits.passes);
    let used = frames(&works.pid(), area);
    rewrite(&world, keys, &waits, &works, 6);
    let six = colors_of(&world, "works");
    // Sixteen MiB of the one that works: about as many as there are, by ways and one.
    let all = used.iter().filter(|&&frame| frame != 0).count() as u64;
    let [least, most] = [all / (ways + 1) / 2, all / (ways + 1) * 2];
    let old = colors_of_frames(&used, of);
    let moved = |_: &World| {
        let now = by_color(&frames(&works.pid(), area), of);
        let new = colors(&six).into_iter().filter(|color| !old.contains(color));
        new.map(|color| now[color]).sum::<u64>()
    };
    world.until("some move", |world| moved(world) >= least);
    looked(&world, &works.pid());
    assert!(moved(&world) <= most, "{} of {all}, {ways} ways", moved(&world));
    // So of the other one, whether or not it is used.
    let now = by_color(&frames(&waits.pid(), waits.passes), of);
    let [own, others] = inside(&now, &two);
    let all = before.iter().filter(|&&frame| frame != 0).count() as u64;
    assert!(others <= all / (ways + 1) * 2 && own + others == all, "{now:?} of {all}");
    assert_eq!(works.end(), Some(42));
}

/// Colours that some of the frames have.
fn colors_of_frames(frames: &[u64], of: u64) -> Vec<usize> {
    let found = by_color(frames, of);
    (0..found.len()).filter(|&color| found[color] > 0).collect()
}

/// Ways of the L2, as huepage has them.
fn ways() -> Option<u64> {
    let info = common::huepage(&["info", "--json", "--no-probe"]).stdout;
    let info: Value = serde_json::from_slice(&info).ok()?;
    let caches = info["machine"]["caches"].as_array()?;
    caches.iter().find(|of| of["geometry"]["level"] == 2)?["geometry"]["ways"].as_u64()
}

#[test]
fn a_group_is_named_by_its_control_group() {
    let test = "a_group_is_named_by_its_control_group";
    let Some(_turn) = common::live(test) else { return };
    let Some(made) = Made::new() else {
        return common::skip(test, "no control group can be made here");
    };
    let (mut world, one, two) = (World::new(), Target::start("600"), Target::start("600"));
    made.take(&one.pid());
    let name = made.name_in(&one.pid());
    world.write(&group("service", &format!("cgroup = \"{name}\"\nshare = 4")));
    world.start();
    let colors = world.settled(&one);
    let members = |world: &World| world.group("service")["processes"].clone();
    assert_eq!(members(&world), serde_json::json!([one.pid().parse::<u32>().unwrap()]));
    // Another one that comes there is taken as it comes.
    made.take(&two.pid());
    assert_eq!(world.settled(&two), colors);
    assert_eq!(members(&world).as_array().map(Vec::len), Some(2));
    // One that is not there is in no group.
    let three = Target::start("600");
    world.until("looks", |world| members(world).as_array().map(Vec::len) == Some(2));
    assert_eq!(world.huepage(&["inspect", &three.pid()]).status.code(), Some(111));
    assert_eq!((one.end(), two.end(), three.end()), (Some(42), Some(42), Some(42)));
}
