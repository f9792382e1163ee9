//! From the partition options to what the engine needs: the cache, where colours come from,
//! and the colours themselves, with every way to get them wrong told in one line.

use std::time::Duration;

use huepage_color::{
    CacheGeometry, CacheKind, CacheLevel, ColorMap, ColorSet, LevelChoice, Provenance,
};
use huepage_linux::engine::{ColorSource, Computed, Config, Probed};
use huepage_linux::machine::{KernelRelease, Machine};
use huepage_linux::probe::coarse_llc_colors;
use huepage_linux::registry::{Registry, RegistryLock, choose_share};

use crate::args::{ColorsFrom, Level, PartitionArgs};
use crate::exit::{CmdError, ExitCode};

/// Stock when nothing is said: enough that ordinary programs start without waiting.
const DEFAULT_STOCK_BYTES: u64 = 32 << 20;

/// Everything that is decided before a process is touched.
pub struct Plan {
    /// The cache that is partitioned.
    pub cache: CacheGeometry,
    /// How colours are known.
    pub provenance: Provenance,
    /// Where they come from.
    pub source: Box<dyn ColorSource>,
    /// What the engine is to do.
    pub config: Config,
    /// Where the partition gets announced.
    pub registry: Registry,
    /// Held until it is, so that two runs do not choose the same share.
    pub lock: Option<RegistryLock>,
}

/// Makes the plan, or says why there can be none.
pub fn prepare(args: &PartitionArgs) -> Result<Plan, CmdError> {
    check_privileges()?;
    check_kernel()?;
    let cache = chosen_cache(args.level)?;
    let source = open_source(args, &cache)?;
    let provenance = source.provenance();
    let registry = Registry::open().map_err(internal)?;
    let lock = registry.lock().map_err(internal)?;
    let colors = chosen_colors(args, &registry, &cache, provenance, source.universe())?;
    let config = Config {
        colors,
        stock_pages: args.stock.unwrap_or(DEFAULT_STOCK_BYTES).div_ceil(4096).max(64),
        fault_around: u64::from(args.fault_around),
        strict: args.strict,
        child_delay: Duration::from_millis(args.child_delay),
        storm: args.storm,
    };
    Ok(Plan { cache, provenance, source, config, registry, lock: Some(lock) })
}

/// An error of a library, as an unexpected failure.
pub fn internal(error: impl std::fmt::Display) -> CmdError {
    CmdError::new(ExitCode::Internal, error)
}

/// huepage moves pages of other processes: that takes root.
pub fn check_privileges() -> Result<(), CmdError> {
    if rustix::process::geteuid().is_root() {
        return Ok(());
    }
    Err(CmdError::new(ExitCode::Privilege, "this needs root; run it again with sudo"))
}

fn check_kernel() -> Result<(), CmdError> {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    if KernelRelease::parse(&release).suffices() {
        return Ok(());
    }
    let what = format!("Linux {release} cannot move pages (UFFDIO_MOVE); use Linux 6.8 or newer");
    Err(CmdError::new(ExitCode::Kernel, what))
}

fn chosen_cache(level: Level) -> Result<CacheGeometry, CmdError> {
    let machine = Machine::read().map_err(internal)?;
    let choice = match level {
        Level::L2 => LevelChoice::Level(CacheLevel::L2),
        Level::Llc => LevelChoice::Llc,
    };
    let cache = machine.cache(choice).map_err(internal)?;
    Ok(cache.geometry.clone())
}

fn open_source(
    args: &PartitionArgs,
    cache: &CacheGeometry,
) -> Result<Box<dyn ColorSource>, CmdError> {
    match args.colors_from {
        Some(ColorsFrom::Pfn) => computed(cache, Provenance::Pfn),
        Some(ColorsFrom::Declared) => computed(cache, Provenance::Declared),
        Some(ColorsFrom::Probe) => probed(cache),
        None if Probed::is_needed(&measurable(cache)?).map_err(internal)? => probed(cache),
        None => computed(cache, Provenance::Pfn),
    }
}

fn computed(cache: &CacheGeometry, how: Provenance) -> Result<Box<dyn ColorSource>, CmdError> {
    let index = cache.linear_index().map_err(internal)?;
    let map = ColorMap::computed(cache.level, &index, how).map_err(internal)?;
    Ok(Box::new(Computed(map)))
}

fn probed(cache: &CacheGeometry) -> Result<Box<dyn ColorSource>, CmdError> {
    Ok(Box::new(Probed::open(&measurable(cache)?).map_err(internal)?))
}

/// The cache whose colours can be measured for a partition of `cache`: itself when it is the
/// L2; for the last level the L2 as well, if its colours are colours of the last level too.
fn measurable(cache: &CacheGeometry) -> Result<CacheGeometry, CmdError> {
    if cache.level == CacheLevel::L2 {
        return Ok(cache.clone());
    }
    let private = chosen_cache(Level::L2)?;
    coarse_llc_colors(&private, cache).map_err(internal)?;
    Ok(private)
}

fn chosen_colors(
    args: &PartitionArgs,
    registry: &Registry,
    cache: &CacheGeometry,
    provenance: Provenance,
    universe: u16,
) -> Result<ColorSet, CmdError> {
    let wrong = |e| CmdError::new(ExitCode::Colors, e);
    match (&args.colors, &args.share) {
        (Some(text), _) if text.trim() == "all" => Ok(ColorSet::all(universe)),
        (Some(text), _) => ColorSet::parse(text, universe).map_err(wrong),
        (None, Some(share)) => {
            let wanted = ColorSet::share(share, universe).map_err(wrong)?;
            let claims = registry.claimed(cache.level, provenance).map_err(internal)?;
            Ok(choose_share(wanted.len(), universe, &claims))
        }
        (None, None) => Ok(ColorSet::all(universe)),
    }
}

/// Reads colours as the partition that `level` and `from` (a report's words) describe does.
pub fn reader(level: &str, from: &str) -> Result<Box<dyn ColorSource>, CmdError> {
    let machine = Machine::read().map_err(internal)?;
    let caches = machine.geometries();
    let cache =
        caches.iter().find(|c| c.level.to_string() == level && c.kind != CacheKind::Instruction);
    let cache = cache.ok_or_else(|| CmdError::internal(format!("no {level} cache here")))?;
    match from {
        "probed" => probed(cache),
        "declared" => computed(cache, Provenance::Declared),
        _ => computed(cache, Provenance::Pfn),
    }
}
