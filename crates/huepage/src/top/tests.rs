//! The model driven by canned moments and keys, and what the view makes of it at two sizes.

use huepage_color::{ColorSet, Vpn};
use huepage_policy::AreaKind;
use huepage_policy::residency::{Estimate, ResidencyTally};
use insta::assert_snapshot;
use ratatui::Terminal;
use ratatui::backend::TestBackend;

use super::keys::TopKey;
use super::model::{TopModel, TopPage, TopRequest, TopRow};
use super::snapshot::{
    GroupNow, MemberCounts, ProcessNow, ResidencyNow, SuperpagesNow, TopDecision, TopSnapshot,
};
use super::view::{self, Theme};
use crate::report::Compliance;

/// Two groups and a process that is in none, `second` seconds after the first moment.
pub fn canned(second: u64) -> TopSnapshot {
    let mut blue = group(800, Some("blue"), "0-7", vec![4711, 4712]);
    let built = second * 2;
    blue.superpages = Some(SuperpagesNow {
        promoted: 4 + built,
        refused: [("no memory".to_owned(), 1 + second)].into(),
        ..SuperpagesNow::default()
    });
    let mut red = group(900, None, "8-11", vec![5000]);
    red.trouble = (second > 1).then(|| "the supervisor did not answer".to_owned());
    TopSnapshot {
        at: 1_000_000.0 + second as f64,
        groups: vec![blue, red],
        processes: vec![
            ProcessNow { residency: Some(residency(0.95)), ..member(4711, "xz", 800, second) },
            ProcessNow {
                no_residency: Some("it hardly runs".to_owned()),
                ..member(4712, "python3", 800, 0)
            },
            ProcessNow {
                residency: Some(residency(0.3)),
                ..member(5000, "redis-server-with-a-long-name", 900, 0)
            },
            ProcessNow {
                pid: 6000,
                name: "alone\x1b[2J".to_owned(),
                resident_bytes: 3 << 30,
                residency: Some(residency(0.6)),
                ..ProcessNow::default()
            },
        ],
        decisions: Vec::new(),
        no_daemon: Some("no daemon".to_owned()),
    }
}

fn group(supervisor: i32, name: Option<&str>, colors: &str, members: Vec<i32>) -> GroupNow {
    GroupNow {
        supervisor,
        name: name.map(str::to_owned),
        level: "L2".to_owned(),
        colors_from: "declared".to_owned(),
        colors: colors.to_owned(),
        of: 16,
        members,
        ..GroupNow::default()
    }
}

fn member(pid: i32, name: &str, supervisor: i32, second: u64) -> ProcessNow {
    let colors = if supervisor == 800 { "0-7" } else { "8-11" };
    let colors = ColorSet::parse(colors, 16).unwrap();
    let mut pages_by_color = vec![0; 16];
    for color in colors.iter() {
        pages_by_color[usize::from(color.0)] = 400 + u64::from(color.0) * 40;
    }
    let outside = if pid == 5000 { 300_u32 } else { 2 };
    pages_by_color[15] = if pid == 5000 { 300 } else { 0 };
    let in_colors = u64::from(5000 - outside);
    let share = 1.0 - f64::from(outside) / 5000.0;
    let counts = MemberCounts {
        recolored: 1000 + 300 * second,
        audits: 3 + second,
        refused: [("pinned".to_owned(), 3 * second)].into(),
        ..MemberCounts::default()
    };
    ProcessNow {
        pid,
        name: name.to_owned(),
        supervisor: Some(supervisor),
        group: (supervisor == 800).then(|| "blue".to_owned()),
        colors: Some(colors),
        resident_bytes: 20 << 20,
        compliance: Some(Compliance { movable: 5000, in_colors, share }),
        pages_by_color,
        counts: Some(counts),
        ..ProcessNow::default()
    }
}

/// A hot heap, of whose pages the first half is found with a probability, and a cold file.
fn residency(hot: f64) -> ResidencyNow {
    let mut tally = ResidencyTally::default();
    let heap = 0x5555_5555_0000_u64;
    let file = 0x7f00_0000_0000_u64;
    tally.add(
        (heap, heap + (128 << 12)),
        (AreaKind::Heap, "[heap]".to_owned()),
        128,
        (0..128).map(|page| Vpn(heap / 4096 + page)),
    );
    tally.add(
        (file, file + (64 << 20)),
        (AreaKind::SharedFile, "/srv/data/a-file-with-a-long-name.db".to_owned()),
        16384,
        (0..256).map(|page| Vpn(file / 4096 + page * 64)),
    );
    for sampled_page in 0..384 {
        let share = if sampled_page < 64 { hot } else { 0.004 * (sampled_page % 5) as f64 };
        (0..20).for_each(|look| tally.note(sampled_page, f64::from(look) < 20.0 * share));
    }
    let estimate = Estimate { miss_rate: 1.0 - hot, margin: 0.0123, samples: tally.samples() };
    ResidencyNow::of(&tally.areas, &tally.sampled_pages, Some(estimate), true)
}

