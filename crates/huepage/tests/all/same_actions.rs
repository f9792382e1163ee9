//! One policy: events of a live run lead to the same actions whether the code of `huepage replay` tells them or the
//! simulator's engine does, which carries the actions out on its page table and answers them itself. The runs were
//! recorded without counters, by `huepage record`; `tests/data/README.md` has the commands.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use huepage_color::{Color, ColorSet, PAGE_BYTES};
use huepage_linux::services::superpages::replayed::{self, Replay};
use huepage_policy::conflict::CacheShape;
use huepage_policy::conflict::in_use::InUse;
use huepage_policy::conflict::replayed::ConflictReplay;
use huepage_policy::recording::touches::TouchStep;
use huepage_policy::recording::{Heard, RecordingReader};
use huepage_policy::registry::{Host, Settings};
use huepage_policy::{Action, Event, InputKind, Policy};
use huepage_sim::experiment::{Experiment, FrameMapping};
use huepage_sim::feedback::Sense;
use huepage_sim::frames::Choice;
use huepage_sim::machine::Machine;
use huepage_sim::record::{AccessKind, Record};
use huepage_sim::system::System;

/// What a policy heard, and what it wanted then.
type Heeded = Arc<Mutex<Vec<(Event, Vec<Action>)>>>;
type AnyPolicy = Box<dyn Policy + Send>;

/// A policy, and all that it hears and wants.
struct Log(AnyPolicy, Heeded);

impl Policy for Log {
    fn handle(&mut self, event: Event, actions: &mut Vec<Action>) {
        let before = actions.len();
        self.0.handle(event, actions);
        let wanted = actions[before..].to_vec();
        self.1.lock().expect("one thread").push((event, wanted));
    }
}

fn logged(policy: AnyPolicy) -> (AnyPolicy, Heeded) {
    let heeded = Heeded::default();
    (Box::new(Log(policy, Arc::clone(&heeded))), heeded)
}

fn take(heeded: &Heeded) -> Vec<(Event, Vec<Action>)> {
    std::mem::take(&mut *heeded.lock().expect("one thread"))
}

fn actions(heeded: &[(Event, Vec<Action>)]) -> Vec<Action> {
    heeded.iter().flat_map(|(_, actions)| actions).copied().collect()
}

/// Whether a sensor tells it: the rest are answers, which each engine gives itself.
fn is_told(event: &Event) -> bool {
    !matches!(event, Event::Quoted { .. }) && !InputKind::of(event).is_empty()
        || *event == Event::TlbFlushed
}

/// The lines of a recording.
fn recording(name: &str) -> (RecordingReader, Vec<Heard>) {
    let path: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    assert!(text.len() < 200_000, "{name} is large");
    let mut reader = RecordingReader::default();
    let heard = text.lines().map(|line| reader.line(line.as_bytes()).expect(line)).collect();
    (reader, heard)
}

/// A machine with a cache of so many colours and ways, whose TLB has pages of 2 MiB.
fn machine(colors: u16, ways: u16) -> Machine {
    let kib = u32::from(colors) * u32::from(ways) * 4;
    let text = format!(
        "name = \"recorded\"\nmemory = \"1G\"\nmemory_latency = 100\n\n[[cache]]\nlevel = 1\nsize = \"{kib}K\"\n\
         ways = {ways}\nline = 64\nlatency = 10\n\n[[tlb]]\nlevel = 1\nentries = 64\nways = 4\n\
         pages = [\"4K\", \"2M\"]\n"
    );
    Machine::parse(&text).expect("a machine")
}

fn system(machine: Machine) -> System {
    let (level, partitions, audit) = (None, Vec::new(), None);
    let mapping = FrameMapping::InOrder;
    let wish = Experiment { machine, level, mapping, partitions, audit, fragment: 0.0 };
    wish.build().expect("a system")
}

fn touch(system: &mut System, page: u64) {
    system.run(0, &[Record::plain(page * PAGE_BYTES, AccessKind::Load)]).expect("memory");
}

/// Pages in use with their colours; those of unknown colour are not there.
struct Crowd {
    shape: CacheShape,
    pages: Vec<(u64, u16)>,
}

fn crowd(reader: &RecordingReader) -> Crowd {
    let head = &reader.residency().expect("residency").head;
    let in_use = head.in_use.as_ref().expect("pages in use");
    let shape = CacheShape { colors: in_use.colors, ways: in_use.ways, lines_per_page: 64 };
    let pages = head.areas.iter().flat_map(|area| &area.pages).copied();
    let pages = pages.zip(&in_use.of).filter_map(|(page, color)| Some((page, (*color)?)));
    Crowd { shape, pages: pages.collect() }
}

