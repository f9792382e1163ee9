//! The programs that superpages are judged by, and one run of each. Workloads of this package
//! and python say their speed themselves and are looked at while they wait on standard input;
//! gcc's speed is that of the whole run; hpcc is ended once RandomAccess, its first part, is over.

use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use serde::de::DeserializeOwned;

use super::memory::{self, MemoryUse};
use super::run::{ProgramSample, ProgramSizes, SpeedClock};
use super::target::{LargePages, SuperpageCounts, SuperpageTarget, pause};
use super::{SuperpageBench, missing, redis};
use crate::launch::go_on;
use crate::programs::{find, large_c};
use crate::superpages::DICTS;
use crate::superpages::pace::{Speed, WorkloadReady};

/// How long a program that says nothing runs before the kernel's large pages are switched on.
const LATER: Duration = Duration::from_secs(1);
/// One page in so many of the sparse array is in use.
const EVERY: &str = "64";
/// Functions of the C file that is multiplied.
const FUNCTIONS: usize = 100;

/// The programs.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SuperpageProgram {
    /// Random updates of a table
    Gups,
    /// Random look-ups in a B-tree
    Btree,
    /// Conjugate gradients
    Cg,
    /// Random reads of small values
    Redis,
    /// HPCC's RandomAccess
    Hpcc,
    /// A large file compiled
    Gcc,
    /// Dicts built
    Python,
    /// A sparse array walked
    Sparse,
    /// Redis after nine values of ten were deleted
    RedisDeleted,
}

impl SuperpageProgram {
    /// What figures of it are of.
    pub const fn figure(self) -> &'static str {
        match self {
            SuperpageProgram::Gups => "updates",
            SuperpageProgram::Btree => "B-tree",
            SuperpageProgram::Cg => "CG",
            SuperpageProgram::Redis => "redis",
            SuperpageProgram::Hpcc => "hpcc",
            SuperpageProgram::Gcc => "gcc",
            SuperpageProgram::Python => "python",
            SuperpageProgram::Sparse => "one page in 64",
            SuperpageProgram::RedisDeleted => "redis with 90 % deleted",
        }
    }

    /// Whether its use of memory is what it is measured for.
    pub fn is_sparse(self) -> bool {
        matches!(self, SuperpageProgram::Sparse | SuperpageProgram::RedisDeleted)
    }

    /// Why it cannot be run here; `None` if it can.
    pub fn obstacle(self) -> Option<String> {
        match self {
            SuperpageProgram::Redis | SuperpageProgram::RedisDeleted => redis::obstacle(),
            SuperpageProgram::Hpcc => missing(&[("hpcc", "hpcc")]),
            SuperpageProgram::Gcc => missing(&[("gcc", "gcc")]),
            SuperpageProgram::Python => missing(&[("python3", "python3")]),
            SuperpageProgram::Gups
            | SuperpageProgram::Btree
            | SuperpageProgram::Cg
            | SuperpageProgram::Sparse => None,
        }
    }

    /// Whether it can be measured with a variant: DAMON watches one process, and gcc is many.
    pub fn goes_with(self, variant: LargePages) -> bool {
        !(self == SuperpageProgram::Gcc && variant == LargePages::Damon)
    }

    /// One run.
    ///
    /// # Errors
    /// When it, or huepage, fails.
    pub fn run(
        self,
        bench: SuperpageBench<'_>,
        variant: LargePages,
        sizes: &ProgramSizes,
    ) -> io::Result<ProgramSample> {
        let tool = |name: &str, option: &str, size: usize| {
            workload(name, option, size, sizes.seconds)
                .and_then(|c| speed(bench, variant, &c, sizes.clock))
        };
        match self {
            SuperpageProgram::Gups => tool("gups", "--mib", sizes.gups_mib),
            SuperpageProgram::Btree => tool("btree", "--entries", sizes.btree_entries),
            SuperpageProgram::Cg => tool("cg", "--rows", sizes.cg_rows),
            SuperpageProgram::Sparse => {
                let mut command = workload("sparse", "--mib", sizes.sparse_mib, sizes.seconds)?;
                command.args(["--every", EVERY]);
                speed(bench, variant, &command, sizes.clock)
            }
            SuperpageProgram::Python => speed(bench, variant, &python(bench, sizes)?, sizes.clock),
            SuperpageProgram::Gcc => gcc(bench, variant, sizes),
            SuperpageProgram::Hpcc => hpcc(bench, variant, sizes),
            SuperpageProgram::Redis => redis::run(bench, variant, sizes, false),
            SuperpageProgram::RedisDeleted => redis::run(bench, variant, sizes, true),
        }
    }
}

