//! `huepage trace info|head|stats|slice|merge|import` from outside, on small traces.

use std::io::Write as _;
use std::path::Path;
use std::process::Stdio;

use assert_cmd::Command;
use tempfile::TempDir;

const LACKEY: &str = "\
==42== Lackey, an example Valgrind tool
I  04001000,3
 L 1ffeffe7e0,8
I  04001003,5
 S 1ffeffe7d8,4
 M 0421cffe,4
";

/// A directory with `t.lackey` and, imported from it, `t.trace`.
fn traces() -> TempDir {
    let dir = TempDir::new().unwrap();
    std::fs::write(dir.path().join("t.lackey"), LACKEY).unwrap();
    let (_, err, status) = trace(&dir, &["import", "t.lackey", "-o", "t.trace", "--program", "ls"]);
    assert_eq!(status, Some(0), "{err}");
    assert!(err.starts_with("t.trace: 6 accesses in "), "{err}");
    dir
}

/// Standard output, standard error, exit status.
fn trace(dir: &TempDir, args: &[&str]) -> (String, String, Option<i32>) {
    let mut command = Command::cargo_bin("huepage").expect("the binary is built");
    let output = command.current_dir(dir).arg("trace").args(args).output().expect("it runs");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    (text(output.stdout), text(output.stderr), output.status.code())
}

fn stdout(dir: &TempDir, args: &[&str]) -> String {
    let (out, err, status) = trace(dir, args);
    assert_eq!(status, Some(0), "{args:?}: {err}");
    out
}

fn json(dir: &TempDir, args: &[&str]) -> serde_json::Value {
    serde_json::from_str(&stdout(dir, args)).expect("JSON")
}

#[test]
fn head_prints_one_line_for_each_access() {
    insta::assert_snapshot!(stdout(&traces(), &["head", "t.trace"]), @r"
          number space thread kind             address bytes instructions
               0     0      0 fetch          0x4001000     3            1
               1     0      0 load        0x1ffeffe7e0     8            0
               2     0      0 fetch          0x4001003     5            1
               3     0      0 store       0x1ffeffe7d8     4            0
               4     0      0 load           0x421cffe     4            0
               5     0      0 store          0x421cffe     4            0
    ");
}

#[test]
fn stats_count_kinds_pages_and_lines() {
    insta::assert_snapshot!(stdout(&traces(), &["stats", "--top", "2", "t.trace"]), @r"
    accesses                      6
    fetches                       2
    loads                         2
    stores                        2
    instructions                  2
    bytes accessed               28
    pages of 4 KiB                4
    lines of 64 B                 4

    space  thread  accesses  fetches  loads  stores
        0       0         6        2      2       2

    most accessed pages
    space  page       accesses  lines
        0  0x4001000         2      1
        0  0x421c000         2      1
    ");
}

#[test]
fn info_names_the_program_and_the_counts() {
    let dir = traces();
    let info = json(&dir, &["info", "--json", "t.trace"]);
    assert_eq!(info["program"], "ls");
    assert_eq!(info["source"], "lackey, imported");
    assert_eq!((&info["records"], &info["instructions"]), (&6.into(), &2.into()));
    assert_eq!(info["complete"], true);
    let length = std::fs::metadata(dir.path().join("t.trace")).unwrap().len();
    assert_eq!(info["bytes"], length);
    let checked = json(&dir, &["info", "--json", "--check", "t.trace"]);
    assert_eq!(checked["records"], 6);
    assert!(stdout(&dir, &["info", "t.lackey"]).contains("format        lackey"));
}

#[test]
fn packed_traces_and_pipes_are_read() {
    let dir = traces();
    let gz = std::fs::File::create(dir.path().join("t.gz")).unwrap();
    let mut gz = flate2::write::GzEncoder::new(gz, flate2::Compression::fast());
    gz.write_all(LACKEY.as_bytes()).unwrap();
    gz.finish().unwrap();
    let xz = std::fs::File::create(dir.path().join("t.xz")).unwrap();
    let mut xz = liblzma::write::XzEncoder::new(xz, 1);
    xz.write_all(LACKEY.as_bytes()).unwrap();
    xz.finish().unwrap();
    let expected = stdout(&dir, &["head", "t.trace"]);
    for file in ["t.gz", "t.xz", "t.lackey"] {
        assert_eq!(stdout(&dir, &["head", file]), expected, "{file}");
    }
    let mut command = Command::cargo_bin("huepage").unwrap();
    let output = command.args(["trace", "head", "-"]).write_stdin(LACKEY).output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), expected);
}

