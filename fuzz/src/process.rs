//! What is read of a process that may lie as far as it can: files of `/proc` below a fake root, the
//! program's ELF headers and symbols, and words that it wrote to shared memory.

use std::convert::Infallible;
use std::fs;
use std::path::Path;

use huepage_color::Vpn;
use huepage_linux::inject;
use huepage_linux::inject::agent;
use huepage_linux::kernel::pmu::calls::Function;
use huepage_linux::kernel::pmu::file::format;
use huepage_linux::kernel::procfs::{ProcRoot, parse_maps, parse_smaps_flags};
use huepage_linux::sensors::records::decode::WordDecoder;
use huepage_linux::sensors::records::ring::Chunk;

use super::value;

#[path = "../../crates/linux/agent/smaps.rs"]
mod agent_smaps;

/// The process whose files are made up.
const PID: i32 = 7;
/// Files of it that hold text.
const TEXTS: [&str; 7] =
    ["status", "stat", "statm", "comm", "cmdline", "cgroup", "task/7/children"];

/// A root with one file of the process.
fn root(name: &str, bytes: &[u8]) -> (tempfile::TempDir, ProcRoot) {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join(PID.to_string()).join(name);
    fs::create_dir_all(path.parent().expect("a directory")).expect("made");
    fs::write(path, bytes).expect("written");
    let root = ProcRoot(dir.path().to_owned());
    (dir, root)
}

/// `maps`: areas ascend, do not overlap, and have names for one line.
pub fn maps(bytes: &[u8]) {
    let Some(areas) = value(parse_maps(bytes, Path::new("maps"))) else { return };
    assert!(areas.iter().all(|area| area.start < area.end));
    assert!(areas.windows(2).all(|two| two[0].end <= two[1].start));
    assert!(areas.iter().all(|area| !area.name.contains(char::is_control)));
}

/// `smaps`, by the supervisor and by the agent.
pub fn smaps(bytes: &[u8]) {
    value(parse_smaps_flags(bytes, Path::new("smaps")));
    let mut lines = agent_smaps::Lines::EMPTY;
    let mut found = 0;
    bytes.iter().for_each(|byte| lines.take(*byte, &mut |_, _| found += 1));
    assert!(found <= bytes.len() / 4, "an area without a line");
}

/// What a process is called and what it does; the first byte says which file it is.
pub fn facts(bytes: &[u8]) {
    let Some((which, bytes)) = bytes.split_first() else { return };
    let (_dir, root) = root(TEXTS[usize::from(*which) % TEXTS.len()], bytes);
    let names = [
        value(root.status(PID)).map(|status| status.name),
        value(root.comm(PID)),
        value(root.argv0(PID)),
        value(root.cgroups(PID)).map(|all| all.concat()),
    ];
    assert!(names.iter().flatten().all(|name| !name.contains(char::is_control)), "{names:?}");
    value(root.stat(PID));
    value(root.statm(PID));
    let children = value(root.children(PID)).unwrap_or_default();
    assert!(children.iter().all(|child| *child > 0 && *child != PID));
}

/// Words of `pagemap`: the first eight bytes say from which page on, and how many.
pub fn pagemap(bytes: &[u8]) {
    let Some((place, words)) = bytes.split_first_chunk() else { return };
    let place = u64::from_le_bytes(*place);
    let (_dir, root) = root("pagemap", words);
    let map = value(root.pagemap(PID)).expect("it is there");
    let mut found = Vec::new();
    for start in [0, place % 64, place] {
        value(map.entries(Vpn(start), (place % 5000) as usize, &mut found));
        assert!(found.len() <= words.len() / 8);
        assert!(found.iter().all(|entry| entry.pfn().is_none() || entry.present()));
        value(map.entry(Vpn(start)));
    }
}

/// The header of a program, and a symbol in it.
pub fn elf(bytes: &[u8]) {
    let (_dir, root) = root("exe", bytes);
    value(root.exe_elf(PID));
    let text = format!("{}:main", root.pid_path(PID, "exe").display());
    value(Function::parse(&text));
}

fn low(word: u64) -> u32 {
    u32::try_from(word & 0xffff_ffff).unwrap_or(0)
}

/// Words that the recorder's plugin, in the program's memory, left for the recorder.
pub fn chunk(bytes: &[u8]) {
    let words: Vec<u64> =
        bytes.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
    let (mut decoder, mut records) = (WordDecoder::default(), 0);
    for part in words.chunks(100) {
        let chunk = Chunk { words: part, space: low(part[0]), thread: low(part[0] >> 32) };
        let Ok(()) = decoder.chunk(chunk, |record| {
            assert!(record.bytes > 0 && record.bytes <= 64);
            records += 1;
            Ok::<(), Infallible>(())
        });
    }
    assert!(records <= words.len());
}

/// What the supervisor reads of the memory that it shares with an agent.
pub fn shared(bytes: &[u8]) {
    agent::check_image(bytes);
}

/// Where there is room in a vDSO or behind text, whose content is the target's.
pub fn vdso(bytes: &[u8]) {
    for wanted in [1, 600, 4096] {
        for (offset, length) in [(0, 0x1000), (0x1000, 0x3000)] {
            let room = inject::room::behind_text(bytes, offset, length, wanted);
            assert!(room.is_none_or(|at| at % 64 == 0 && at + wanted as u64 <= length), "{room:?}");
        }
        let room = inject::room::find(bytes, wanted);
        assert!(room.is_none_or(|at| at % 64 == 0 && at + wanted <= bytes.len()), "{room:?}");
    }
}

/// The file of a PMU, of zeroes but for words that come as pairs of place and value.
pub fn pmu(bytes: &[u8]) {
    let mut words = vec![0; format::BYTES / 8];
    let all = words.len() as u64;
    let given: Vec<u64> =
        bytes.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
    for [place, value] in given.as_chunks().0 {
        words[usize::try_from(place % all).unwrap_or(0)] = *value;
    }
    let word = |at: usize| words[at / 8];
    value(format::check(word));
    let pid = word(format::process_at(0));
    let row = value(format::process(word, pid)).flatten();
    assert!(row.is_none_or(|row| row.pid == pid && pid != 0));
    let mut found = Vec::new();
    for from in [0, given.first().copied().unwrap_or(0)] {
        let before = found.len();
        if let Some((next, lost)) = value(format::samples(word, from, &mut found)) {
            assert_eq!(next, word(format::WRITTEN_AT));
            assert!(found.len() - before <= format::SAMPLES && lost <= next);
        }
    }
}
