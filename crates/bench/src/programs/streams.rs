//! Programs of Debian among which one is looked for that streams beside memory that it uses again: joins
//! and products as the tools of every day do them, and compressors. What is used again has about 0.6 of a
//! cache of 2 MiB where the tool lets it, as the hash table of SRM-buffer (2011, section 4.2) has up to
//! 0.9 of the cache; what passes by is many caches long. Frozen before a policy ran on them.

use super::{BASE, BenchProgram, Input};
use crate::mix::Rng;

/// Nine of them; each takes some seconds.
pub const STREAMS: [BenchProgram; 9] = [
    BenchProgram {
        name: "numpy-take",
        tool: "python3",
        package: "python3-numpy",
        inputs: &[("take.py", Input::Text(include_str!("../../programs/streams/take.py")))],
        argv: &["{tool}", "{dir}/take.py"],
        ..BASE
    },
    BenchProgram {
        name: "scipy-spmv",
        tool: "python3",
        package: "python3-scipy",
        inputs: &[("spmv.py", Input::Text(include_str!("../../programs/streams/spmv.py")))],
        argv: &["{tool}", "{dir}/spmv.py"],
        ..BASE
    },
    BenchProgram {
        name: "sqlite3-join",
        tool: "sqlite3",
        package: "sqlite3",
        inputs: &[("join.sql", Input::Text(include_str!("../../programs/streams/join.sql")))],
        argv: &["{tool}", "-batch", "-init", "/dev/null", ":memory:"],
        stdin: Some("join.sql"),
        ..BASE
    },
    BenchProgram {
        name: "perl-join",
        tool: "perl",
        package: "perl",
        inputs: &[("join.pl", Input::Text(include_str!("../../programs/streams/join.pl")))],
        argv: &["{tool}", "{dir}/join.pl"],
        env: &[("PERL_HASH_SEED", "0")],
        ..BASE
    },
    BenchProgram {
        name: "python3-join",
        tool: "python3",
        package: "python3",
        inputs: &[("join.py", Input::Text(include_str!("../../programs/streams/join.py")))],
        argv: &["{tool}", "{dir}/join.py"],
        env: &[("PYTHONHASHSEED", "0")],
        ..BASE
    },
    BenchProgram {
        name: "gawk-join",
        tool: "gawk",
        package: "gawk",
        inputs: &[("join.awk", Input::Text(include_str!("../../programs/streams/join.awk")))],
        argv: &["{tool}", "-f", "{dir}/join.awk"],
        ..BASE
    },
    BenchProgram {
        name: "sort",
        tool: "sort",
        package: "coreutils",
        inputs: &[("words", Input::Made(words))],
        argv: &["{tool}", "--parallel=1", "-S", "1G", "{dir}/words"],
        env: &[("LC_ALL", "C")],
        ..BASE
    },
    BenchProgram {
        name: "zstd",
        tool: "zstd",
        package: "zstd",
        inputs: &[("words", Input::Made(words))],
        argv: &["{tool}", "-q", "-14", "--long=27", "-c", "--single-thread", "{dir}/words"],
        ..BASE
    },
    BenchProgram {
        name: "xz-9",
        tool: "xz",
        package: "xz-utils",
        inputs: &[("words", Input::Made(words))],
        argv: &["{tool}", "-9", "-T1", "-c", "{dir}/words"],
        ..BASE
    },
];

/// 24 MB of lines of words by chance, some far more often than others.
fn words() -> String {
    let mut rng = Rng::with_seed(7);
    let mut text = String::with_capacity(25 << 20);
    while text.len() < 24 << 20 {
        let rare = 1 + rng.usize(..5000);
        let word = rng.usize(..rare);
        text.push_str(&format!("{word:x}"));
        text.push(if rng.usize(..8) == 0 { '\n' } else { ' ' });
    }
    text.push('\n');
    text
}
