//! A machine file as a guest sees it: the directories in which Linux describes caches, and the hash of the
//! last level, where it has one, as a file for `--colors-from declared=`.

use huepage_color::{CacheKind, IndexFunction};
use huepage_sim::machine::{CacheSpec, Machine};

use super::initramfs::Initramfs;

/// Where the descriptions of processors are in the guest.
pub const CACHES: &str = "/lab/caches";
/// Where the hash is.
pub const HASH: &str = "/lab/hash.toml";

/// Adds the caches of so many processors.
pub fn caches(machine: &Machine, cpus: usize, to: &mut Initramfs) {
    for cpu in 0..cpus {
        for (number, spec) in machine.cache.iter().enumerate() {
            for (name, value) in index(spec, cpu, cpus) {
                to.file(format!("{CACHES}/cpu{cpu}/index{number}/{name}"), 0o444, value + "\n");
            }
        }
    }
}

/// The last level of a machine, as options name it: the emulated processor itself tells of an L3, whatever is described.
pub fn last_level(machine: &Machine) -> &'static str {
    let last = machine.cache.iter().map(|cache| cache.level).max();
    if last == Some(2) { "l2" } else { "llc" }
}

/// The files of one cache of a processor.
fn index(spec: &CacheSpec, cpu: usize, cpus: usize) -> [(&'static str, String); 9] {
    let kind = match spec.kind {
        CacheKind::Data => "Data",
        CacheKind::Instruction => "Instruction",
        CacheKind::Unified => "Unified",
    };
    let first = cpu / spec.shared_by * spec.shared_by;
    let last = (first + spec.shared_by).min(cpus) - 1;
    let list = if first == last { first.to_string() } else { format!("{first}-{last}") };
    let map: u64 = (first..=last).map(|cpu| 1 << cpu).sum();
    [
        ("level", spec.level.to_string()),
        ("type", kind.to_owned()),
        ("size", format!("{}K", spec.size.0 >> 10)),
        ("ways_of_associativity", spec.real_ways().to_string()),
        ("number_of_sets", spec.sets().to_string()),
        ("coherency_line_size", spec.line.0.to_string()),
        ("physical_line_partition", "1".to_owned()),
        ("shared_cpu_list", list),
        ("shared_cpu_map", format!("{map:x}")),
    ]
}

/// The file that declares the hash of the last level, where it is one of parities; nothing where sets are
/// chosen by plain bits.
pub fn hash(machine: &Machine) -> Option<String> {
    let last = &machine.cache[*machine.data_path().last()?];
    let Some(IndexFunction::Xor { slice_masks, .. }) = &last.index else { return None };
    let masks: Vec<String> = slice_masks.iter().map(|mask| format!("\"{mask:#x}\"")).collect();
    let name = serde_json::to_string(&machine.name).unwrap_or_default();
    Some(format!(
        "name = {name}\nsource = \"the machine file of the lab\"\naddress_bits = [6, 43]\nslice_masks = [{}]\n",
        masks.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shared_cache_names_its_processors() {
        let text = "name = \"m\"\ncores = 4\nmemory = \"1G\"\nmemory_latency = 1\n[[cache]]\nlevel = 3\nsize = \"8M\"\nways = 16\n\
                    shared_by = 4\nlatency = 1\nindex = { kind = \"xor\", line_bits = 6, set_bits = 12, slice_masks = [0x20000000] }\n";
        let machine = Machine::parse(text).unwrap();
        let files = index(&machine.cache[0], 1, 3);
        let value = |name: &str| files.iter().find(|(n, _)| *n == name).unwrap().1.clone();
        assert_eq!((value("shared_cpu_list"), value("shared_cpu_map")), ("0-2".into(), "7".into()));
        assert_eq!((value("size"), value("number_of_sets")), ("8192K".into(), "8192".into()));
        assert!(hash(&machine).unwrap().contains("slice_masks = [\"0x20000000\"]"));
        assert_eq!(last_level(&machine), "llc");
        let plain = Machine {
            cache: vec![CacheSpec { index: None, level: 2, ..machine.cache[0].clone() }],
            ..machine
        };
        assert_eq!((hash(&plain), last_level(&plain)), (None, "l2"));
    }
}
