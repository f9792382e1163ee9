//! What the tests of every crate share: programs that are copied to be started, and how a test that cannot run here
//! says so. It passes then, so the line
//! goes to the terminal itself, past the test harness, which shows what a test printed only when it fails.

use std::env::var_os;
use std::fmt::Display;
use std::io::{Write, stderr};
use std::path::Path;
use std::process::Command;

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

/// Copies a program that is then started. Another process writes the copy: what this one had open for that, a child that
/// another test forks meanwhile would have open, too, until it executes, and the copy could not be started
/// ("text file busy").
///
/// # Panics
/// When it cannot be copied.
pub fn copy_program(from: impl AsRef<Path>, to: impl AsRef<Path>) {
    let done = Command::new("cp").arg(from.as_ref()).arg(to.as_ref()).status();
    assert!(done.is_ok_and(|status| status.success()), "{} copied", from.as_ref().display());
}

#[cfg(test)]
mod tests {
    use std::env::{current_exe, var_os};
    use std::process::{Command, Output};

    /// Set for the run of this test that leaves itself out.
    const INNER: &str = "HUEPAGE_TESTING_INNER";

    fn left_out(required: bool) -> Output {
        let mut command = Command::new(current_exe().expect("this program"));
        command.args(["--exact", "tests::what_is_left_out_is_said_and_fails_where_it_must"]);
        command.env(INNER, "1").env_remove("HUEPAGE_REQUIRE_LIVE");
        command.envs(required.then_some(("HUEPAGE_REQUIRE_LIVE", "1")));
        command.output().expect("it runs")
    }

    #[test]
    fn a_copy_of_a_program_can_be_started() {
        let place = std::env::temp_dir().join(format!("huepage-testing-{}", std::process::id()));
        super::copy_program("/bin/true", &place);
        let done = Command::new(&place).status();
        std::fs::remove_file(&place).expect("it was there");
        assert!(done.expect("it starts").success());
    }

    #[test]
    fn what_is_left_out_is_said_and_fails_where_it_must() {
        if var_os(INNER).is_some() {
            return super::skip("inner", "no reason");
        }
        for required in [false, true] {
            let output = left_out(required);
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(said.contains("SKIPPED inner: no reason"), "{output:?}");
            assert_eq!(output.status.success(), !required, "{output:?}");
        }
    }
}