#[test]
fn a_slice_is_the_part_that_was_asked_for() {
    let dir = traces();
    let all: Vec<String> =
        stdout(&dir, &["head", "--json", "t.trace"]).lines().map(plain).collect();
    let cases: [(&str, &[&str], std::ops::Range<usize>); 4] = [
        ("t.trace", &["--from", "2", "--count", "3"], 2..5),
        ("t.lackey", &["--from", "2", "--count", "3"], 2..5),
        ("t.trace", &["--skip-instructions", "2"], 3..6),
        ("t.lackey", &["--skip-instructions", "2"], 3..6),
    ];
    for (file, part, range) in cases {
        stdout(&dir, &[&["slice", file, "-o", "part.trace", "--force"], part].concat());
        let found = stdout(&dir, &["head", "--json", "part.trace"]);
        let found: Vec<String> = found.lines().map(plain).collect();
        assert_eq!(found, all[range], "{file} {part:?}");
    }
}

/// A line of `head --json` without its number.
fn plain(line: &str) -> String {
    line.split_once(',').expect("several fields").1.to_owned()
}

#[test]
fn merged_traces_alternate_by_instructions_in_spaces_of_their_own() {
    let dir = traces();
    stdout(&dir, &["merge", "t.trace", "t.lackey", "-o", "both.trace"]);
    let text = stdout(&dir, &["head", "--json", "-n", "100", "both.trace"]);
    let lines: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let spaces: Vec<u64> = lines.iter().map(|line| line["space"].as_u64().unwrap()).collect();
    // Fetch 1 and its load of both, then fetch 2 and what follows it of both.
    assert_eq!(spaces, [0, 0, 1, 1, 0, 0, 0, 0, 1, 1, 1, 1]);
    assert_eq!(json(&dir, &["info", "--json", "both.trace"])["program"], "ls + t.lackey");
}

#[test]
fn a_damaged_trace_is_reported_and_saved_by_slice() {
    let dir = traces();
    let whole = std::fs::read(dir.path().join("t.trace")).unwrap();
    std::fs::write(dir.path().join("cut.trace"), &whole[..whole.len() - 30]).unwrap();
    let (out, err, status) = trace(&dir, &["info", "cut.trace"]);
    assert_eq!(status, Some(112), "{err}");
    assert!(out.contains("accesses      6 (") && out.contains("complete      no"), "{out}");
    assert!(err.starts_with("huepage: cut.trace: offset "), "{err}");
    let (_, err, status) = trace(&dir, &["slice", "cut.trace", "-o", "saved.trace"]);
    assert_eq!(status, Some(112));
    assert!(err.contains("saved.trace has the 6 accesses before"), "{err}");
    assert_eq!(stdout(&dir, &["head", "saved.trace"]), stdout(&dir, &["head", "t.trace"]));
}

#[test]
fn errors_are_one_line_and_say_what_to_do() {
    let dir = traces();
    std::fs::write(dir.path().join("bad"), "I  04001000,3\n X 1,2\n").unwrap();
    std::fs::write(dir.path().join("script"), "#!/bin/sh\n").unwrap();
    let cases: [(&[&str], &str, i32); 8] = [
        (&["info", "none"], "none: No such file or directory", 112),
        (&["info", "."], "is a directory; name a trace", 112),
        (&["head", "script"], "name it: `--format`", 112),
        (&["stats", "bad"], "bad: line 2: ` X 1,2` begins with none", 112),
        (&["head", "--from", "99", "t.trace"], "record 99 was asked for, the trace has 6", 2),
        (&["slice", "t.lackey", "--from", "99", "-o", "x"], "has only 6 accesses", 2),
        (&["import", "t.lackey", "-o", "t.trace"], "t.trace: exists; name another", 2),
        (&["slice", "t.trace", "--force", "-o", "t.trace"], "is input and output", 2),
    ];
    for (args, part, wanted) in cases {
        let (_, err, status) = trace(&dir, args);
        assert_eq!(status, Some(wanted), "{args:?}: {err}");
        assert!(err.contains(part) && err.lines().count() == 1, "{args:?}: {err}");
    }
}

