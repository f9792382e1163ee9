//! What `huepage run --superpages` promises: speed, memory, how soon, at which latency, at which
//! cost. Each command of `huepage-bench` has a file here; the others are what they share:
//! ways of getting large pages ([`target::Variant`]), programs, and a table of both.

pub mod agreement;
pub mod cpu;
pub mod damon;
pub mod latency;
pub mod memory;
pub mod partition;
pub mod programs;
pub mod redis;
pub mod start;
pub mod table;
pub mod target;
pub mod thp;

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};

use super::Verdict;
use crate::launch::Huepage;
use crate::sys;

/// The commands.
#[derive(Subcommand, Clone, Debug)]
pub enum Ask {
    /// Superpages: speed of programs, against the kernel's own large pages and none
    SuperpageSpeed(table::Setting),
    /// Superpages: memory of programs that use it sparsely
    SuperpageMemory(table::Setting),
    /// Superpages: how soon a program is fast
    SuperpageStart(start::Setting),
    /// Superpages: latency of redis, and the longest stall of a thread
    SuperpageLatency(latency::Setting),
    /// Superpages: CPU time of sensing and deciding, by resident memory
    SuperpageCpu(cpu::Setting),
    /// Superpages: a program in a partition that they may leave where that pays
    SuperpagePartition(partition::Setting),
}

/// How huepage is asked for superpages.
#[derive(Args, Clone, Debug)]
pub struct Wish {
    /// The policy
    #[arg(long, default_value = "approx-online")]
    pub policy: String,
    /// Memory that superpages may add
    #[arg(long, default_value = "4%")]
    pub overhead: String,
    /// Large pages of the kernel while huepage's are measured
    #[arg(long, default_value = "never", value_parser = ["never", "madvise", "always"])]
    pub beside: String,
}

/// What every suite is given.
#[derive(Clone, Copy, Debug)]
pub struct Bench<'a> {
    /// The binary under test.
    pub huepage: &'a Huepage,
    /// Further options for `huepage run` and `attach`.
    pub options: &'a [&'a str],
    /// Where files go.
    pub dir: &'a Path,
    /// The switch of the kernel's large pages.
    pub thp: &'a thp::Thp,
    /// How superpages are asked for.
    pub wish: &'a Wish,
}

impl Ask {
    fn name(&self) -> &'static str {
        match self {
            Ask::SuperpageSpeed(_) => "superpage-speed",
            Ask::SuperpageMemory(_) => "superpage-memory",
            Ask::SuperpageStart(_) => "superpage-start",
            Ask::SuperpageLatency(_) => "superpage-latency",
            Ask::SuperpageCpu(_) => "superpage-cpu",
            Ask::SuperpagePartition(_) => "superpage-partition",
        }
    }

    fn wish(&self) -> &Wish {
        match self {
            Ask::SuperpageSpeed(setting) | Ask::SuperpageMemory(setting) => &setting.wish,
            Ask::SuperpageStart(setting) => &setting.wish,
            Ask::SuperpageLatency(setting) => &setting.wish,
            Ask::SuperpageCpu(setting) => &setting.wish,
            Ask::SuperpagePartition(setting) => &setting.wish,
        }
    }
}

/// Runs one of the commands; `options` are further ones for huepage, and files go below `dir`.
pub fn run(ask: &Ask, huepage: &Huepage, options: &[&str], dir: &Path) -> Verdict {
    let mut verdict = Verdict::new(ask.name());
    if let Err(error) = std::fs::create_dir_all(dir).and_then(|()| sys::install_handlers()) {
        verdict.miss(format!("cannot be measured: {error}"));
        return verdict;
    }
    let thp = match thp::Thp::hold(Path::new(thp::ENABLED)) {
        Ok(thp) => thp,
        Err(error) => {
            verdict.skip(format!("the kernel's large pages cannot be switched ({error}); be root"));
            return verdict;
        }
    };
    let bench = Bench { huepage, options, dir, thp: &thp, wish: ask.wish() };
    match ask {
        Ask::SuperpageSpeed(setting) => table::speed(verdict, bench, setting),
        Ask::SuperpageMemory(setting) => table::memory(verdict, bench, setting),
        Ask::SuperpageStart(setting) => start::run(verdict, bench, setting),
        Ask::SuperpageLatency(setting) => latency::run(verdict, bench, setting),
        Ask::SuperpageCpu(setting) => cpu::run(verdict, bench, setting),
        Ask::SuperpagePartition(setting) => partition::run(verdict, bench, setting),
    }
}

/// The path of a command: Debian's own first, then what PATH says.
pub fn installed(tool: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places = std::iter::once(PathBuf::from("/usr/bin")).chain(std::env::split_paths(&path));
    places.map(|dir| dir.join(tool)).find(|candidate| candidate.is_file())
}

/// Those of some tools that are missing, with their packages, in words; `None` if none is.
pub fn missing(tools: &[(&str, &str)]) -> Option<String> {
    let missing = tools.iter().find(|(tool, _)| installed(tool).is_none());
    missing.map(|(tool, package)| format!("{tool} is not installed; apt-get install {package}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_tool_is_said_with_its_package() {
        assert_eq!(missing(&[("sh", "dash")]), None);
        let text = missing(&[("sh", "dash"), ("no-such-tool", "some-package")]).unwrap();
        assert!(text.contains("no-such-tool") && text.contains("some-package"));
    }
}
