//! What `huepage run --superpages` promises: speed, memory, how soon, at which latency, at which
//! cost. Each command of `huepage-bench` has a file here; the others are what they share:
//! ways of getting large pages ([`target::LargePages`]), programs, and a table of both.

pub mod agreement;
pub mod cpu;
pub mod damon;
pub mod latency;
pub mod memory;
pub mod partition;
pub mod programs;
pub mod redis;
pub mod run;
pub mod start;
pub mod table;
pub mod target;
pub mod thp;

use std::io;
use std::path::Path;

use clap::Args;

use crate::harness::Bench;
use crate::launch::Huepage;
use crate::programs::find;
use crate::sys;
use crate::verdict::SuiteVerdict;

/// How huepage is asked for superpages.
#[derive(Args, Clone, Debug)]
pub struct SuperpageSetup {
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
pub struct SuperpageBench<'a> {
    /// The binary under test.
    pub huepage: &'a Huepage,
    /// Further options for `huepage run` and `attach`.
    pub options: &'a [&'a str],
    /// Where files go.
    pub dir: &'a Path,
    /// The switch of the kernel's large pages.
    pub thp: &'a thp::Thp,
    /// How superpages are asked for.
    pub wish: &'a SuperpageSetup,
}

/// Measures with the kernel's large pages in our hands; `bench.options` are further ones for huepage.
///
/// # Errors
/// Those of `measure`, and when interruptions cannot be noticed.
pub fn with_large_pages(
    bench: Bench<'_>,
    wish: &SuperpageSetup,
    verdict: &mut SuiteVerdict,
    measure: impl FnOnce(SuperpageBench<'_>, &mut SuiteVerdict) -> io::Result<()>,
) -> io::Result<()> {
    let dir = bench.dir.join("superpages");
    std::fs::create_dir_all(&dir)?;
    sys::install_handlers()?;
    let thp = match thp::Thp::hold(Path::new(thp::ENABLED)) {
        Ok(thp) => thp,
        Err(error) => {
            verdict.skip(format!("the kernel's large pages cannot be switched ({error}); be root"));
            return Ok(());
        }
    };
    let (huepage, options) = (bench.huepage, bench.options);
    measure(SuperpageBench { huepage, options, dir: &dir, thp: &thp, wish }, verdict)
}

/// Those of some tools that are missing, with their packages, in words; `None` if none is.
pub fn missing(tools: &[(&str, &str)]) -> Option<String> {
    let missing = tools.iter().find(|(tool, _)| find(tool).is_none());
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
