//! What became different between two moments, in words with the reason where one is known: who joined
//! and left, what was recoloured and built, and what was not. Supervisors carry decisions out; this is
//! what can be seen of them without asking more.

use std::collections::BTreeMap;

use super::snapshot::{GroupNow, ProcessNow, TopDecision, TopSnapshot};
use crate::style::count;

/// In the order of groups; of a moment without one before, nothing.
pub fn between(before: &TopSnapshot, now: &TopSnapshot) -> Vec<TopDecision> {
    let mut found = Vec::new();
    for group in &now.groups {
        let mut say = |text| found.push(TopDecision { at: now.at, group: group.label(), text });
        match before.groups.iter().find(|old| old.id() == group.id()) {
            None => say(format!("has colours {} of {}", group.colors, group.of)),
            Some(old) => of_group(old, group, [before, now], &mut say),
        }
    }
    for group in &before.groups {
        if !now.groups.iter().any(|new| new.id() == group.id()) {
            let text = format!("ended; colours {} are free", group.colors);
            found.push(TopDecision { at: now.at, group: group.label(), text });
        }
    }
    found
}

fn of_group(
    old: &GroupNow,
    new: &GroupNow,
    moments: [&TopSnapshot; 2],
    say: &mut impl FnMut(String),
) {
    if old.colors != new.colors {
        say(format!("colours {} became {}", old.colors, new.colors));
    }
    for &pid in new.members.iter().filter(|pid| !old.members.contains(pid)) {
        say(format!("confines {pid} {}", name(moments[1], pid)));
    }
    for &pid in old.members.iter().filter(|pid| !new.members.contains(pid)) {
        say(format!("{pid} {} ended or was released", name(moments[0], pid)));
    }
    for missed in new.missed.iter().filter(|missed| !old.missed.contains(missed)) {
        say(format!("does not confine {}: {}", missed.pid, missed.reason));
    }
    built(old, new, say);
    let members = new.members.iter().filter_map(|&pid| Some((pid, process(moments[1], pid)?)));
    for (pid, process) in members {
        let Some(old) = self::process(moments[0], pid) else { continue };
        recolored(old, process, say);
    }
}

fn built(old: &GroupNow, new: &GroupNow, say: &mut impl FnMut(String)) {
    let Some(new) = &new.superpages else { return };
    let old = old.superpages.clone().unwrap_or_default();
    let [built, broken] =
        [new.promoted - old.promoted.min(new.promoted), new.demoted - old.demoted.min(new.demoted)];
    if built > 0 {
        say(format!("superpages: {built} built, as misses there repay it"));
    }
    if broken > 0 {
        say(format!("superpages: {broken} broken, for the memory they took"));
    }
    for (why, more) in more(&old.refused, &new.refused) {
        say(format!("superpages: {more} not built: {why}"));
    }
}

/// What an audit has found and repaired, and what it left.
fn recolored(old: &ProcessNow, new: &ProcessNow, say: &mut impl FnMut(String)) {
    let (Some(old), Some(counts)) = (&old.counts, &new.counts) else { return };
    let moved = counts.recolored.saturating_sub(old.recolored);
    if moved > 0 {
        let pages = count(moved, "page", "pages");
        say(format!("{} {}: {pages} recoloured, outside its colours", new.pid, new.name));
    }
    let any = counts.fallback_pages.saturating_sub(old.fallback_pages);
    if any > 0 {
        let pages = count(any, "page", "pages");
        say(format!("{} {}: {pages} of any colour, the stock was empty", new.pid, new.name));
    }
    if counts.audits > old.audits {
        for (why, more) in more(&old.refused, &counts.refused) {
            let pages = count(more, "page", "pages");
            say(format!("{} {}: {pages} left alone: {why}", new.pid, new.name));
        }
    }
}

fn more(old: &BTreeMap<String, u64>, new: &BTreeMap<String, u64>) -> Vec<(String, u64)> {
    let grown = |(why, &count): (&String, &u64)| {
        let more = count.saturating_sub(old.get(why).copied().unwrap_or(0));
        (more > 0).then(|| (why.clone(), more))
    };
    new.iter().filter_map(grown).collect()
}

fn process(moment: &TopSnapshot, pid: i32) -> Option<&ProcessNow> {
    moment.processes.iter().find(|process| process.pid == pid)
}

fn name(moment: &TopSnapshot, pid: i32) -> &str {
    process(moment, pid).map_or("", |process| &process.name)
}

#[cfg(test)]
mod tests {
    use super::super::tests::canned;
    use super::*;
    use crate::report::Missed;

    #[test]
    fn the_same_moment_twice_is_no_change() {
        assert_eq!(between(&canned(0), &canned(0)), []);
    }

    #[test]
    fn who_comes_and_goes_and_what_was_done_is_told_with_the_reason() {
        let texts = |before: &TopSnapshot, now: &TopSnapshot| {
            let found = between(before, now);
            found.into_iter().map(|d| format!("{}: {}", d.group, d.text)).collect::<Vec<_>>()
        };
        let mut later = canned(1);
        later.groups[0].members.push(77);
        later.groups[0].missed.push(Missed { pid: 78, reason: "it is sandboxed".to_owned() });
        later.processes.retain(|process| process.pid != 4712);
        later.groups[0].members.retain(|&pid| pid != 4712);
        later.groups.remove(1);
        assert_eq!(
            texts(&canned(0), &later),
            [
                "blue: confines 77 ",
                "blue: 4712 python3 ended or was released",
                "blue: does not confine 78: it is sandboxed",
                "blue: superpages: 2 built, as misses there repay it",
                "blue: superpages: 1 not built: no memory",
                "blue: 4711 xz: 300 pages recoloured, outside its colours",
                "blue: 4711 xz: 3 pages left alone: pinned",
                "run 900: ended; colours 8-11 are free",
            ]
        );
        assert_eq!(texts(&later, &canned(1))[0..1], ["blue: confines 4712 python3"]);
    }

    #[test]
    fn two_groups_of_one_daemon_are_two() {
        let mut both = canned(0);
        both.groups[1].supervisor = 800;
        both.groups[1].name = Some("red".to_owned());
        assert_eq!(between(&both, &both.clone()), []);
        let mut less = both.clone();
        less.groups.remove(0);
        let found = between(&both, &less);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!((found[0].group.as_str(), &found[0].text[..5]), ("blue", "ended"));
    }
}