#[test]
fn every_command_explains_itself_with_an_example() {
    let dir = TempDir::new().unwrap();
    for command in ["info", "head", "stats", "slice", "merge", "import"] {
        let help = stdout(&dir, &[command, "--help"]);
        assert!(help.contains("Example") && help.contains(&format!("huepage trace {command}")));
    }
}

#[test]
fn a_reader_that_has_enough_is_no_error() {
    let dir = TempDir::new().unwrap();
    let text: String = (0..200_000).map(|i| format!("0 {i:x}\n")).collect();
    std::fs::write(dir.path().join("long.din"), text).unwrap();
    let mut command = std::process::Command::new(assert_cmd::cargo::cargo_bin("huepage"));
    command.args(["trace", "head", "-n", "200000", "long.din"]).current_dir(Path::new(dir.path()));
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(output.stderr.is_empty());
}

/// Five kinds of damage to each format, and what is said of each: where, and what was expected.
#[test]
fn every_kind_of_damage_names_the_file_and_the_place() {
    let dir = traces();
    let own = std::fs::read(dir.path().join("t.trace")).unwrap();
    let block = 20 + usize::from(own[12]) + 256 * usize::from(own[13]);
    let changed = |at: usize, byte: u8| {
        let mut bytes = own.clone();
        bytes[at] ^= byte;
        bytes
    };
    let instruction = |at: usize, byte: u8| {
        let mut bytes = vec![0; 192];
        bytes[64] = 4;
        bytes[64 + at] = byte;
        bytes
    };
    let own_cases = [
        (changed(8, 1), "offset 8: version 3 where 1 to 2 are known"),
        (changed(22, 1), "offset 16: the checksum of the header"),
        (changed(block, 1), "neither a block nor the index begins here"),
        (changed(block + 40, 1), "the checksum of this block is wrong"),
        (own[..block + 50].to_vec(), "the trace ends inside a block"),
    ];
    let text = |text: &str| text.as_bytes().to_vec();
    let lackey_cases = [
        (text("I  04001000,3\nI  0400100g,3\n"), "line 2: "),
        (text("I  04001000,3\n\n L 10\n"), "line 3: "),
        (text("I  04001000,3\n S 10,0\n"), "line 2: "),
        (text(" Q 10,4\n"), "line 1: "),
        (text(" L 11112222333344445,8\n"), "line 1: "),
    ];
    let din_cases = [
        (text("0 1000\n7 1000\n"), "line 2: "),
        (text("0 1000\n0 xyz\n"), "line 2: "),
        (text("0 1000\n0\n"), "line 2: "),
        (text("zero 1000\n"), "line 1: "),
        (text("2 11112222333344445\n"), "line 1: "),
    ];
    let champsim_cases = [
        (instruction(8, 2), "offset "),
        (instruction(9, 0xff), "offset "),
        (vec![1; 63], "offset "),
        (instruction(0, 4)[..130].to_vec(), "offset "),
        (instruction(8, 0x80), "offset "),
    ];
    let raw_cases = [1, 7, 9, 15, 4095].map(|length| (vec![0; length], "offset "));
    let all = [
        ("huepage", own_cases),
        ("lackey", lackey_cases),
        ("din", din_cases),
        ("champsim", champsim_cases),
        ("raw", raw_cases),
    ];
    for (format, cases) in all {
        for (bytes, part) in cases {
            std::fs::write(dir.path().join("x"), bytes).unwrap();
            let (_, err, status) = trace(&dir, &["stats", "--format", format, "x"]);
            assert_eq!((status, err.lines().count()), (Some(112), 1), "{format}: {err}");
            assert!(err.starts_with("huepage: x: ") && err.contains(part), "{format}: {err}");
            assert!(err.contains("; "), "{format}: {err} does not say what to do");
        }
    }
}
