//! Points that tracers can stop at, as a tracer uses them: found by the notes in the program's file, and counted by the
//! kernel while a program is confined.

use crate::common;

use std::ffi::CString;
use std::path::Path;

use common::{HUEPAGE, huepage, live};
use object::read::elf::ElfFile64;
use object::{LittleEndian, Object as _, ObjectSection as _, ObjectSegment as _};
use perf_event::events::Dynamic;
use perf_event::{Builder, Counter};

/// Fills 32 MiB, and lives until it was looked at.
const SCRIPT: &str = "
import time
memory = bytearray(b'x' * (32 << 20))
time.sleep(3)
";

/// Where in the program's file the instructions of a point are.
fn places(name: &str) -> Vec<u64> {
    let bytes = std::fs::read(HUEPAGE).unwrap();
    let file = ElfFile64::<LittleEndian>::parse(&*bytes).unwrap();
    let notes = file.section_by_name(".note.stapsdt").unwrap().data().unwrap();
    let in_file = |address: u64| {
        let segment = file.segments().find(|segment| {
            (segment.address()..segment.address() + segment.size()).contains(&address)
        });
        let segment = segment.expect("in a segment");
        address - segment.address() + segment.file_range().0
    };
    // Before the name of the point: its address and two more, and its provider.
    let named = format!("huepage\0{name}\0");
    let found = (24..notes.len()).filter(|at| notes[*at..].starts_with(named.as_bytes()));
    let address = |at: usize| u64::from_le_bytes(notes[at - 24..at - 16].try_into().unwrap());
    found.map(|at| in_file(address(at))).collect()
}

/// Counts of a place in the program, a CPU each.
fn counters(place: u64) -> Vec<Counter> {
    let cpus = std::thread::available_parallelism().unwrap().get();
    let program = CString::new(HUEPAGE).unwrap();
    let counter = |cpu| {
        let mut uprobe = Dynamic::builder("uprobe").expect("a kernel with uprobes");
        uprobe.field("ref_ctr_offset", 0).unwrap().field("retprobe", 0).unwrap();
        let uprobe = uprobe.build().unwrap();
        let mut builder = Builder::new(uprobe);
        let attributes = builder.any_pid().one_cpu(cpu).attrs_mut();
        attributes.uprobe_path = program.as_ptr() as u64;
        attributes.probe_offset = place;
        let mut counter = builder.build().unwrap();
        counter.enable().unwrap();
        counter
    };
    (0..cpus).map(counter).collect()
}

fn total(counters: &mut [Counter]) -> u64 {
    counters.iter_mut().map(|counter| counter.read().unwrap()).sum()
}

#[test]
fn a_tracer_sees_pages_move_and_looks_at_them() {
    let test = "a_tracer_sees_pages_move_and_looks_at_them";
    let Some(_turn) = live(test) else { return };
    if !Path::new("/sys/bus/event_source/devices/uprobe").is_dir() {
        return common::skip(test, "this kernel has no uprobes");
    }
    let [mut moves, mut looks] = ["recolor", "audit"]
        .map(|name| places(name).into_iter().flat_map(counters).collect::<Vec<_>>());
    assert!(!moves.is_empty() && !looks.is_empty());
    let run = huepage(&["run", "--share", "25%", "--json", "--", "/usr/bin/python3", "-c", SCRIPT]);
    let said = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{said}");
    let seen = [total(&mut moves), total(&mut looks)];
    assert!(seen.iter().all(|count| *count > 0), "{seen:?}: {said}");
}
