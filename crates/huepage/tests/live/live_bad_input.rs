//! Bad input of every kind, against a live system: the documented exit status, one line that
//! says what to do, and an untouched target. The colours are declared: none of this depends on
//! them, and measuring them takes longer than a bad command may on a busy machine.

use crate::common;

#[test]
fn bad_input_is_refused_in_one_line() {
    let Some(_turn) = common::live("bad_input_is_refused_in_one_line") else { return };
    let verdict = common::holds(&["bad-input", "--with=--colors-from=declared"]);
    assert!(verdict["rows"].as_array().unwrap().len() >= 19, "{verdict}");
}
