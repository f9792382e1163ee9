//! A kernel of the simulator's workload library as an ordinary program that says where its arrays
//! lie, so that what a sensor says of its pages can be held against a simulation of the same accesses
//! at the same addresses. It checks nothing of its own memory.

use std::io::{self, Write as _};
use std::time::{Duration, Instant};

use clap::Args;
use huepage_sim::record::AccessKind;
use huepage_sim::workloads::{Array, FileAccess, MemoryWord, Native, ProgramMemory, WorkloadSpec};
use serde::{Deserialize, Serialize};

use crate::sys;

/// Pieces of work between two looks at the clock.
const BATCH: u64 = 1 << 16;

/// What to run.
#[derive(Args, Clone, Debug)]
pub struct Kernel {
    /// The workload, such as random:size=4M,rounds=1000
    pub workload: WorkloadSpec,
    /// How long, if it does not end before
    #[arg(long, default_value_t = 5.0)]
    pub seconds: f64,
    /// The CPU to run on
    #[arg(long)]
    pub cpu: Option<usize>,
    /// Of these seconds, those at the start that are not in what it says of its steady speed
    #[arg(long)]
    pub settle: Option<f64>,
}

/// A line of what it prints.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Said {
    /// An array was made: its address and its bytes.
    Array(u64, u64),
    /// Instructions that touch no memory from when it had settled to its end, and the CPU time that they took, in
    /// seconds.
    Steady(u64, f64),
    /// The end: instructions that touch no memory, and the seconds that they took.
    Done(u64, f64),
}

/// Says it to whoever reads standard output.
fn say(said: Said) {
    let mut out = io::stdout().lock();
    // Who does not read any more does not want to know.
    let _ = serde_json::to_writer(&mut out, &said).map(|()| out.write_all(b"\n"));
    let _ = out.flush();
}

/// Memory that is memory, with places told and time kept.
struct Told {
    begin: Instant,
    length: Duration,
    /// When it has settled, if that is asked for; and its work and CPU time then.
    settle: Option<Duration>,
    settled: Option<(u64, Duration)>,
    work: u64,
    next: u64,
}

impl Told {
    fn look(&mut self) {
        self.next = self.work + BATCH;
        let took = self.begin.elapsed();
        if self.settled.is_none() && self.settle.is_some_and(|settle| took >= settle) {
            self.settled = Some((self.work, sys::thread_cpu()));
        }
        if took >= self.length {
            self.say_steady();
            say(Said::Done(self.work, took.as_secs_f64()));
            // A kernel has no way to be stopped.
            std::process::exit(0);
        }
    }
}

impl Told {
    fn say_steady(&self) {
        if let Some((work, cpu)) = self.settled {
            let cpu = (sys::thread_cpu() - cpu).as_secs_f64();
            say(Said::Steady(self.work - work, cpu));
        }
    }
}

impl ProgramMemory for Told {
    fn reserve(&mut self, _: u64) -> u64 {
        0
    }

    #[inline(always)]
    fn touch(&mut self, _: u64, _: u8, _: AccessKind) {}

    #[inline(always)]
    fn work(&mut self, instructions: u32) {
        self.work += u64::from(instructions);
        if self.work >= self.next {
            self.look();
        }
    }

    fn note(&mut self, _: FileAccess) {}

    #[inline(always)]
    fn sweep(&mut self, _: u64, _: usize, _: AccessKind) {}

    fn array<T: MemoryWord>(&mut self, length: usize) -> Array<T> {
        let array: Array<T> = Native.array(length);
        let at = array.peek().as_ptr().addr() as u64;
        say(Said::Array(at, length as u64 * u64::from(T::BYTES)));
        array
    }
}

/// Runs it.
///
/// # Errors
/// When it cannot be bound to its CPU.
pub fn run(kernel: &Kernel) -> io::Result<()> {
    kernel.cpu.map_or(Ok(()), sys::pin)?;
    let length = Duration::try_from_secs_f64(kernel.seconds).unwrap_or_default();
    let settle = kernel.settle.and_then(|settle| Duration::try_from_secs_f64(settle).ok());
    let begin = Instant::now();
    let mut memory = Told { begin, length, settle, settled: None, work: 0, next: 0 };
    let _ = kernel.workload.run_in(&mut memory);
    memory.say_steady();
    say(Said::Done(memory.work, memory.begin.elapsed().as_secs_f64()));
    Ok(())
}
