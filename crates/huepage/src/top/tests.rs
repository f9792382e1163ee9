//! The model driven by canned moments and keys, and what the view makes of it at two sizes.

use huepage_color::{ColorSet, Vpn};
use huepage_policy::AreaKind;
use huepage_policy::residency::{Estimate, Tally};
use insta::assert_snapshot;
use ratatui::Terminal;
use ratatui::backend::TestBackend;

use super::keys::Key;
use super::model::{Id, Model, Page, Row, Sort, Wish};
use super::snapshot::{
    Counts, Decision, GroupNow, ProcessNow, ResidencyNow, Snapshot, SuperpagesNow,
};
use super::view::{self, Theme};
use crate::report::Compliance;

/// Two groups and a process that is in none, `second` seconds after the first moment.
pub fn canned(second: u64) -> Snapshot {
    let mut blue = group(800, Some("blue"), "0-7", vec![4711, 4712]);
    let built = second * 2;
    blue.superpages = Some(SuperpagesNow {
        promoted: 4 + built,
        refused: [("no memory".to_owned(), 1 + second)].into(),
        ..SuperpagesNow::default()
    });
    let mut red = group(900, None, "8-11", vec![5000]);
    red.trouble = (second > 1).then(|| "the supervisor did not answer".to_owned());
    Snapshot {
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
    let counts = Counts {
        recolored: 1000 + 300 * second,
        audits: 3 + second,
        refused: [("pinned".to_owned(), 3 * second)].into(),
        ..Counts::default()
    };
    ProcessNow {
        pid,
        name: name.to_owned(),
        supervisor: Some(supervisor),
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
    let mut tally = Tally::default();
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
    for seat in 0..384 {
        let share = if seat < 64 { hot } else { 0.004 * (seat % 5) as f64 };
        (0..20).for_each(|look| tally.note(seat, f64::from(look) < 20.0 * share));
    }
    let estimate = Estimate { miss_rate: 1.0 - hot, margin: 0.0123, samples: tally.samples() };
    ResidencyNow::of(&tally.areas, &tally.seats, Some(estimate))
}

fn at(seconds: u64) -> Model {
    let mut model = Model::default();
    (0..=seconds).for_each(|second| model.update(canned(second)));
    model
}

fn press(model: &mut Model, keys: &[Key]) -> Option<Wish> {
    keys.iter().fold(None, |_, &key| model.press(key))
}

fn order(model: &Model) -> Vec<Id> {
    model.rows().iter().map(Row::id).collect()
}

fn drawn(model: &mut Model, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| view::draw(frame, model, Theme { colored: false })).unwrap();
    // Without the quotes with which the backend shows that lines have their full width.
    let lines = terminal.backend().to_string();
    lines.lines().map(|line| line.trim_matches('"').trim_end().to_owned() + "\n").collect()
}

#[test]
fn processes_are_below_their_groups_in_the_order_asked_for() {
    let (blue, red, none) = (Id::Group(Some(800)), Id::Group(Some(900)), Id::Group(None));
    let [a, b, c, d] = [4711, 4712, 5000, 6000].map(Id::Process);
    let mut model = at(1);
    assert_eq!(order(&model), [blue, a, b, red, c, none, d]);
    press(&mut model, &[Key::Char('m')]);
    assert_eq!(order(&model), [red, c, blue, a, b, none, d], "the highest first");
    assert_eq!(model.sort(), (Sort::Misses, false));
    press(&mut model, &[Key::Char('i')]);
    assert_eq!(order(&model), [blue, a, b, red, c, none, d], "what is not known stays last");
    press(&mut model, &[Key::Char('c')]);
    assert_eq!(order(&model), [red, c, blue, a, b, none, d], "the worst first");
    press(&mut model, &[Key::Char('n')]);
    assert_eq!(order(&model)[..4], [blue, b, a, red][..]);
}

#[test]
fn rates_are_against_the_moment_before() {
    let mut model = at(0);
    assert_eq!(model.process(4711).unwrap().recolored_per_second, None);
    model.update(Snapshot { at: 1_000_002.0, ..canned(1) });
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
    press(&mut model, &[Key::Down, Key::Down]);
    assert_eq!(model.focus().unwrap().pid, 5000, "the head of a group stands for its first");
    press(&mut model, &[Key::End, Key::Enter]);
    assert_eq!(model.page(), Page::Heat { pid: 6000, from: 0 });
    press(&mut model, &[Key::PageDown, Key::Up]);
    assert_eq!(model.page(), Page::Heat { pid: 6000, from: 9 });
    press(&mut model, &[Key::Back, Key::Home]);
    assert_eq!((model.page(), model.focus().unwrap().pid), (Page::List, 4711));
    press(&mut model, &[Key::Char('?')]);
    assert_eq!(model.page(), Page::Help);
    assert_eq!(press(&mut model, &[Key::Char('x')]), None);
    assert_eq!(model.page(), Page::List);
    assert_eq!(press(&mut model, &[Key::Quit]), Some(Wish::Quit));
    assert_eq!(press(&mut Model::default(), &[Key::Down, Key::Enter]), None);
}

#[test]
fn a_selected_process_stays_selected_when_others_come() {
    let mut model = at(1);
    press(&mut model, &[Key::End, Key::Up, Key::Up]);
    assert_eq!(model.focus().unwrap().pid, 5000);
    let mut more = canned(2);
    more.processes.insert(0, member(4000, "new", 800, 0));
    model.update(more);
    assert_eq!(model.focus().unwrap().pid, 5000);
}

#[test]
fn only_a_daemon_s_policies_are_frozen() {
    let mut model = at(1);
    assert_eq!(press(&mut model, &[Key::Char('f')]), None);
    assert!(model.message().unwrap().starts_with("no daemon"));
    let mut with = canned(2);
    with.no_daemon = None;
    with.groups[0].frozen = Some(false);
    model.update(with.clone());
    let freeze = |group: &str, frozen| Some(Wish::Freeze { group: group.to_owned(), frozen });
    assert_eq!(press(&mut model, &[Key::Char('f')]), freeze("blue", true));
    with.groups[0].frozen = Some(true);
    model.update(with);
    assert_eq!(press(&mut model, &[Key::Char('f')]), freeze("blue", false));
    assert_eq!(press(&mut model, &[Key::End, Key::Char('f')]), None, "in no group");
    assert!(model.message().is_some());
}

#[test]
fn a_screen_that_stands_still_takes_nothing_in() {
    let mut model = at(1);
    press(&mut model, &[Key::Char(' ')]);
    model.update(canned(5));
    assert!((model.now().at - 1_000_001.0).abs() < 1e-6);
    press(&mut model, &[Key::Char(' ')]);
    model.update(canned(5));
    assert!((model.now().at - 1_000_005.0).abs() < 1e-6);
}

#[test]
fn decisions_are_remembered_the_newest_first_and_not_for_ever() {
    let mut model = at(0);
    let text = |n: u64| format!("decision {n}");
    for second in 0..600 {
        let decision = Decision { at: second as f64, group: "blue".to_owned(), text: text(second) };
        model.update(Snapshot { decisions: vec![decision], ..canned(0) });
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
    press(&mut model, &[Key::Enter]);
    assert_snapshot!("map_80", drawn(&mut model, 80, 24));
    assert_snapshot!("map_120", drawn(&mut model, 120, 40));
}

#[test]
fn the_keys_and_the_first_moment() {
    let mut model = Model::default();
    assert!(drawn(&mut model, 80, 24).contains("looking ..."));
    press(&mut model, &[Key::Char('?')]);
    assert_snapshot!(drawn(&mut model, 80, 24));
}

#[test]
fn no_size_is_too_small() {
    for (width, height) in [(1, 1), (10, 3), (40, 5), (79, 9), (300, 100)] {
        let mut model = at(2);
        drawn(&mut model, width, height);
        press(&mut model, &[Key::Enter, Key::PageDown, Key::PageDown]);
        drawn(&mut model, width, height);
        model.update(Snapshot::default());
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
