//! Real programs under `huepage run`, compared with native runs: the same output, files and
//! exit status, and (by the independent reader of the benchmarks) at least 99 % of the
//! movable pages in the partition. How fast they are is not tested here.

use crate::common;

use std::os::unix::fs::PermissionsExt;

fn program(name: &str, colors_from: &str) {
    let test = format!("{name} with colours {colors_from}");
    let Some(_turn) = common::live(&test) else { return };
    let with = format!("--with={colors_from}");
    let verdict = common::holds(&["programs", "--only", name, "--with=--colors-from", &with]);
    let skipped = verdict["skipped"].as_array().unwrap();
    if skipped.is_empty() {
        assert_eq!(verdict["rows"][0]["output"], "same", "{test}: {verdict}");
    } else {
        common::skip(&test, &skipped[0]);
    }
}

macro_rules! programs {
    ($($test:ident: $name:literal $from:literal;)*) => {$(
        #[test]
        fn $test() {
            program($name, $from);
        }
    )*};
}

programs! {
    gnugo: "gnugo" "declared";
    povray: "povray" "declared";
    gcc: "gcc" "declared";
    xz: "xz" "declared";
    sqlite3: "sqlite3" "declared";
    python3: "python3" "declared";
    go: "go" "declared";
    a_static_program: "static" "declared";
    java: "java" "declared";
    an_allocating_program: "alloc" "declared";
    a_static_program_in_probed_colours: "static" "probe";
    gnugo_in_probed_colours: "gnugo" "probe";
}

/// Every remembered colour is wrong, and more than half are unknown, as after a host gave other
/// memory: pages of unknown colour must not vouch for their neighbours.
#[test]
fn remembered_colours_that_no_longer_hold() {
    let Some(_turn) = common::live("remembered colours that no longer hold") else { return };
    // A store that others could read is none.
    let private = std::fs::Permissions::from_mode(0o700);
    let dir = tempfile::Builder::new().permissions(private).tempdir_in("/dev/shm").unwrap();
    // A short program may end before colours are known: it waits for them.
    let with = ["--with=--colors-from=probe", "--with=--wait"];
    let static_program = [&["programs", "--only", "static"][..], &with].concat();
    let env = [("HUEPAGE_CLASSES_DIR", dir.path())];
    common::holds_with(&static_program, &env);
    let labels = dir.path().join("frames-l2-v2");
    let mut bytes = std::fs::read(&labels).unwrap();
    // A page of header, a byte per frame, then a byte per frame and a byte per block of 512.
    let frames = (bytes.len() - 4096) * 512 / 1025;
    let known = bytes.iter_mut().skip(4096).take(frames).filter(|byte| **byte > 0);
    let spoilt = known.zip(1..).map(|(byte, n)| *byte = if n % 5 < 3 { 0 } else { *byte ^ 3 });
    assert!(spoilt.count() > 1000);
    std::fs::write(&labels, bytes).unwrap();
    common::holds_with(&static_program, &env);
}

#[test]
fn exit_statuses_and_signals_are_the_program_s() {
    let Some(_turn) = common::live("exit statuses and signals") else { return };
    let verdict = common::holds(&["programs", "--endings", "--with=--colors-from=declared"]);
    assert_eq!(
        (&verdict["figures"][0]["id"], &verdict["figures"][0]["figure"]),
        (&"P2".into(), &7.0.into()),
        "{verdict}"
    );
}

/// A wrapper that becomes the program at once is followed, however early it does: whoever waits
/// for the child must not take the stops of whoever traces it.
#[test]
fn a_wrapper_that_execs_at_once_is_followed() {
    const WRAPPED: &str = "exec perl -e 'push @l, \"x\" x 100 for 1..100000; sleep 1'";
    let Some(_turn) = common::live("a wrapper that execs at once") else { return };
    for _ in 0..5 {
        let report = tempfile::NamedTempFile::new().unwrap();
        let path = report.path().to_str().unwrap();
        let wish = ["run", "--share", "50%", "--colors-from", "declared", "--report", path];
        let output = common::huepage(&[&wish[..], &["--", "sh", "-c", WRAPPED]].concat());
        assert!(output.status.success(), "{output:?}");
        let report: serde_json::Value = serde_json::from_reader(report).unwrap();
        assert_eq!(report["missed"].as_array().map(Vec::len), Some(0), "{report}");
        assert!(report["compliance"]["movable"].as_u64() > Some(1000), "{report}");
        assert!(report["program_seconds"].as_f64() < Some(5.0), "{report}");
    }
}
