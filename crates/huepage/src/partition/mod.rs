//! From the partition options to what the engine needs: the cache, where colours come from,
//! and the colours themselves, with every way to get them wrong told in one line.

mod args;
mod divided;
mod share;

use std::path::Path;
use std::time::{Duration, Instant};

use huepage_color::{
    CacheGeometry, CacheKind, CacheLevel, ColorMap, ColorSet, IndexFunction, LevelChoice,
    Provenance,
};
use huepage_linux::color::partition_registry::{Registry, RegistryLock, choose_share};
use huepage_linux::color::probe::{ProbeParams, coarse_llc_colors};
use huepage_linux::color::sources::{ColorSource, Computed, Deferred, Probed};
use huepage_linux::engine::{EngineConfig, GrowthMode, Shrink};
use huepage_linux::kernel::machine::{HostMachine, KernelRelease};
use huepage_recover::HashFile;
use rustix::process::{getpriority_process, setpriority_process};

use crate::exit::{CmdError, ExitCode};
pub use args::{ColorsFrom, PartitionArgs, parse_colors_from};
pub use divided::DividedColors;
pub use share::{CacheShare, Level, schemata};

/// Stock when nothing is said: enough that ordinary programs start without waiting.
const DEFAULT_STOCK_BYTES: u64 = 32 << 20;

/// A cache with its colours: what is known before a process is touched.
pub struct Prepared {
    /// The cache that is partitioned.
    pub cache: CacheGeometry,
    /// How colours are known.
    pub provenance: Provenance,
    /// Where they come from.
    pub source: Box<dyn ColorSource>,
    /// What the engine is to do.
    pub config: EngineConfig,
    /// Where the partition gets announced.
    pub registry: Registry,
    /// The index function that colours are computed with, if it came from a file.
    pub index: Option<IndexFunction>,
    /// Held until it is, so that two runs do not choose the same share.
    pub lock: Option<RegistryLock>,
}

/// Opens the cache and finds its colours, or says why that cannot be.
pub fn prepare(args: &PartitionArgs) -> Result<Prepared, CmdError> {
    prepare_from(args, open_source)
}

/// The same where colours are not needed at once: they are measured when the first process is
/// confined, if it is known already that they must be measured.
pub fn prepare_for_later(args: &PartitionArgs) -> Result<Prepared, CmdError> {
    prepare_from(args, |from, cache| match deferred(from, cache)? {
        Some(source) => Ok(source.into()),
        None => open_source(from, cache),
    })
}

/// The same where nobody waits for colours: what has to be measured, and whether anything has, is found
/// out in the background, as long as it is known how many colours there are.
pub fn prepare_at_once(args: &PartitionArgs) -> Result<Prepared, CmdError> {
    prepare_from(args, |from, cache| {
        if let Some(source) = deferred(from, cache)? {
            return Ok(source.into());
        }
        let source = if from.is_none() { undecided(cache)? } else { None };
        match source {
            Some(source) => Ok(Opened { source, index: None, decided: false }),
            None => open_source(from, cache),
        }
    })
}

fn prepare_from(
    args: &PartitionArgs,
    open: impl FnOnce(Option<&ColorsFrom>, &CacheGeometry) -> Result<Opened, CmdError>,
) -> Result<Prepared, CmdError> {
    check_privileges()?;
    check_kernel()?;
    let cache = chosen_cache(args.level())?;
    let first = First::go();
    let Opened { source, index, decided } = open(args.colors_from.as_ref(), &cache)?;
    drop(first);
    let provenance = source.provenance();
    let registry = Registry::open().map_err(internal)?;
    let lock = registry.lock().map_err(internal)?;
    let claims = || claims(&registry, cache.level, provenance, decided);
    let colors = chosen_colors(args, claims, source.universe(), &cache)?;
    let config = engine_config(args, colors);
    Ok(Prepared { cache, provenance, source, config, registry, index, lock: Some(lock) })
}

/// How the engine is to treat memory in these colours.
pub fn engine_config(args: &PartitionArgs, colors: ColorSet) -> EngineConfig {
    EngineConfig {
        colors,
        stock_pages: args.stock.unwrap_or(DEFAULT_STOCK_BYTES).div_ceil(4096).max(64),
        stock_is_fixed: args.stock.is_some() || args.strict,
        fault_around: u64::from(args.fault_around),
        strict: args.strict,
        child_delay: Duration::from_millis(args.child_delay),
        storm: args.storm,
        scope: None,
        buffer: None,
        growth: GrowthMode::default(),
        shrink: Shrink::default(),
        since: Instant::now(),
    }
}

/// How colours are known: as was asked for, or as was found out.
pub fn found(args: &PartitionArgs, provenance: Provenance) -> ColorsFrom {
    let found = || match provenance {
        Provenance::Probed => ColorsFrom::Probe,
        _ => ColorsFrom::Pfn,
    };
    args.colors_from.clone().unwrap_or_else(found)
}