/// A workload of this package that waits for others.
///
/// # Errors
/// When the path of this program cannot be had.
pub fn workload(name: &str, option: &str, size: usize, seconds: f64) -> io::Result<Command> {
    let mut command = Command::new(crate::harness::tool("huepage-superpages")?);
    command.args([name, option, &size.to_string(), "--hold"]);
    command.args(["--seconds", &seconds.to_string()]);
    Ok(command)
}

/// What came of a program that says when it is ready, what it measured, and then waits.
#[derive(Debug)]
pub struct Held<T> {
    /// What it said.
    pub found: T,
    /// Its memory while it waited.
    pub memory: MemoryUse,
    /// CPU time of the process that was started: the program, or huepage above it.
    pub head_cpu: Option<f64>,
    /// What huepage reported.
    pub superpages: Option<SuperpageCounts>,
    /// The share of its pages in its partition, if it had one.
    pub compliance: Option<f64>,
}

/// Runs such a program.
///
/// # Errors
/// When it, or huepage, fails.
pub fn held<T: DeserializeOwned>(
    bench: SuperpageBench<'_>,
    variant: LargePages,
    command: &Command,
) -> io::Result<Held<T>> {
    let mut target = SuperpageTarget::start(bench, variant, command)?;
    let pid = target.talk.line::<WorkloadReady>()?.ready;
    target.ready(pid)?;
    target.talk.go()?;
    let found = target.talk.line()?;
    let (memory, head_cpu) = (MemoryUse::of(pid)?, memory::cpu_seconds(target.head()));
    let (superpages, compliance) = target.end_and_tell()?;
    Ok(Held { found, memory, head_cpu, superpages, compliance })
}

fn speed(
    bench: SuperpageBench<'_>,
    variant: LargePages,
    command: &Command,
    clock: SpeedClock,
) -> io::Result<ProgramSample> {
    let held = held::<Speed>(bench, variant, command)?;
    let speed = match clock {
        SpeedClock::Wall => held.found.steady,
        SpeedClock::Cpu => held.found.steady_cpu,
    };
    let memory = Some(held.memory);
    Ok(ProgramSample { speed, memory, superpages: held.superpages })
}

fn python(bench: SuperpageBench<'_>, sizes: &ProgramSizes) -> io::Result<Command> {
    let script = bench.dir.join("dicts.py");
    fs::write(&script, DICTS)?;
    let mut command = Command::new(found("python3")?);
    command.arg(script).args([sizes.python_entries.to_string(), sizes.seconds.to_string()]);
    Ok(command)
}

fn found(name: &str) -> io::Result<std::path::PathBuf> {
    find(name).ok_or_else(|| io::Error::other(format!("{name} is not installed")))
}

/// A C file of so many functions: the one of a hundred, again and again under other names.
fn many_functions(count: usize) -> String {
    let part = large_c();
    let parts = (0..count.div_ceil(FUNCTIONS).max(1)).map(|n| {
        let head = format!("#define v v{n}_\n");
        let names = (0..FUNCTIONS).map(|f| format!("#define f{f} f{f}_{n}\n"));
        let undo = (0..FUNCTIONS).map(|f| format!("#undef f{f}\n"));
        head + &names.collect::<String>() + &part + &undo.collect::<String>() + "#undef v\n"
    });
    parts.collect()
}

