//! `huepage daemon` as a service: what it tells its manager, whom the commands of its metrics run as, and that
//! nothing is left of them. In declared colours, so that nothing depends on timing.

use crate::common;

use std::os::unix::net::UnixDatagram;
use std::time::{Duration, Instant};

use common::Target;
use common::daemon::{PATIENCE, World, group};
use huepage_linux::kernel::users;

/// The next word of the daemon to its manager that begins so; others before it are passed over, but for those
/// that must not come.
fn next(socket: &UnixDatagram, begins: &str, never: &str, world: &World) -> String {
    let began = Instant::now();
    while began.elapsed() < PATIENCE {
        let mut room = [0; 256];
        let Ok(n) = socket.recv(&mut room) else { continue };
        let said = String::from_utf8_lossy(&room[..n]).into_owned();
        if said.starts_with(begins) {
            return said;
        }
        assert!(never.is_empty() || !said.starts_with(never), "{said} before {begins}");
    }
    panic!("no {begins}: {}", world.log());
}

#[test]
fn the_manager_is_told_how_the_daemon_is() {
    let Some(_turn) = common::live("the_manager_is_told_how_the_daemon_is") else { return };
    let (mut world, one) = (World::new(), Target::start("600"));
    let place = world.path("notify");
    let socket = UnixDatagram::bind(&place).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    world.set("NOTIFY_SOCKET", place.display().to_string());
    world.set("WATCHDOG_USEC", "300000".to_owned());
    world.write(&group("one", &format!("pid = {}\nshare = 2", one.pid())));
    world.start();
    assert_eq!(next(&socket, "READY=1", "WATCHDOG", &world), "READY=1");
    for _ in 0..3 {
        next(&socket, "WATCHDOG=1", "READY", &world);
    }
    world.settled(&one);
    // Nobody has listened meanwhile: its queue is short.
    socket.set_nonblocking(true).unwrap();
    while socket.recv(&mut [0; 256]).is_ok() {}
    socket.set_nonblocking(false).unwrap();
    assert!(world.huepage(&["ctl", "reload"]).status.success());
    let reloading = next(&socket, "RELOADING=1", "READY", &world);
    assert!(reloading.contains("\nMONOTONIC_USEC="), "{reloading}");
    next(&socket, "READY=1", "STOPPING", &world);
    assert!(world.huepage(&["ctl", "stop"]).status.success());
    next(&socket, "STOPPING=1", "READY", &world);
    assert!(world.ends_well());
    assert!(world.log().contains("one: let 1 of 1 processes go"), "{}", world.log());
    assert_eq!(one.end(), Some(42));
}

/// Processes whose command line has this in it.
fn running(word: &str) -> Vec<String> {
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    let lines = all.filter_map(|of| std::fs::read(of.path().join("cmdline")).ok());
    let lines = lines.map(|line| String::from_utf8_lossy(&line).replace('\0', " "));
    lines.filter(|line| line.contains(word)).collect()
}

#[test]
fn commands_of_metrics_are_nobody_s_and_end_with_all_that_they_start() {
    let Some(_turn) = common::live("commands_of_metrics_are_nobody_s") else { return };
    let (mut world, one, two) = (World::new(), Target::start("600"), Target::start("600"));
    // As many seconds as nobody else sleeps.
    let seconds = format!("86{}", std::process::id());
    let metric = |script: &str| {
        format!(
            "metric = {{ command = [\"sh\", \"-c\", \"{script}\"], low = 1, high = 99999, better = \"lower\", every = 0.5 }}"
        )
    };
    let groups = group(
        "who",
        &format!("pid = {}\n{}", one.pid(), metric(&format!("sleep {seconds} & id -u"))),
    ) + &group(
        "late",
        &format!("pid = {}\n{}", two.pid(), metric(&format!("sleep {seconds}"))),
    );
    world.write(&groups);
    let file = world.path("huepage.toml");
    let text = std::fs::read_to_string(&file).unwrap().replace("metric_user = \"root\"\n", "");
    assert!(!text.contains("metric_user"));
    std::fs::write(&file, text).unwrap();
    world.start();
    let nobody = f64::from(users::find("nobody").unwrap().uid);
    world.until("nobody is read", |world| world.group("who")["reading"] == nobody);
    world.until("one is late", |world| {
        world.group("late")["trouble"].to_string().contains("did not end within 0.5 s")
    });
    assert!(world.huepage(&["ctl", "stop"]).status.success());
    assert!(world.ends_well());
    world.until("nothing is left", |_| running(&format!("sleep {seconds}")).is_empty());
    assert_eq!((one.end(), two.end()), (Some(42), Some(42)));
}

#[test]
fn a_user_that_is_none_is_told_with_its_place() {
    let Some(_turn) = common::live("a_user_that_is_none_is_told") else { return };
    let world = World::new();
    let file = world.path("huepage.toml");
    let text =
        "[[group]]\nname = \"a\"\ncommand = \"x\"\nshare = 1\nuser = \"no-such-user-here\"\n";
    std::fs::write(&file, text).unwrap();
    let output = world.huepage(&["daemon", "--dry-run", "--config", &file.display().to_string()]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(112), "{said}");
    assert!(said.contains("huepage.toml:5:8: there is no user `no-such-user-here`"), "{said}");
}