/// Niceness of this thread while somebody waits for it. Measuring colours where CPUs are short takes many
/// times longer, and so does starting an agent, which takes turns with the program.
const AWAITED: i32 = -10;

/// Goes first while it lives; holds the niceness that this thread had, if that could be changed.
pub struct First(Option<i32>);

impl First {
    /// From now on; without the right to it, so be it.
    pub fn go() -> First {
        let usual = getpriority_process(None).ok();
        First(usual.filter(|_| setpriority_process(None, AWAITED).is_ok()))
    }
}

impl Drop for First {
    fn drop(&mut self) {
        self.0.map(|usual| setpriority_process(None, usual));
    }
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
    check_release(&KernelRelease::parse(&rustix::system::uname().release().to_string_lossy()))
}

/// Refuses a kernel that is too old.
pub fn check_release(release: &KernelRelease) -> Result<(), CmdError> {
    if release.suffices() {
        return Ok(());
    }
    let what = format!("Linux {release} cannot move pages (UFFDIO_MOVE); use Linux 6.8 or newer");
    Err(CmdError::new(ExitCode::Kernel, what))
}

/// The cache of a level here.
pub fn chosen_cache(level: Level) -> Result<CacheGeometry, CmdError> {
    let machine = HostMachine::read().map_err(internal)?;
    let choice = match level {
        Level::L2 => LevelChoice::Level(CacheLevel::L2),
        Level::Llc => LevelChoice::Llc,
    };
    let cache = machine.cache(choice).map_err(internal)?;
    Ok(cache.geometry.clone())
}

/// How many colours a cache has, and whether it can be partitioned here at all.
pub fn colors_of(level: Level, from: Option<&ColorsFrom>) -> Result<u16, CmdError> {
    check_privileges()?;
    check_kernel()?;
    let cache = chosen_cache(level)?;
    let later = deferred(from, &cache)?;
    Ok(later.map_or_else(|| open_source(from, &cache).map(|o| o.source), Ok)?.universe())
}

/// Colours that will be measured when they are needed; `None` if they need no measuring, or that is
/// not known yet.
fn deferred(
    from: Option<&ColorsFrom>,
    cache: &CacheGeometry,
) -> Result<Option<Box<dyn ColorSource>>, CmdError> {
    let wanted = match from {
        Some(ColorsFrom::Probe) => true,
        None => Probed::is_known_needed(),
        Some(_) => false,
    };
    if !wanted {
        return Ok(None);
    }
    let measured = measurable(cache)?;
    let colors = ProbeParams::for_cache(&measured).map_err(internal)?.colors;
    let open = move || Ok(Box::new(Probed::open(&measured)?) as Box<dyn ColorSource>);
    Ok(Some(Box::new(Deferred::new(colors, Provenance::Probed, open))))
}

/// Colours of which it is not known yet whether they must be measured; `None` where it depends on that how
/// many there are.
fn undecided(cache: &CacheGeometry) -> Result<Option<Box<dyn ColorSource>>, CmdError> {
    let measured = measurable(cache)?;
    let colors = ProbeParams::for_cache(&measured).map_err(internal)?.colors;
    let index = cache.linear_index().map_err(internal)?;
    let by_number = Computed(map_by(&index, cache, Provenance::Pfn)?);
    if by_number.universe() != colors {
        return Ok(None);
    }
    let open = move || {
        Ok(match Probed::open_if_needed(&measured)? {
            Some(probed) => Box::new(probed) as Box<dyn ColorSource>,
            None => Box::new(by_number.clone()),
        })
    };
    Ok(Some(Box::new(Deferred::new(colors, Provenance::Probed, open))))
}

/// Where colours come from.
struct Opened {
    source: Box<dyn ColorSource>,
    /// The index function that they are computed with, if a file says it.
    index: Option<IndexFunction>,
    /// Whether it is known how they are known.
    decided: bool,
}

impl From<Box<dyn ColorSource>> for Opened {
    fn from(source: Box<dyn ColorSource>) -> Opened {
        Opened { source, index: None, decided: true }
    }
}

fn open_source(from: Option<&ColorsFrom>, cache: &CacheGeometry) -> Result<Opened, CmdError> {
    let source = match from {
        Some(ColorsFrom::Pfn) => computed(cache, Provenance::Pfn),
        Some(ColorsFrom::Declared(Some(path))) => {
            let index = declared_index(path, cache)?;
            let source = computed_by(&index, cache, Provenance::Declared)?;
            return Ok(Opened { index: Some(index), ..source.into() });
        }
        Some(ColorsFrom::Declared(None)) => computed(cache, Provenance::Declared),
        Some(ColorsFrom::Probe) => probed(cache),
        None => match Probed::open_if_needed(&measurable(cache)?).map_err(internal)? {
            Some(probed) => Ok(Box::new(probed) as Box<dyn ColorSource>),
            None => computed(cache, Provenance::Pfn),
        },
    };
    Ok(source?.into())
}

