//! Commands that are not trusted with anything: they run as a user of their own, without the caller's
//! environment, in a process group that ends with them, and within limits.

use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{
    Pid, Resource, Rlimit, Signal, WaitId, WaitIdOptions, kill_process_group, setrlimit, waitid,
};

use super::relay::own_child;
use crate::kernel::users::Account;

/// Bytes of address space.
const MEMORY: u64 = 1 << 30;
/// Bytes of a file that is written, the output among them.
const FILE: u64 = 1 << 20;
/// Descriptors.
const DESCRIPTORS: u64 = 64;
/// Processes of the user.
const PROCESSES: u64 = 512;
/// Where programs are looked for.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// How often it is looked whether it has ended.
const STEP: Duration = Duration::from_millis(20);

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandEnd {
    /// By itself.
    Exited(ExitStatus),
    /// It was killed, as its time was over or somebody else wanted it.
    Killed,
}

/// Has a command run as a user (where this process is root's), in its own group, and within limits, of which
/// that of its CPU time is `seconds`. It is asked to end when the thread that starts it ends.
pub fn limit(command: &mut Command, account: Option<&Account>, seconds: u64) {
    let root = rustix::process::geteuid().is_root();
    if let Some(account) = account.filter(|_| root) {
        // Other groups of the caller's are left as well.
        command.uid(account.uid).gid(account.gid);
    }
    command.process_group(0).current_dir("/").env_clear().env("PATH", PATH);
    own_child(command);
    let prepare = move || {
        let limits = [
            (Resource::Core, 0),
            (Resource::Cpu, seconds.max(1)),
            (Resource::As, MEMORY),
            (Resource::Fsize, FILE),
            (Resource::Nofile, DESCRIPTORS),
            (Resource::Nproc, PROCESSES),
        ];
        for (resource, most) in limits {
            let most = Rlimit { current: Some(most), maximum: Some(most) };
            setrlimit(resource, most)?;
        }
        rustix::thread::set_no_new_privs(true)?;
        Ok(())
    };
    // SAFETY: `prepare` makes system calls on values of its own; it neither allocates nor takes locks.
    unsafe { command.pre_exec(prepare) };
}

/// Waits for the end of a command that was started within [`limit`], for at most so long and while `goes_on`;
/// whatever is left of its group is killed then.
///
/// # Errors
/// When it cannot be waited for.
pub fn wait(
    child: &mut Child,
    time: Duration,
    goes_on: impl Fn() -> bool,
) -> io::Result<CommandEnd> {
    let pid = Pid::from_child(child);
    let began = Instant::now();
    let exited = loop {
        // It stays a zombie, whose number nobody gets, until its group is killed.
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        if waitid(WaitId::Pid(pid), options)?.is_some() {
            break true;
        }
        if began.elapsed() >= time || !goes_on() {
            break false;
        }
        sleep(STEP.min(time));
    };
    // Nobody may be left.
    let _ = kill_process_group(pid, Signal::KILL);
    let status = child.wait()?;
    Ok(if exited { CommandEnd::Exited(status) } else { CommandEnd::Killed })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::process::Stdio;

    use super::*;
    use crate::kernel::procfs::ProcRoot;

    fn sh(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdin(Stdio::null());
        command
    }

    #[test]
    fn it_has_no_more_than_it_needs() {
        let mut command = sh(
            "grep -E '^(Uid|Gid|Groups|CapEff|NoNewPrivs)' /proc/self/status; ulimit -c; ulimit -n; ulimit -t; env",
        );
        let nobody = Account { name: "65534".to_owned(), uid: 65534, gid: 65534 };
        limit(&mut command, Some(&nobody), 7);
        let output = command.output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let line = |key: &str| text.lines().find(|line| line.starts_with(key)).unwrap().to_owned();
        assert!(text.contains("NoNewPrivs:\t1") && text.contains("\n0\n64\n7\n"), "{text}");
        assert!(!text.contains("CARGO"), "the environment is not handed on: {text}");
        if rustix::process::geteuid().is_root() {
            assert_eq!(line("Uid"), "Uid:\t65534\t65534\t65534\t65534");
            assert_eq!(line("Gid"), "Gid:\t65534\t65534\t65534\t65534");
            assert_eq!(
                (line("Groups").trim(), line("CapEff").ends_with("0000000000000000")),
                ("Groups:", true)
            );
        }
    }

    #[test]
    fn its_whole_group_ends_with_it_or_with_its_time() {
        for (script, ends) in
            [("sleep 600 & echo $! > F", true), ("sleep 600 & echo $! > F; wait", false)]
        {
            let file = tempfile::NamedTempFile::new().unwrap();
            let mut command = sh(&script.replace('F', &file.path().display().to_string()));
            // As this user: the file is this user's.
            limit(&mut command, None, 60);
            let mut child = command.spawn().unwrap();
            let written = || fs::read_to_string(file.path()).unwrap().ends_with('\n');
            let ended = wait(&mut child, Duration::from_secs(60), || ends || !written()).unwrap();
            assert_eq!(
                matches!(ended, CommandEnd::Exited(status) if status.success()),
                ends,
                "{script}"
            );
            let left: i32 = fs::read_to_string(file.path()).unwrap().trim().parse().unwrap();
            let gone = || ProcRoot::default().status(left).map_or(true, |status| status.is_dead());
            let began = Instant::now();
            while !gone() && began.elapsed() < Duration::from_secs(20) {
                sleep(STEP);
            }
            assert!(gone(), "{script}: {left} is left");
        }
    }
}