/// What a policy heard and wanted while a recording of pages in use was replayed.
fn replay_conflicts(
    policy: &Settings,
    reader: &RecordingReader,
    heard: &[Heard],
) -> Vec<(Event, Vec<Action>)> {
    let head = &reader.residency().expect("residency").head;
    let mut heeded = Heeded::default();
    let made = |usual: huepage_policy::conflict::in_use::InUseSettings| {
        let (cache, keep_off) = (Some(usual.shape), Some(usual.keep_off.clone()));
        let made = policy.make(&Host { cache, keep_off, ..Host::default() }).ok()?;
        let (log, own) = logged(made);
        heeded = own;
        Some(InUse::with(usual, log))
    };
    let mut replay = ConflictReplay::new(head, made).expect("pages in use");
    for heard in heard {
        if let Heard::Look(look) = heard {
            replay.look(look);
        }
    }
    take(&heeded)
}

/// A process whose pages lie as recorded.
fn process(crowd: &Crowd) -> System {
    let mut system = system(machine(crowd.shape.colors, crowd.shape.ways));
    for &(page, color) in &crowd.pages {
        let own = ColorSet::from_colors([Color(color)], crowd.shape.colors).expect("a colour");
        system.frames_mut().choose_for(0, Choice::Partition(own));
        touch(&mut system, page);
    }
    system
}

#[test]
fn a_recorded_crowd_leads_to_the_same_moves_in_the_simulator() {
    let (reader, heard) = recording("crowd.jsonl");
    let crowd = crowd(&reader);
    let policy = Settings::parse("snapshot-in-use").expect("a policy");
    let recorded = replay_conflicts(&policy, &reader, &heard);
    let host = Host { cache: Some(crowd.shape), ..Host::default() };
    let (log, heeded) = logged(policy.make(&host).expect("made"));
    let mut system = process(&crowd);
    system.govern(0, log, Sense::default()).expect("a space");
    for (event, _) in recorded.iter().filter(|(event, _)| is_told(event)) {
        system.tell_event(0, 0, *event);
    }
    let (there, here) = (actions(&recorded), actions(&take(&heeded)));
    let moves = there.iter().filter(|action| matches!(action, Action::Recolour { .. })).count();
    assert!(moves >= 8, "{moves} moves in {} events", recorded.len());
    assert_eq!(there, here);
    assert_eq!(system.costs(0).recolorings, moves as u64, "the engine did what was wanted");
}

/// The pages of the blocks of a survey have frames in the simulator, none of which lies as a superpage would.
fn follow(system: &mut System, step: &TouchStep) {
    let TouchStep::Survey(survey) = step else { return };
    assert!(survey.gone.is_empty(), "the program keeps its memory");
    for block in &survey.blocks {
        assert!(!block.huge && block.resident == 512, "{block:?}: whole blocks of single pages");
        (0..512).for_each(|page| touch(system, block.at * 512 + page));
    }
}

#[test]
fn recorded_touches_lead_to_the_same_superpages_in_the_simulator() {
    let (reader, heard) = recording("touches.jsonl");
    let head = &reader.touches().expect("touches").head;
    for (name, least) in
        [("approx-online", 4), ("throttle", 4), ("online", 4), ("asap", 4), ("fixed:order=9", 4)]
    {
        let policy = Settings::parse(name).expect("a policy");
        let mut recorded = Heeded::default();
        let mut replay = Replay::watched(head, &policy, 0.04, |policy| {
            let (log, own) = logged(policy);
            recorded = own;
            log
        });
        let mut system = system(machine(16, 8));
        touch(&mut system, 1);
        let steps = heard
            .iter()
            .filter_map(|heard| if let Heard::Step(step) = heard { Some(step) } else { None });
        // Before it is governed: what its own engine would tell of first touches is told by the recording.
        steps.clone().for_each(|step| follow(&mut system, step));
        let (log, heeded) = logged(policy.make(&replayed::host(head)).expect("made"));
        system.govern(0, log, Sense::default()).expect("a space");
        let (mut there, mut here) = (Vec::new(), Vec::new());
        for step in steps {
            replay.step(step);
            let told = take(&recorded);
            for (event, _) in told.iter().filter(|(event, _)| is_told(event)) {
                system.tell_event(0, 0, *event);
            }
            there.extend(actions(&told));
            here.extend(actions(&take(&heeded)));
        }
        let built = |actions: &[Action]| {
            actions.iter().filter(|action| matches!(action, Action::Promote { .. })).count()
        };
        assert!(built(&there) >= least, "{name}: {} superpages", built(&there));
        assert_eq!(there, here, "{name}");
        assert_eq!(replay.outcome().promotions, built(&there) as u64, "{name}");
    }
}
