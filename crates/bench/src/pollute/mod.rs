//! What the benchmarks of the pollute buffer run: programs with memory that they use again and again
//! beside memory that passes by. Sizes and mixes are those of the papers' texts, as multiples of the
//! cache. Each says which of its memory passes by, so that a placement by hand can be compared. Nothing
//! here knows huepage.

pub mod art;
pub mod cg;
pub mod join;

use std::io;
use std::time::Duration;

use clap::Args;
use serde::{Deserialize, Serialize};

use crate::superpages::pace::Pace;
use crate::sys::{self, MappedMemory};

/// What every program can be told.
#[derive(Args, Clone, Copy, Debug)]
pub struct PolluterOptions {
    /// KiB of the cache that sizes are multiples of
    #[arg(long, default_value_t = 2048)]
    pub cache_kib: usize,
    /// CPU to run on [default: any]
    #[arg(long)]
    pub cpu: Option<usize>,
    /// How long, and whether to wait for others.
    #[command(flatten)]
    pub pace: Pace,
}

/// What a program says when it has its memory.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PolluterReady {
    /// Its process.
    pub ready: u32,
    /// Addresses of what passes by: first and one past the last.
    pub passes: Vec<(usize, usize)>,
    /// The same of what is used again and again.
    pub keeps: Vec<(usize, usize)>,
}

impl PolluterOptions {
    /// Bytes of a share of the cache, in whole pages.
    fn of_cache(&self, times: f64) -> usize {
        // Some gigabytes at most.
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "see above")]
        let pages = (self.cache_kib as f64 / 4.0 * times) as usize;
        pages.max(1) * sys::PAGE
    }

    /// Does `batch` for the time asked for and prints how fast that was.
    fn present(
        &self,
        passes: &[&MappedMemory],
        keeps: &[&MappedMemory],
        batch: impl FnMut() -> u64,
    ) -> io::Result<()> {
        let range =
            |area: &&MappedMemory| (area.address(), area.address() + area.pages() * sys::PAGE);
        let ready = PolluterReady {
            ready: std::process::id(),
            passes: passes.iter().map(range).collect(),
            keeps: keeps.iter().map(range).collect(),
        };
        self.pace.take_turns(&ready, || Ok(self.pace.measure(Duration::ZERO, batch)))
    }
}
