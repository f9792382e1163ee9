//! Programs that attack their supervisor: it lives, what runs beside them is right, and they gain
//! nothing. A short form of `huepage-bench hostile`, and one cell of `huepage-bench anyone` for each way.

use crate::common;

#[test]
fn adversaries_gain_nothing_and_harm_nobody() {
    let Some(_turn) = common::live("adversaries_gain_nothing_and_harm_nobody") else { return };
    let verdict = common::holds(&["hostile", "--rounds", "60", "--seed", "7"]);
    assert_eq!(verdict["totals"]["ended"], 60);
    assert!(verdict["totals"]["looks at foreign threads"].as_u64() > Some(0), "{verdict}");
}

#[test]
fn a_program_of_nobody_is_confined_by_every_way() {
    let Some(_turn) = common::live("a_program_of_nobody_is_confined_by_every_way") else { return };
    let verdict = common::holds(&["anyone", "--only", "nobody"]);
    let rows = verdict["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 3, "{verdict}");
    assert!(rows.iter().all(|row| row["refused"].is_null()), "{verdict}");
}
