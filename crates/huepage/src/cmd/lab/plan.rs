//! What is done in the guest, and what came of it: written by the host into the guest's files, and back
//! over its second serial line.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::args::LabSettle;

/// Where the plan is in the guest.
pub const PLAN: &str = "/lab/plan.json";
/// Where huepage is in the guest.
pub const HUEPAGE: &str = "/bin/huepage";
/// Where the file of a daemon is in the guest.
pub const DAEMON: &str = "/lab/daemon.toml";
/// The line by which the guest answers.
pub const ANSWERS: &str = "/dev/ttyS1";

/// What the guest's PMU has seen, in a guest that has one: memory of a device.
pub const PMU: &str = "/sys/bus/pci/devices/0000:00:10.0/resource2";

/// What the guest is to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GuestPlan {
    /// The programs.
    pub programs: Vec<GuestProgram>,
    /// When they count as settled.
    pub settle: LabSettle,
    /// Seconds that accesses are counted.
    pub count: f64,
    /// Processors.
    pub cpus: usize,
    /// A daemon governs them, by [`DAEMON`].
    pub daemon: bool,
    /// It has a PMU, at [`PMU`].
    pub pmu: bool,
    /// It says which page table each processor uses, for TLBs.
    pub tlbs: bool,
    /// All of the first program is counted, from its start to its end, in place of a time.
    pub whole: bool,
}

/// A program on a processor.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GuestProgram {
    /// The processor.
    pub cpu: usize,
    /// The program and its arguments.
    pub words: Vec<String>,
    /// Options of `huepage run`; none: it runs without huepage.
    pub with: Option<Vec<String>>,
}

/// What came of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GuestReport {
    /// The kernel's release.
    pub kernel: String,
    /// Seconds of the guest until the programs had settled.
    pub settle_seconds: f64,
    /// Why they had not; counting began all the same.
    pub unsettled: Option<String>,
    /// Each program, by order.
    pub programs: Vec<ProgramEnd>,
}

/// What came of a program.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ProgramEnd {
    /// Its status, if it had ended before counting did, which it should not.
    pub ended_early: Option<String>,
    /// The same as a number, of a program that exited.
    pub status: Option<u8>,
    /// What it, or huepage, said on standard error; the last of it.
    pub said: String,
    /// The report of `huepage run`.
    pub report: Option<Value>,
}

/// A command line as words: split at blanks, or left to a shell where it has anything that shells know.
pub fn words(command: &str) -> Vec<String> {
    if command.contains(|c: char| "'\"\\$`|&;<>()*?[]{}~#\n".contains(c)) {
        return ["/bin/sh", "-c", command].map(str::to_owned).to_vec();
    }
    command.split_whitespace().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_commands_need_no_shell() {
        assert_eq!(words(" walk  --kib 4 "), ["walk", "--kib", "4"]);
        assert_eq!(words("a 'b c'"), ["/bin/sh", "-c", "a 'b c'"]);
    }
}
