//! What the tests of every crate share: how a test that cannot run here says so. It passes then, so the line
//! goes to the terminal itself, past the test harness, which shows what a test printed only when it fails.

use std::env::var_os;
use std::fmt::Display;
use std::io::{Write, stderr};

/// Says that a test, or a part of one, is left out.
///
/// # Panics
/// Where nothing may be left out: with `HUEPAGE_REQUIRE_LIVE` set, as `.ci/run` has it.
pub fn skip(test: &str, why: impl Display) {
    lacks(test, &why);
    assert!(
        var_os("HUEPAGE_REQUIRE_LIVE").is_none(),
        "{test} was skipped with HUEPAGE_REQUIRE_LIVE: {why}"
    );
}

/// The same for want of a processor or a machine that set-up cannot give: fails nowhere.
pub fn lacks(test: &str, why: impl Display) {
    // A terminal that is gone is no reason to fail.
    let _ = writeln!(stderr(), "SKIPPED {test}: {why}");
}
