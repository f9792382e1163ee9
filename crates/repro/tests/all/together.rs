//! `huepage-repro all`, but for its runs, which take minutes: what it asks for, and what it refuses.

use super::repro;

#[test]
fn places_that_cannot_be_written_are_refused_before_anything_runs() {
    for place in
        ["--html=/nonexistent/papers.html", "--markdown=/proc/pages", "--traces=/proc/traces"]
    {
        let output = repro(&["all"], &[place]).output().expect("it runs");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{place}: {said}");
        assert!(said.trim_end().lines().count() == 1 && said.contains("name a"), "{place}: {said}");
    }
}
