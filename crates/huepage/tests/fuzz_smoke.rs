//! Every fuzz target over its seeds and over damaged copies of them, without a fuzzer: the same damage in
//! every run, and no more address space than a reader of small files has any use for, so that memory
//! taken by a number that was read ends the test. That limit is one of the process and of its children: these
//! tests have a binary of their own. `HUEPAGE_FUZZ_ROUNDS` asks for more copies.

use std::panic::catch_unwind;
use std::path::{Path, PathBuf};
use std::{env, fs};

use huepage_sim::trace::Format;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

#[path = "../../../fuzz/src/lib.rs"]
mod targets;

/// Damaged copies of each seed.
const ROUNDS: usize = 200;
/// Bytes of address space that the test may have in all.
const SPACE: u64 = 4 << 30;
/// Longest input in bytes.
const LONGEST: usize = 1 << 16;
/// What numbers look like that are forgotten when one is checked.
const EDGES: [u64; 6] = [0, 1, 1 << 31, 1 << 32, i64::MAX.cast_unsigned(), u64::MAX];

/// A small generator: the same numbers every time.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % n.max(1)
    }

    fn byte(&mut self) -> u8 {
        u8::try_from(self.below(256)).unwrap()
    }

    /// Changes, cuts, doubles or inserts at one to eight places.
    fn damage(&mut self, bytes: &mut Vec<u8>) {
        for _ in 0..=self.below(8) {
            let at = self.below(bytes.len());
            match self.below(8) {
                _ if bytes.is_empty() => bytes.push(self.byte()),
                0 => bytes.truncate(at),
                1 => bytes.insert(at, self.byte()),
                2 => bytes.extend_from_within(at..),
                3 => bytes[at] = [0, b'\n', 0x1b, 0x7f, 0xff][self.below(5)],
                4 => self.number(bytes, at),
                5 => self.digits(bytes, at),
                _ => bytes[at] = self.byte(),
            }
            bytes.truncate(LONGEST);
        }
    }

    /// A binary number at the edge of a type, of one of three widths.
    fn number(&mut self, bytes: &mut [u8], at: usize) {
        let number = EDGES[self.below(EDGES.len())].to_le_bytes();
        let width = [2, 4, 8][self.below(3)].min(bytes.len() - at);
        bytes[at..at + width].copy_from_slice(&number[..width]);
    }

    /// The same in place of the digits from here on.
    fn digits(&mut self, bytes: &mut Vec<u8>, at: usize) {
        let digits = bytes[at..].iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
        let number = EDGES[self.below(EDGES.len())];
        let text = if self.below(2) == 0 { format!("{number}") } else { format!("{number:x}") };
        bytes.splice(at..at + digits, text.bytes());
    }
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The seeds of a target, in the order of their names; those of machines are the files that are shipped.
fn seeds(name: &str) -> Vec<Vec<u8>> {
    let own = repository().join("fuzz/seeds").join(name);
    let dir = if name == "machine" { repository().join("machines") } else { own };
    let entries = fs::read_dir(&dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display()));
    let files = entries.map(|entry| entry.unwrap().path()).filter(|path| path.is_file());
    let mut files: Vec<PathBuf> = files.collect();
    files.sort();
    files.iter().map(|path| fs::read(path).unwrap()).collect()
}

/// Runs one target; the input is shown of what fails.
fn check(name: &str, bytes: &[u8]) {
    let outcome = catch_unwind(|| targets::run(name, bytes));
    assert!(outcome.is_ok(), "{name} fails with b\"{}\"", bytes.escape_ascii());
}

fn rounds() -> usize {
    env::var("HUEPAGE_FUZZ_ROUNDS").map_or(ROUNDS, |n| n.parse().expect("a number"))
}

#[test]
fn every_target_bears_its_seeds_and_damaged_ones() {
    let maximum = getrlimit(Resource::As).maximum;
    setrlimit(Resource::As, Rlimit { current: Some(SPACE), maximum }).unwrap();
    for (name, _) in targets::TARGETS {
        let (seeds, mut random) = (seeds(name), Random(name.len() as u64));
        assert!(!seeds.is_empty(), "{name} has no seeds");
        for seed in &seeds {
            check(name, seed);
        }
        for seed in (0..rounds()).flat_map(|_| &seeds) {
            let mut bytes = seed.clone();
            random.damage(&mut bytes);
            check(name, &bytes);
        }
    }
}

/// The fuzzer's list and this one.
#[test]
fn every_target_has_a_program_and_the_other_way_round() {
    let manifest = fs::read_to_string(repository().join("fuzz/Cargo.toml")).unwrap();
    let own: Vec<&str> = targets::TARGETS.iter().map(|(name, _)| *name).collect();
    let programs = fs::read_dir(repository().join("fuzz/fuzz_targets")).unwrap();
    assert_eq!(programs.count(), own.len());
    for name in own {
        let file = format!("fuzz_targets/{name}.rs");
        let text = fs::read_to_string(repository().join("fuzz").join(&file)).unwrap();
        assert!(text.contains(&format!("run(\"{name}\", bytes)")), "{file}: {text}");
        assert!(manifest.contains(&format!("name = \"{name}\"\npath = \"{file}\"")), "{name}");
    }
}

/// A format that is read has a target of its name; the project's own, and addresses without stores, have that of
/// their reader.
#[test]
fn every_format_of_traces_has_a_target() {
    for format in Format::ALL {
        let name = match format {
            Format::Huepage => "own",
            Format::RawLoads => "raw",
            other => other.name(),
        };
        assert!(targets::TARGETS.iter().any(|(known, _)| *known == name), "{format} has no target");
    }
}

#[test]
#[should_panic(expected = "no such target fails with b\"\\x1b\"")]
fn what_fails_is_told_with_its_input() {
    check("no such target", b"\x1b");
}