/// The compiler's speed is in runs per second, without the time that huepage needs to begin.
fn gcc(
    bench: SuperpageBench<'_>,
    variant: LargePages,
    sizes: &ProgramSizes,
) -> io::Result<ProgramSample> {
    let files = tempfile::tempdir_in(bench.dir)?;
    fs::write(files.path().join("large.c"), many_functions(sizes.gcc_functions))?;
    let mut command = Command::new(found("gcc")?);
    command.args(["-O2", "-c", "large.c", "-o", "large.o"]).current_dir(files.path());
    let started = Instant::now();
    let mut target = SuperpageTarget::start(bench, variant, &command)?;
    let mut told = false;
    while target.talk.guard.alive() {
        go_on()?;
        if !told && started.elapsed() > LATER {
            told = true;
            let head = target.head();
            target.ready(head)?;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    let wall = started.elapsed().as_secs_f64();
    let superpages = target.end()?;
    let seconds = superpages.as_ref().map_or(wall, |own| own.program_seconds);
    let speed = 1.0 / if seconds > 0.0 { seconds } else { wall };
    Ok(ProgramSample { speed, memory: None, superpages })
}

/// hpcc makes its table half as large as the matrix of HPL.
fn hpcc_input(mib: usize) -> String {
    let order = ((mib << 20) as f64 / 4.0).sqrt().ceil();
    let fixed = "80 NBs\n0 PMAP\n1 grids\n1 Ps\n1 Qs\n16.0 threshold\n1 #\n2 PFACTs\n1 #\n\
                 4 NBMINs\n1 #\n2 NDIVs\n1 #\n1 RFACTs\n1 #\n1 BCASTs\n1 #\n1 DEPTHs\n2 SWAP\n\
                 64 swapping\n0 L1\n0 U\n1 Equilibration\n8 alignment\n##\n0 #\n1200\n0 #\n40\n";
    format!("HPL\nhuepage-bench\nHPL.out\n8 device\n1 #\n{order} Ns\n1 #\n{fixed}")
}

/// The figure of RandomAccess on one process, once that part is over.
fn hpcc_speed(output: &str) -> Option<f64> {
    let (before, _) = output.split_once("End of SingleRandomAccess section")?;
    let (_, section) = before.rsplit_once("Begin of SingleRandomAccess section")?;
    let line = section.lines().find(|line| line.contains("Single GUP/s"))?;
    line.split_ascii_whitespace().last()?.parse().ok()
}

fn hpcc(
    bench: SuperpageBench<'_>,
    variant: LargePages,
    sizes: &ProgramSizes,
) -> io::Result<ProgramSample> {
    let files = tempfile::tempdir_in(bench.dir)?;
    fs::write(files.path().join("hpccinf.txt"), hpcc_input(sizes.hpcc_mib))?;
    let mut command = Command::new(found("hpcc")?);
    command.current_dir(files.path()).env("OMPI_ALLOW_RUN_AS_ROOT", "1");
    command.env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    let mut target = SuperpageTarget::start(bench, variant, &command)?;
    pause(LATER)?;
    let head = target.head();
    target.ready(head)?;
    let speed = hpcc_end(&mut target, &files.path().join("hpccoutf.txt"))?;
    Ok(ProgramSample { speed: speed * 1e9, memory: None, superpages: target.stop()? })
}

fn hpcc_end(target: &mut SuperpageTarget<'_>, output: &Path) -> io::Result<f64> {
    loop {
        go_on()?;
        let over = !target.talk.guard.alive();
        if let Some(speed) = hpcc_speed(&fs::read_to_string(output).unwrap_or_default()) {
            return Ok(speed);
        }
        if over {
            return Err(io::Error::other("hpcc ended without a figure of RandomAccess"));
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_functions_have_names_of_their_own() {
        let text = many_functions(250);
        assert_eq!(text.matches("unsigned f7(").count(), 3);
        assert!(text.contains("#define f7 f7_2\n") && text.contains("#define v v2_\n"));
    }

    #[test]
    fn hpcc_is_told_the_size_and_its_figure_found() {
        // Half of 1024 squared numbers of 8 bytes are 4 MiB.
        assert!(hpcc_input(4).contains("\n1024 Ns\n"));
        assert_eq!(hpcc_input(4).lines().nth(31), Some("##"));
        let text = "Begin of SingleRandomAccess section.\nNode(s) with error 0\n\
                    Single GUP/s 0.041500\n";
        assert_eq!(hpcc_speed(text), None);
        let text = format!("{text}End of SingleRandomAccess section.\n");
        assert_eq!(hpcc_speed(&text), Some(0.0415));
    }
}
