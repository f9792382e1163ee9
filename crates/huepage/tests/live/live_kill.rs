//! `kill -9` of huepage at random moments: the target finishes with the right answer. A short
//! form of `huepage-bench kill`, half of it with `run`, half with `attach`.

use crate::common;

#[test]
fn a_target_outlives_huepage() {
    let Some(_turn) = common::live("a_target_outlives_huepage") else { return };
    let verdict =
        common::holds(&["kill", "--times", "10", "--seed", "7", "--with=--colors-from=declared"]);
    assert_eq!(verdict["totals"]["right"], 10);
}
