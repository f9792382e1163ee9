//! The stress targets while huepage moves every page again and again: not one wrong byte, no
//! thread that hangs, and pages really were moved. A short form of `huepage-bench torture`.

mod common;

fn storm(mode: &str, recolours: &str) {
    let Some(_turn) = common::live(&format!("storm: {mode}")) else { return };
    let args = ["torture", "--mode", mode, "--recolours", recolours, "--slice", "6"];
    let verdict = common::holds(&[&args[..], &["--with=--colors-from=declared"]].concat());
    assert_eq!(verdict["totals"]["wrong"], 0);
    assert!(verdict["totals"]["checks"].as_u64() > Some(0), "{verdict}");
}

#[test]
fn writers() {
    storm("writers", "20000");
}

#[test]
fn forkers() {
    storm("forkers", "2000");
}

#[test]
fn odirect() {
    storm("odirect", "10000");
}

#[test]
fn churn() {
    storm("churn", "10000");
}

#[test]
fn threads() {
    storm("threads", "5000");
}

#[test]
fn everything_at_once() {
    storm("all", "10000");
}
