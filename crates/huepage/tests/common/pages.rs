//! Where pages of programs lie, as page tables have it, in declared colours (frame numbers modulo their number);
//! and a program that says what its memory is for and waits.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::FileExt as _;
use std::process::{Command, Stdio};

use serde_json::Value;

use super::{Killed, huepage, tools};

/// Addresses: first, and one past the last.
pub type Range = (u64, u64);

/// The frames behind the pages of a range; 0 where there is none.
pub fn frames(pid: &str, (start, end): Range) -> Vec<u64> {
    let file = File::open(format!("/proc/{pid}/pagemap")).unwrap();
    let mut bytes = vec![0; usize::try_from((end - start) / 512).unwrap()];
    file.read_exact_at(&mut bytes, start / 512).unwrap();
    let entries = bytes.chunks_exact(8).map(|entry| u64::from_ne_bytes(entry.try_into().unwrap()));
    entries.map(|entry| if entry >> 63 == 1 { entry & ((1 << 55) - 1) } else { 0 }).collect()
}

/// How many of some frames are in each of so many colours.
pub fn by_color(frames: &[u64], of: u64) -> Vec<u64> {
    let mut found = vec![0; usize::try_from(of).unwrap()];
    let there = frames.iter().filter(|&&frame| frame != 0);
    there.for_each(|frame| found[usize::try_from(frame % of).unwrap()] += 1);
    found
}

/// The colours of a list such as `0-2,5`.
pub fn colors(text: &str) -> Vec<usize> {
    let mut own = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        own.extend(first.parse::<usize>().unwrap()..=last.parse().unwrap());
    }
    own
}

/// Pages by colour: in the colours of a list such as `0-2,5`, and elsewhere.
pub fn inside(by_color: &[u64], list: &str) -> [u64; 2] {
    let own = colors(list);
    let of = |is: bool| {
        (0..by_color.len()).filter(|at| own.contains(at) == is).map(|at| by_color[at]).sum()
    };
    [of(true), of(false)]
}

/// Areas of memory of a process's own that have so many bytes or more, as ranges in hexadecimal.
pub fn large(pid: &str, least: u64) -> Vec<Range> {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let range = |line: &str| {
        let (range, rest) = line.split_once(' ')?;
        let (start, end) = range.split_once('-')?;
        let number = |text| u64::from_str_radix(text, 16).ok();
        let (start, end) = (number(start)?, number(end)?);
        let own = rest.starts_with("rw-p 00000000 00:00 0");
        (own && end - start >= least).then_some((start, end))
    };
    maps.lines().filter_map(range).collect()
}

/// Whether accessed bits can be read here.
pub fn reads_accessed_bits() -> bool {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("report.json");
    let run = ["run", "-q", "--superpages", "approx-online", "--report", path.to_str().unwrap()];
    assert!(huepage(&[&run[..], &["--", "true"]].concat()).status.success());
    let report: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    report["superpages"]["source"] == "accessed-bits"
}

/// A program that says what of its memory passes by, and waits.
pub struct Polluter {
    child: Killed,
    /// What passes by.
    pub passes: Range,
    /// What is used again and again.
    pub keeps: Range,
}

impl Polluter {
    /// Has its memory, and waits for a word.
    pub fn start() -> Polluter {
        let mut command = Command::new(tools().join("huepage-polluter"));
        command.args(["join", "--cache-kib", "512", "--seconds", "1", "--hold"]);
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut child = Killed(child);
        let mut line = String::new();
        BufReader::new(child.0.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let ready: Value = serde_json::from_str(&line).unwrap();
        let range = |of: &str| {
            let at = |i: usize| ready[of][0][i].as_u64().unwrap();
            (at(0), at(1))
        };
        Polluter { child, passes: range("passes"), keeps: range("keeps") }
    }

    /// Its pid, for a command line.
    pub fn pid(&self) -> String {
        self.child.0.id().to_string()
    }

    /// Has it use its memory for a second; it waits again after that.
    pub fn work(&mut self) {
        writeln!(self.child.0.stdin.as_mut().unwrap()).unwrap();
    }

    /// How many pages of a range are in each colour.
    pub fn by_color(&self, range: Range, of: u64) -> Vec<u64> {
        by_color(&frames(&self.pid(), range), of)
    }
}
