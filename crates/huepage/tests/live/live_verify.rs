//! `huepage verify` and `inspect` of a process in no partition: pages of a process are timed, and the
//! verdict is about those.

use crate::common;

use common::Target;
use serde_json::Value;

/// Times that a neighbour may keep anything from being told.
const TRIES: usize = 5;

/// What was said of a process, and the status.
fn verified(pid: &str) -> (Value, i32) {
    for _ in 0..TRIES {
        let output = common::huepage(&["verify", "--json", pid]);
        let status = output.status.code().unwrap();
        // Too noisy for a verdict.
        if status != 110 {
            assert!(matches!(status, 0 | 111 | 114), "{output:?}");
            return (serde_json::from_slice(&output.stdout).unwrap(), status);
        }
    }
    panic!("no verdict in {TRIES} tries");
}

fn pages(found: &Value) -> u64 {
    let colors = found["pages_by_color"].as_array().unwrap();
    colors.iter().map(|color| color["pages"].as_u64().unwrap()).sum()
}

#[test]
fn a_process_in_no_partition_is_shown_by_colour() {
    let Some(_turn) = common::live("verify: no partition") else { return };
    let target = Target::start("600");
    let (found, status) = verified(&target.pid());
    assert_eq!((status, &found["schema"], &found["holds"]), (111, &1.into(), &Value::Null));
    assert!(
        found["partition"].is_null() && found["resident_pages"].as_u64() >= Some(4096),
        "{found}"
    );
    assert!(
        pages(&found) > 500 && found["pages_by_color"].as_array().unwrap().len() > 1,
        "{found}"
    );
    let output = common::huepage(&["inspect", "--json", &target.pid()]);
    assert_eq!(output.status.code(), Some(111), "{output:?}");
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(found["partition"].is_null() && pages(&found) > 1000, "{found}");
    let text = common::huepage(&["inspect", &target.pid()]);
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(text.contains("in no partition") && text.contains("by colour"), "{text}");
}

#[test]
fn pages_of_a_measured_partition_are_found_in_its_colours() {
    let Some(_turn) = common::live("verify: measured") else { return };
    let target = Target::start("600");
    let pid = target.pid();
    let attach = ["attach", "-q", "--share", "25%", "--colors-from", "probe", &pid];
    let attached = common::huepage(&attach);
    assert!(attached.status.success(), "{attached:?}");
    let started = std::time::Instant::now();
    let found = loop {
        let (found, status) = verified(&pid);
        if status == 0 {
            break found;
        }
        assert!(started.elapsed() < common::HANGS, "{found}");
    };
    assert_eq!(
        (&found["holds"], &found["partition"]["colors_from"]),
        (&true.into(), &"probed".into())
    );
    assert!(
        found["share"].as_f64() >= Some(0.95) && found["share_at_random"].as_f64() <= Some(0.25)
    );
    let inspected = common::huepage(&["inspect", "--verify", "500", &pid]);
    let text = String::from_utf8(inspected.stdout).unwrap();
    assert!(text.contains("timed now:") && text.contains("(L2, measured)"), "{text}");
}

/// Of declared colours, whatever they are worth here, nothing is taken for measured.
#[test]
fn declared_colours_are_judged_by_what_competes() {
    let Some(_turn) = common::live("verify: declared") else { return };
    let target = Target::start("600");
    let pid = target.pid();
    let attach = ["attach", "-q", "--share", "25%", "--colors-from", "declared", &pid];
    let attached = common::huepage(&attach);
    assert!(attached.status.success(), "{attached:?}");
    let (found, status) = verified(&pid);
    assert_eq!(found["holds"].as_bool(), Some(status == 0), "{found}");
    assert_eq!(found["holds"].as_bool(), found["share"].as_f64().map(|share| share >= 0.95));
    let inspected = common::huepage(&["inspect", &pid]);
    let text = String::from_utf8(inspected.stdout).unwrap();
    assert!(text.contains("by frame number (not measured"), "{text}");
}

#[test]
fn a_process_that_is_gone_is_told() {
    let Some(_turn) = common::live("verify: gone") else { return };
    for command in ["verify", "inspect"] {
        let gone = common::huepage(&[command, "4194303"]);
        let said = String::from_utf8_lossy(&gone.stderr).into_owned();
        assert_eq!((gone.status.code(), said.lines().count()), (Some(102), 1), "{said}");
    }
}
