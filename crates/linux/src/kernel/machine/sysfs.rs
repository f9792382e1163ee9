//! What `/sys/devices/system/cpu` says: which caches each CPU sees, who shares them, and which
//! CPUs are online.
//!
//! Only reading and grouping; whether the numbers can be true is asked in `caches`. A file
//! that a kernel leaves out counts as zero, which that question then catches.

use std::collections::BTreeMap;
use std::fmt;
use std::io::ErrorKind;
use std::path::Path;

use huepage_color::{CacheGeometry, CacheKind, CacheLevel};
use serde::{Serialize, Serializer};

use super::{HostMachineError, SysRoot, read_text};

/// Below [`SysRoot`].
pub(super) const CPU_DIR: &str = "devices/system/cpu";

/// A set of CPU numbers, printed as the kernel prints it (`0-3,8`).
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CpuList(pub Vec<u32>);

impl CpuList {
    /// Reads the kernel's notation; `None` if this is none.
    pub fn parse(text: &str) -> Option<CpuList> {
        let mut cpus = Vec::new();
        for part in text.trim().split(',').filter(|part| !part.is_empty()) {
            let (low, high) = part.split_once('-').unwrap_or((part, part));
            let (low, high): (u32, u32) = (low.parse().ok()?, high.parse().ok()?);
            // The kernel has at most 8192 CPUs; a wild range must not fill the memory.
            if low > high || high > 65_535 {
                return None;
            }
            cpus.extend(low..=high);
        }
        cpus.sort_unstable();
        cpus.dedup();
        Some(CpuList(cpus))
    }

    /// How many CPUs.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for CpuList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0.as_slice();
        let mut comma = "";
        while let Some(&first) = rest.first() {
            let run = rest.iter().zip(first..).take_while(|&(&cpu, want)| cpu == want).count();
            match run {
                1 => write!(f, "{comma}{first}")?,
                _ => write!(f, "{comma}{first}-{}", rest[run - 1])?,
            }
            (rest, comma) = (&rest[run..], ",");
        }
        Ok(())
    }
}

impl Serialize for CpuList {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Level, kind, size, line, ways, sets: caches equal in these are instances of one kind.
type Shape = (u8, u8, u64, u32, u32, u32);

/// One kind of cache, with the CPUs that share each instance.
pub(super) type Told = (CacheGeometry, Vec<CpuList>);

/// Reads the caches of every CPU; empty if sysfs has none. Lowest level first, data before
/// instructions.
pub(super) fn read_caches(sys: &SysRoot) -> Result<Vec<Told>, HostMachineError> {
    let mut kinds: BTreeMap<Shape, Vec<CpuList>> = BTreeMap::new();
    for cpu in numbered(&sys.path(CPU_DIR), "cpu")? {
        let dir = sys.path(CPU_DIR).join(format!("cpu{cpu}/cache"));
        for index in numbered(&dir, "index")? {
            let base = dir.join(format!("index{index}"));
            let Some((shape, mut sharers)) = read_index(&base) else { continue };
            if sharers.is_empty() {
                sharers = CpuList(vec![cpu]);
            }
            let instances = kinds.entry(shape).or_default();
            if !instances.contains(&sharers) {
                instances.push(sharers);
            }
        }
    }
    Ok(kinds.into_iter().map(|(shape, instances)| cache_of(shape, instances)).collect())
}

fn cache_of(shape: Shape, mut instances: Vec<CpuList>) -> Told {
    let (level, kind, size_bytes, line_bytes, ways, sets) = shape;
    instances.sort();
    let sharers = instances.iter().map(CpuList::len).max().unwrap_or(0);
    let geometry = CacheGeometry {
        level: CacheLevel(level),
        kind: [CacheKind::Data, CacheKind::Unified, CacheKind::Instruction][usize::from(kind)],
        size_bytes,
        line_bytes,
        ways,
        sets,
        slices: None,
        shared_cpus: u32::try_from(sharers).unwrap_or(u32::MAX),
        last_level: false,
    };
    (geometry, instances)
}

/// One `indexN` directory; `None` if it names no level or kind.
fn read_index(base: &Path) -> Option<(Shape, CpuList)> {
    let text = |name: &str| read_text(&base.join(name));
    let number = |name: &str| text(name).and_then(|t| t.parse().ok()).unwrap_or(0);
    let level = text("level")?.parse().ok()?;
    let kind = match text("type")?.as_str() {
        "Data" => 0,
        "Unified" => 1,
        "Instruction" => 2,
        _ => return None,
    };
    let size = text("size").as_deref().and_then(parse_size).unwrap_or(0);
    let (line, ways) = (number("coherency_line_size"), number("ways_of_associativity"));
    let sharers = text("shared_cpu_list").as_deref().and_then(CpuList::parse).unwrap_or_default();
    Some(((level, kind, size, line, ways, number("number_of_sets")), sharers))
}

/// Sysfs writes sizes as `1024K`.
fn parse_size(text: &str) -> Option<u64> {
    match text.strip_suffix('K') {
        Some(kib) => kib.parse::<u64>().ok()?.checked_mul(1024),
        None => text.parse().ok(),
    }
}

/// The numbers of the entries `<prefix><number>` of a directory, in order; none if there is
/// no such directory.
fn numbered(dir: &Path, prefix: &str) -> Result<Vec<u32>, HostMachineError> {
    let failed = |source| HostMachineError::Io { path: dir.to_owned(), source };
    let entries = match std::fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(failed(e)),
    };
    let mut numbers = Vec::new();
    for entry in entries {
        let name = entry.map_err(failed)?.file_name();
        let digits = name.to_str().and_then(|name| name.strip_prefix(prefix));
        numbers.extend(digits.and_then(|digits| digits.parse::<u32>().ok()));
    }
    numbers.sort_unstable();
    Ok(numbers)
}

/// CPUs that are online; CPU 0 alone if sysfs does not say.
pub(super) fn online(sys: &SysRoot) -> CpuList {
    let text = sys.text(format!("{CPU_DIR}/online"));
    let list = text.as_deref().and_then(CpuList::parse).filter(|list| !list.is_empty());
    list.unwrap_or(CpuList(vec![0]))
}

/// The largest number of hardware threads that any core has.
pub(super) fn threads_per_core(sys: &SysRoot) -> u32 {
    let siblings = |cpu| {
        let topology = format!("{CPU_DIR}/cpu{cpu}/topology");
        let text = sys.text(format!("{topology}/core_cpus_list"));
        let text = text.or_else(|| sys.text(format!("{topology}/thread_siblings_list")));
        text.as_deref().and_then(CpuList::parse).map_or(1, |list| list.len())
    };
    let most = online(sys).0.into_iter().map(siblings).max().unwrap_or(1);
    u32::try_from(most.max(1)).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_lists_print_as_they_are_read() {
        for text in ["0", "0-1", "0-3,8", "1,3,5-7", ""] {
            assert_eq!(CpuList::parse(text).expect(text).to_string(), text);
        }
    }

    #[test]
    fn wild_cpu_lists_are_refused() {
        for text in ["a", "3-1", "0-4294967295", "-", "1-"] {
            assert_eq!(CpuList::parse(text), None, "{text}");
        }
    }

    #[test]
    fn sizes_come_in_kib() {
        assert_eq!(parse_size("36608K"), Some(36608 << 10));
        assert_eq!(parse_size("512"), Some(512));
        assert_eq!(parse_size("K"), None);
    }
}