fn at(seconds: u64) -> TopModel {
    let mut model = TopModel::default();
    (0..=seconds).for_each(|second| model.update(canned(second)));
    model
}

fn press(model: &mut TopModel, keys: &[TopKey]) -> Option<TopRequest> {
    keys.iter().fold(None, |_, &key| model.press(key))
}

/// Rows in their order.
fn named(model: &TopModel) -> String {
    let name = |row: &TopRow| match row {
        TopRow::Group(None) => "none".to_owned(),
        TopRow::Group(Some(group)) => group.label().replace(' ', "-"),
        TopRow::Process(process) => process.pid.to_string(),
    };
    model.rows().iter().map(name).collect::<Vec<_>>().join(" ")
}

fn drawn(model: &mut TopModel, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| view::draw(frame, model, Theme { colored: false })).unwrap();
    // Without the quotes with which the backend shows that lines have their full width.
    let lines = terminal.backend().to_string();
    lines.lines().map(|line| line.trim_matches('"').trim_end().to_owned() + "\n").collect()
}

#[test]
fn processes_are_below_their_groups_in_the_order_asked_for() {
    let mut model = at(1);
    assert_eq!(named(&model), "blue 4711 4712 run-900 5000 none 6000");
    press(&mut model, &[TopKey::Char('m')]);
    assert_eq!(named(&model), "run-900 5000 blue 4711 4712 none 6000", "the highest first");
    assert_eq!((model.sort.0.name(), model.sort.1), ("miss rate", false));
    press(&mut model, &[TopKey::Char('i')]);
    assert_eq!(named(&model), "blue 4711 4712 run-900 5000 none 6000", "the unknown stays last");
    press(&mut model, &[TopKey::Char('c')]);
    assert_eq!(named(&model), "run-900 5000 blue 4711 4712 none 6000", "the worst first");
    press(&mut model, &[TopKey::Char('n')]);
    assert!(named(&model).starts_with("blue 4712 4711 run-900"), "{}", named(&model));
}

#[test]
fn processes_of_two_groups_of_one_daemon_are_each_below_their_own() {
    let mut both = canned(1);
    (both.groups[1].supervisor, both.groups[1].name) = (800, Some("red".to_owned()));
    let process = both.processes.iter_mut().find(|process| process.pid == 5000).unwrap();
    (process.supervisor, process.group) = (Some(800), Some("red".to_owned()));
    let mut model = TopModel::default();
    model.update(both.clone());
    assert_eq!(named(&model), "blue 4711 4712 red 5000 none 6000");
    let process = model.process(5000).unwrap();
    assert_eq!(model.group_of(process).unwrap().label(), "red");
    model.update(both);
    assert_eq!(model.decisions().count(), 0, "nothing became different");
}

#[test]
fn rates_are_against_the_moment_before() {
    let mut model = at(0);
    assert_eq!(model.process(4711).unwrap().recolored_per_second, None);
    model.update(TopSnapshot { at: 1_000_002.0, ..canned(1) });
    assert_eq!(model.process(4711).unwrap().recolored_per_second, Some(150.0));
    assert_eq!(model.process(4712).unwrap().recolored_per_second, Some(0.0));
    // One that came back to life elsewhere has no rate yet.
    let mut other = canned(2);
    other.processes[0].supervisor = Some(900);
    model.update(other);
    assert_eq!(model.process(4711).unwrap().recolored_per_second, None);
}

#[test]
fn keys_select_and_look_into() {
    let mut model = at(1);
    assert_eq!(model.focus().unwrap().pid, 4711);
    press(&mut model, &[TopKey::Down, TopKey::Down]);
    assert_eq!(model.focus().unwrap().pid, 5000, "the head of a group stands for its first");
    press(&mut model, &[TopKey::End, TopKey::Enter]);
    assert_eq!(model.page, TopPage::Heat { pid: 6000, from: 0 });
    press(&mut model, &[TopKey::PageDown, TopKey::Up]);
    assert_eq!(model.page, TopPage::Heat { pid: 6000, from: 9 });
    press(&mut model, &[TopKey::Back, TopKey::Home]);
    assert_eq!((model.page, model.focus().unwrap().pid), (TopPage::List, 4711));
    press(&mut model, &[TopKey::Char('?')]);
    assert_eq!(model.page, TopPage::Help);
    assert_eq!(press(&mut model, &[TopKey::Char('x')]), None);
    assert_eq!(model.page, TopPage::List);
    assert_eq!(press(&mut model, &[TopKey::Quit]), Some(TopRequest::Quit));
    assert_eq!(press(&mut TopModel::default(), &[TopKey::Down, TopKey::Enter]), None);
}

