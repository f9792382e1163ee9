//! What this process may do: user, capabilities, ptrace restrictions, its own seccomp filter,
//! kernel lockdown; and what of it is missing for `run` and `attach`.
//!
//! Everything is read from files, so that a canned `/proc` tests it. A privilege that looks
//! complete here can still be refused by a security module; the features are tried for that.

use serde::Serialize;

use super::{Roots, chosen};

/// A capability that huepage can use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Capability {
    /// Its name.
    pub name: &'static str,
    /// Whether it is in effect.
    pub effective: bool,
    /// Whether `run` and `attach` need it.
    pub required: bool,
    /// What it is good for.
    pub why: &'static str,
}

/// Name, number, required, use.
const CAPABILITIES: [(&str, u32, bool, &str); 8] = [
    ("CAP_SYS_PTRACE", 19, true, "attach to the target and serve its faults"),
    ("CAP_SYS_ADMIN", 21, true, "see frame numbers"),
    ("CAP_SYS_NICE", 23, false, "place pages of another process, pin to its CPU"),
    ("CAP_IPC_LOCK", 14, false, "lock staging pages beyond the limit"),
    ("CAP_PERFMON", 38, false, "count and sample events"),
    ("CAP_BPF", 39, false, "load the accessed-bit reader"),
    ("CAP_SYS_RESOURCE", 24, false, "raise limits on descriptors and locked memory"),
    ("CAP_KILL", 5, false, "signal targets of other users"),
];

/// The seccomp mode of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Seccomp {
    /// No filter.
    Off,
    /// Only read, write and exit.
    Strict,
    /// A filter, as in most containers.
    Filter,
    /// The kernel does not say.
    Unknown,
}

/// What this process may do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Privileges {
    /// Effective user.
    pub euid: u32,
    /// Whether user 0 here is not user 0 of the machine (a user namespace).
    pub user_namespace: bool,
    /// The capabilities of interest.
    pub capabilities: Vec<Capability>,
    /// Yama's `ptrace_scope`, 0 to 3; `None` without Yama.
    pub ptrace_scope: Option<u8>,
    /// Seccomp mode.
    pub seccomp: Seccomp,
    /// Whether new privileges are barred.
    pub no_new_privs: bool,
    /// Lockdown mode; `None` if the kernel has no lockdown.
    pub lockdown: Option<String>,
    /// What stands in the way of `run` and `attach`, each saying what to do; empty is well.
    pub missing: Vec<String>,
}

impl Privileges {
    /// Reads them for this process.
    pub fn read(roots: &Roots) -> Privileges {
        let status = roots.proc_text("self/status").unwrap_or_default();
        let effective = field(&status, "CapEff").and_then(hex).unwrap_or(0);
        let scope = roots.proc_text("sys/kernel/yama/ptrace_scope");
        let lockdown = roots.sys.text("kernel/security/lockdown");
        let mut found = Privileges {
            euid: effective_uid(&status),
            user_namespace: roots.proc_text("self/uid_map").is_some_and(|map| !is_initial(&map)),
            capabilities: CAPABILITIES.map(|entry| capability(entry, effective)).into(),
            ptrace_scope: scope.and_then(|text| text.parse().ok()),
            seccomp: seccomp(&status),
            no_new_privs: field(&status, "NoNewPrivs") == Some("1"),
            lockdown: lockdown.map(|text| chosen(&text).to_owned()),
            missing: Vec::new(),
        };
        found.missing = found.obstacles();
        found
    }

    /// Whether the effective user is 0.
    pub fn is_root(&self) -> bool {
        self.euid == 0
    }

    /// Whether nothing known stands in the way of `run` and `attach`.
    pub fn suffice(&self) -> bool {
        self.missing.is_empty()
    }

    fn obstacles(&self) -> Vec<String> {
        let mut found = Vec::new();
        let lacking = self.capabilities.iter().filter(|cap| cap.required && !cap.effective);
        let names: Vec<&str> = lacking.map(|cap| cap.name).collect();
        if !names.is_empty() {
            found.push(format!("{} not in effect: run as root", names.join(" and ")));
        } else if self.user_namespace {
            found.push("root of a user namespace only: run outside of the container".into());
        }
        if self.ptrace_scope == Some(3) {
            found.push(
                "Yama forbids ptrace until reboot: boot with kernel.yama.ptrace_scope<3".into(),
            );
        }
        found
    }
}

fn capability(entry: (&'static str, u32, bool, &'static str), effective: u64) -> Capability {
    let (name, number, required, why) = entry;
    Capability { name, effective: effective >> number & 1 == 1, required, why }
}

fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    let line = |line: &'a str| line.strip_prefix(name)?.strip_prefix(':').map(str::trim);
    status.lines().find_map(line)
}

fn hex(text: &str) -> Option<u64> {
    u64::from_str_radix(text, 16).ok()
}

/// The second of the four numbers of `Uid:`; nobody if the line is missing.
fn effective_uid(status: &str) -> u32 {
    let ids = field(status, "Uid").unwrap_or_default();
    ids.split_whitespace().nth(1).and_then(|id| id.parse().ok()).unwrap_or(u32::MAX)
}

/// The initial namespace maps every number to itself.
fn is_initial(map: &str) -> bool {
    map.split_whitespace().eq(["0", "0", "4294967295"])
}

fn seccomp(status: &str) -> Seccomp {
    match field(status, "Seccomp") {
        Some("0") => Seccomp::Off,
        Some("1") => Seccomp::Strict,
        Some("2") => Seccomp::Filter,
        _ => Seccomp::Unknown,
    }
}
