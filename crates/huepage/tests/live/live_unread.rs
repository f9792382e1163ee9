//! Commands that print much, into a pipe whose reader has gone away (`| head -1`): they end quietly, as if
//! somebody had read it.

use crate::common;

use std::process::Command;

use common::Target;
use common::daemon::{World, group};

/// Ends with one of these statuses, and says nothing of it.
#[track_caller]
fn is_quiet(command: &mut Command, statuses: &[i32]) {
    let output = common::unread(command);
    let said = String::from_utf8_lossy(&output.stderr);
    let status = output.status.code();
    assert!(status.is_some_and(|status| statuses.contains(&status)), "{command:?}: {output:?}");
    assert!(!said.contains("panicked") && !said.contains("pipe"), "{command:?}: {said}");
}

#[test]
fn nobody_reads_what_is_said_of_a_confined_program() {
    let Some(_turn) = common::live("nobody_reads_what_is_said") else { return };
    let (mut world, target) = (World::new(), Target::start("600"));
    let pid = target.pid();
    world.write(&group("web", &format!("pid = {pid}\nshare = 4")));
    world.start();
    world.settled(&target);
    let file = world.path("huepage.toml").display().to_string();
    let commands: [&[&str]; 12] = [
        &["inspect", &pid],
        &["inspect", &pid, "--json"],
        &["inspect", &pid, "--verify", "500"],
        &["verify", &pid],
        &["ctl", "status"],
        &["ctl", "groups"],
        &["ctl", "groups", "--json"],
        &["ctl", "metrics"],
        &["ctl", "decisions"],
        &["daemon", "--config", &file, "--dry-run"],
        &["group", "list"],
        &["info", "--no-probe"],
    ];
    // Pages may be in other colours than declared, or the machine too busy to tell.
    commands.iter().for_each(|args| is_quiet(&mut world.command(args), &[0, 110, 114]));
    assert_eq!(target.end(), Some(42));
}

#[test]
fn nobody_reads_what_is_recorded() {
    let Some(_turn) = common::live("nobody_reads_what_is_recorded") else { return };
    let (target, world) = (Target::start("600"), World::new());
    let pid = target.pid();
    for json in [&["--json"][..], &[]] {
        let args = [&["record", "--seconds", "1", &pid][..], json].concat();
        // A busy machine may have nothing to tell.
        is_quiet(&mut world.command(&args), &[0, 110]);
    }
    assert_eq!(target.end(), Some(42));
}