#[test]
fn a_selected_process_stays_selected_when_others_come() {
    let mut model = at(1);
    press(&mut model, &[TopKey::End, TopKey::Up, TopKey::Up]);
    assert_eq!(model.focus().unwrap().pid, 5000);
    let mut more = canned(2);
    more.processes.insert(0, member(4000, "new", 800, 0));
    model.update(more);
    assert_eq!(model.focus().unwrap().pid, 5000);
}

#[test]
fn only_a_daemon_s_policies_are_frozen() {
    let mut model = at(1);
    assert_eq!(press(&mut model, &[TopKey::Char('f')]), None);
    assert!(model.message.as_ref().unwrap().starts_with("no daemon"));
    let mut with = canned(2);
    with.no_daemon = None;
    with.groups[0].frozen = Some(false);
    model.update(with.clone());
    let freeze = |frozen| Some(TopRequest::Freeze { frozen });
    assert_eq!(press(&mut model, &[TopKey::Char('f')]), freeze(true));
    with.groups[0].frozen = Some(true);
    model.update(with.clone());
    assert_eq!(
        press(&mut model, &[TopKey::End, TopKey::Char('f')]),
        freeze(false),
        "wherever one is"
    );
    with.groups[0].frozen = None;
    model.update(with);
    assert_eq!(press(&mut model, &[TopKey::Char('f')]), None, "the daemon has no group here");
    assert!(model.message.as_ref().unwrap().contains("no group"));
}

#[test]
fn where_two_caches_cannot_be_told_apart_there_is_no_miss_rate() {
    let mut model = TopModel::default();
    let mut coarse = canned(1);
    let seen = residency(0.9);
    let estimate = seen.estimate;
    coarse.processes[0].residency =
        Some(ResidencyNow::of(&seen.areas, &seen.sampled_pages, estimate, false));
    model.update(coarse);
    let shown = &model.process(4711).unwrap().residency.as_ref().unwrap();
    assert_eq!((shown.cache, shown.estimate), ("L2+L3", None));
    let text = drawn(&mut model, 120, 40);
    assert!(text.contains("4711 xz in the L2+L3, of"), "{text}");
}

#[test]
fn a_screen_that_stands_still_takes_nothing_in() {
    let mut model = at(1);
    press(&mut model, &[TopKey::Char(' ')]);
    model.update(canned(5));
    assert!((model.now.at - 1_000_001.0).abs() < 1e-6);
    press(&mut model, &[TopKey::Char(' ')]);
    model.update(canned(5));
    assert!((model.now.at - 1_000_005.0).abs() < 1e-6);
}

#[test]
fn decisions_are_remembered_the_newest_first_and_not_for_ever() {
    let mut model = at(0);
    let text = |n: u64| format!("decision {n}");
    for second in 0..600 {
        let decision =
            TopDecision { at: second as f64, group: "blue".to_owned(), text: text(second) };
        model.update(TopSnapshot { decisions: vec![decision], ..canned(0) });
    }
    assert_eq!(model.decisions().next().unwrap().text, text(599));
    assert_eq!(model.decisions().count(), 500);
}

#[test]
fn the_list_on_a_small_terminal() {
    assert_snapshot!(drawn(&mut at(2), 80, 24));
}

#[test]
fn the_list_on_a_large_terminal() {
    assert_snapshot!(drawn(&mut at(2), 120, 40));
}

#[test]
fn the_map_of_a_process() {
    let mut model = at(2);
    press(&mut model, &[TopKey::Enter]);
    assert_snapshot!("map_80", drawn(&mut model, 80, 24));
    assert_snapshot!("map_120", drawn(&mut model, 120, 40));
}

#[test]
fn the_keys_and_the_first_moment() {
    let mut model = TopModel::default();
    assert!(drawn(&mut model, 80, 24).contains("looking ..."));
    press(&mut model, &[TopKey::Char('?')]);
    assert_snapshot!(drawn(&mut model, 80, 24));
}

#[test]
fn no_size_is_too_small() {
    for (width, height) in [(1, 1), (10, 3), (40, 5), (79, 9), (300, 100)] {
        let mut model = at(2);
        drawn(&mut model, width, height);
        press(&mut model, &[TopKey::Enter, TopKey::PageDown, TopKey::PageDown]);
        drawn(&mut model, width, height);
        model.update(TopSnapshot::default());
        drawn(&mut model, width, height);
    }
}

#[test]
fn colours_only_where_they_are_wanted() {
    let styles = |colored| {
        let mut terminal = Terminal::new(TestBackend::new(80, 24)).unwrap();
        terminal.draw(|frame| view::draw(frame, &mut at(2), Theme { colored })).unwrap();
        let reset = ratatui::style::Color::Reset;
        let cells = terminal.backend().buffer().content().to_vec();
        cells.iter().filter(|cell| (cell.fg, cell.bg) != (reset, reset)).count()
    };
    assert_eq!(styles(false), 0);
    assert!(styles(true) > 20);
}