fn computed(cache: &CacheGeometry, how: Provenance) -> Result<Box<dyn ColorSource>, CmdError> {
    computed_by(&cache.linear_index().map_err(internal)?, cache, how)
}

fn computed_by(
    index: &IndexFunction,
    cache: &CacheGeometry,
    how: Provenance,
) -> Result<Box<dyn ColorSource>, CmdError> {
    Ok(Box::new(Computed(map_by(index, cache, how)?)))
}

fn map_by(
    index: &IndexFunction,
    cache: &CacheGeometry,
    how: Provenance,
) -> Result<ColorMap, CmdError> {
    ColorMap::computed(cache.level, index, how).map_err(internal)
}

/// The index function of `--colors-from declared=FILE`, if it can be that of the cache.
fn declared_index(path: &Path, cache: &CacheGeometry) -> Result<IndexFunction, CmdError> {
    let bad = |e: String| CmdError::new(ExitCode::BadFile, format!("{}: {e}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|e| bad(format!("{e}; name a hash file")))?;
    let file = HashFile::parse(&text).map_err(|e| bad(e.to_string()))?;
    file.index_of(cache).map_err(|e| bad(format!("{e}, or choose another --level")))
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

/// What others hold of the same colours; where it is not decided how colours are known, of those by
/// frame number as well.
fn claims(
    registry: &Registry,
    level: CacheLevel,
    provenance: Provenance,
    decided: bool,
) -> Result<Vec<ColorSet>, CmdError> {
    let mut claims = registry.claimed(level, provenance).map_err(internal)?;
    if !decided {
        claims.extend(registry.claimed(level, Provenance::Pfn).map_err(internal)?);
    }
    Ok(claims)
}

fn chosen_colors(
    args: &PartitionArgs,
    claims: impl Fn() -> Result<Vec<ColorSet>, CmdError>,
    universe: u16,
    cache: &CacheGeometry,
) -> Result<ColorSet, CmdError> {
    let wrong = |e| CmdError::new(ExitCode::Colors, e);
    match (&args.colors, &args.share) {
        (Some(text), _) if text.trim() == "all" => Ok(ColorSet::all(universe)),
        (Some(text), _) if text.trim() == "rest" => rest(universe, &claims()?),
        (Some(text), _) => ColorSet::parse(text, universe).map_err(wrong),
        (None, Some(share)) => {
            let wrong = |what: String| CmdError::new(ExitCode::Colors, what);
            let share = CacheShare::parse(share).map_err(wrong)?;
            if share.level.is_some_and(|level| level == Level::L2 && args.level == Level::Llc) {
                return Err(wrong(
                    "--share names the L2, --level the last level; name one".to_owned(),
                ));
            }
            let wanted = share.colors(universe, cache).map_err(wrong)?;
            match share.is_placed() {
                true => Ok(wanted),
                false => Ok(choose_share(wanted.len(), universe, &claims()?)),
            }
        }
        (None, None) => Ok(ColorSet::all(universe)),
    }
}

/// What no partition holds.
fn rest(universe: u16, claims: &[ColorSet]) -> Result<ColorSet, CmdError> {
    let own = claims.iter().filter(|claim| claim.universe() == universe);
    let rest = own.fold(ColorSet::all(universe), |rest, claim| rest.difference(claim));
    let full = "every colour is held by a partition; see `huepage group list`, or name colours";
    if rest.is_empty() { Err(CmdError::new(ExitCode::Colors, full)) } else { Ok(rest) }
}

/// Colours of a level here, as a report has them, as resctrl would write them.
pub fn schemata_here(level: &str, colors: &str, of: u16) -> Option<String> {
    let machine = HostMachine::read().ok()?;
    let caches = machine.geometries();
    let cache =
        caches.iter().find(|c| c.level.to_string() == level && c.kind != CacheKind::Instruction)?;
    schemata(&ColorSet::parse(colors, of).ok()?, cache)
}

/// Reads colours as the partition that `level` and `from` (a report's words) describe does,
/// with the index function of its hash file if it has one.
pub fn reader(
    level: &str,
    from: &str,
    index: Option<&IndexFunction>,
) -> Result<Box<dyn ColorSource>, CmdError> {
    let machine = HostMachine::read().map_err(internal)?;
    let caches = machine.geometries();
    let cache =
        caches.iter().find(|c| c.level.to_string() == level && c.kind != CacheKind::Instruction);
    let cache = cache.ok_or_else(|| CmdError::internal(format!("no {level} cache here")))?;
    match from {
        "probed" => probed(cache),
        "declared" => match index {
            Some(index) => computed_by(index, cache, Provenance::Declared),
            None => computed(cache, Provenance::Declared),
        },
        _ => computed(cache, Provenance::Pfn),
    }
}
