//! Whole machines from canned `/sys` trees and CPUID answers, and the live machine.

use super::*;
use huepage_color::{CacheKind, CacheLevel, PageSize};
use std::fmt::Write as _;
use std::fs;

/// A `/sys` and `/proc` of canned files.
struct Fake {
    roots: Roots,
    dir: tempfile::TempDir,
}

impl Fake {
    fn new() -> Fake {
        let dir = tempfile::tempdir().expect("temporary directory");
        let under = |name: &str| dir.path().join(name);
        let (sys, proc) = (SysRoot(under("sys")), ProcRoot(under("proc")));
        Fake { roots: Roots { sys, proc, dev: under("dev") }, dir }
    }

    fn put(&self, path: &str, text: &str) -> &Fake {
        let full = self.dir.path().join(path);
        fs::create_dir_all(full.parent().expect("a parent")).expect("directories");
        fs::write(full, format!("{text}\n")).expect("canned file");
        self
    }

    /// `index` of `cpu`: level, type, KiB, ways, sets, sharers.
    fn cache(&self, cpu: u32, index: u32, (level, kind, kib, ways, sets, shared): Spec) -> &Fake {
        let base = format!("sys/devices/system/cpu/cpu{cpu}/cache/index{index}");
        let files = [
            ("level", level.to_string()),
            ("type", kind.to_owned()),
            ("size", format!("{kib}K")),
            ("coherency_line_size", "64".to_owned()),
            ("ways_of_associativity", ways.to_string()),
            ("number_of_sets", sets.to_string()),
            ("shared_cpu_list", shared.to_owned()),
        ];
        for (name, text) in files {
            self.put(&format!("{base}/{name}"), &text);
        }
        self
    }

    fn topology(&self, cpu: u32, siblings: &str) -> &Fake {
        let path = format!("sys/devices/system/cpu/cpu{cpu}/topology/core_cpus_list");
        self.put(&path, siblings)
    }

    fn machine(&self, cpuid: &CpuidFacts) -> HostMachine {
        HostMachine::assemble(&self.roots.sys, cpuid).expect("caches")
    }
}

type Spec<'a> = (u8, &'a str, u64, u32, u32, &'a str);

fn cpuid(vendor: Vendor, family: u8, model: u8, guest: bool) -> CpuidFacts {
    let name = "canned".to_owned();
    let kvm = Hypervisor { name: "KVM", signature: "KVMKVMKVM".into() };
    CpuidFacts {
        model: CpuModel { vendor, family, model, stepping: 1, name },
        hypervisor: guest.then_some(kvm),
        caches: Vec::new(),
        asked: Some(0),
    }
}

fn leaf(level: u8, kind: CacheKind, ways: u32, sets: u32, max_sharing: u32) -> CpuidCache {
    let level = CacheLevel(level);
    CpuidCache { level, kind, line_bytes: 64, partitions: 1, ways, sets, max_sharing }
}

use CacheKind::{Data, Instruction, Unified};

/// Everything of interest about a machine, as text.
fn render(machine: &HostMachine) -> String {
    let mut out = String::new();
    let threads = machine.threads_per_core;
    let _ = writeln!(out, "online {} threads {threads}", machine.online);
    for cache in &machine.caches {
        let g = &cache.geometry;
        let (level, kind, kib, line) = (g.level, g.kind, g.size_bytes / 1024, g.line_bytes);
        let _ = write!(out, "{level} {kind:?} {kib}K {line}B {}w {}s", g.ways, g.sets);
        let shared: Vec<String> = cache.instances.iter().map(CpuList::to_string).collect();
        let last = if g.last_level { " last" } else { "" };
        let _ = writeln!(out, " [{}] {:?}{last}", shared.join(" "), cache.source);
        if let Some(claim) = &cache.slices {
            let (n, each, basis) = (claim.slices, claim.sets_per_slice, claim.basis);
            let _ = writeln!(out, "  slices {n} x {each} {basis:?} {} masks", claim.masks.len());
        }
        for count in &cache.colors {
            let (page, colors) = (count.page_bytes / 1024, count.colors);
            let _ = write!(out, "  {page}K:{colors}({:?})", count.basis);
        }
        if !cache.colors.is_empty() {
            out.push('\n');
        }
        for finding in &cache.findings {
            let _ = writeln!(out, "  {}: {}", finding.kind, finding.text);
        }
    }
    for finding in &machine.findings {
        let _ = writeln!(out, "{}: {}", finding.kind, finding.text);
    }
    out
}

/// Four cores, eight threads, as the kernel shows an i7-6700.
fn client_i7() -> (Fake, CpuidFacts) {
    let fake = Fake::new();
    fake.put("sys/devices/system/cpu/online", "0-7");
    for cpu in 0..8 {
        let pair = format!("{},{}", cpu % 4, cpu % 4 + 4);
        fake.topology(cpu, &pair)
            .cache(cpu, 0, (1, "Data", 32, 8, 64, &pair))
            .cache(cpu, 1, (1, "Instruction", 32, 8, 64, &pair))
            .cache(cpu, 2, (2, "Unified", 256, 4, 1024, &pair))
            .cache(cpu, 3, (3, "Unified", 8192, 16, 8192, "0-7"));
    }
    let mut facts = cpuid(Vendor::Intel, 6, 0x5e, false);
    facts.caches = vec![
        leaf(1, Data, 8, 64, 2),
        leaf(1, Instruction, 8, 64, 2),
        leaf(2, Unified, 4, 1024, 2),
        leaf(3, Unified, 16, 8192, 16),
    ];
    (fake, facts)
}

#[test]
fn a_client_on_bare_metal() {
    let (fake, facts) = client_i7();
    assert_eq!(
        render(&fake.machine(&facts)),
        "online 0-7 threads 2\n\
         L1 Data 32K 64B 8w 64s [0,4 1,5 2,6 3,7] Both\n\
         \x20 4K:1(Linear)  64K:1(Linear)  2048K:1(Linear)  1048576K:1(Linear)\n\
         L1 Instruction 32K 64B 8w 64s [0,4 1,5 2,6 3,7] Both\n\
         \x20 4K:1(Linear)  64K:1(Linear)  2048K:1(Linear)  1048576K:1(Linear)\n\
         L2 Unified 256K 64B 4w 1024s [0,4 1,5 2,6 3,7] Both\n\
         \x20 4K:16(Linear)  64K:1(Linear)  2048K:1(Linear)  1048576K:1(Linear)\n\
         L3 Unified 8192K 64B 16w 8192s [0-7] Both last\n\
         \x20 slices 8 x 1024 Table 3 masks\n\
         \x20 4K:128(Hash)  64K:8(Hash)  2048K:1(Hash)  1048576K:1(Hash)\n"
    );
}

/// Two CPUs of a Cascade Lake under KVM, whose host shows its own caches.
fn honest_guest() -> (Fake, CpuidFacts) {
    let fake = Fake::new();
    fake.put("sys/devices/system/cpu/online", "0-1");
    for cpu in 0..2 {
        let own = cpu.to_string();
        fake.topology(cpu, &own)
            .cache(cpu, 0, (1, "Data", 32, 8, 64, &own))
            .cache(cpu, 1, (1, "Instruction", 32, 8, 64, &own))
            .cache(cpu, 2, (2, "Unified", 1024, 16, 1024, &own))
            .cache(cpu, 3, (3, "Unified", 36608, 11, 53248, "0-1"));
    }
    let mut facts = cpuid(Vendor::Intel, 6, 0x55, true);
    facts.caches = vec![
        leaf(1, Data, 8, 64, 1),
        leaf(1, Instruction, 8, 64, 1),
        leaf(2, Unified, 16, 1024, 1),
        leaf(3, Unified, 11, 53248, 2),
    ];
    (fake, facts)
}

#[test]
fn an_honest_guest() {
    let (fake, facts) = honest_guest();
    assert_eq!(
        render(&fake.machine(&facts)),
        "online 0-1 threads 1\n\
         L1 Data 32K 64B 8w 64s [0 1] Both\n\
         \x20 4K:1(Linear)  64K:1(Linear)  2048K:1(Linear)  1048576K:1(Linear)\n\
         L1 Instruction 32K 64B 8w 64s [0 1] Both\n\
         \x20 4K:1(Linear)  64K:1(Linear)  2048K:1(Linear)  1048576K:1(Linear)\n\
         L2 Unified 1024K 64B 16w 1024s [0 1] Both\n\
         \x20 4K:16(Linear)  64K:1(Linear)  2048K:1(Linear)  1048576K:1(Linear)\n\
         L3 Unified 36608K 64B 11w 53248s [0-1] Both last\n\
         \x20 slices 26 x 2048 Inference 0 masks\n\
         \x20 4K:32(SetBits)  64K:2(SetBits)  2048K:1(SetBits)  1048576K:1(SetBits)\n\
         \x20 doubt: in a guest: other guests of this host may use it too, unseen from here\n"
    );
}

#[test]
fn a_hypervisor_s_placeholders_are_nonsense() {
    let fake = Fake::new();
    fake.put("sys/devices/system/cpu/online", "0")
        .cache(0, 0, (1, "Data", 32, 8, 64, "0"))
        .cache(0, 1, (2, "Unified", 4096, 1, 1, "0"))
        .cache(0, 2, (3, "Unified", 1024, 11, 53248, "0"));
    let mut facts = cpuid(Vendor::Intel, 6, 0x55, true);
    facts.caches =
        vec![leaf(1, Data, 8, 64, 1), leaf(2, Unified, 1, 1, 1), leaf(3, Unified, 11, 53248, 1)];
    let machine = fake.machine(&facts);
    let l2 = machine.cache(LevelChoice::Level(CacheLevel::L2)).expect("reported");
    assert!(!l2.sensible() && l2.colors.is_empty() && l2.slices.is_none());
    let text = render(&machine);
    assert!(text.contains("nonsense: 1 set x 1 way is a placeholder"), "{text}");
    // The sizes of L2 and L3 contradict their own sets; CPUID's product is believed for L3.
    let l3 = machine.cache(LevelChoice::Llc).expect("reported");
    assert_eq!(l3.geometry.size_bytes, 36608 << 10);
    assert!(text.contains("sysfs cannot be true; CPUID counts"), "{text}");
    assert!(text.contains("sysfs says 1048576 bytes, CPUID 37486592"), "{text}");
}

#[test]
fn an_emulator_s_default_caches_are_told_from_the_part_s() {
    let fake = Fake::new();
    fake.put("sys/devices/system/cpu/online", "0-1");
    for cpu in 0..2 {
        let own = cpu.to_string();
        fake.cache(cpu, 0, (1, "Data", 32, 8, 64, &own))
            .cache(cpu, 1, (2, "Unified", 4096, 16, 4096, &own))
            .cache(cpu, 2, (3, "Unified", 16384, 16, 16384, &own));
    }
    let text = render(&fake.machine(&cpuid(Vendor::Intel, 6, 0x55, true)));
    assert!(text.contains("nonsense: the L2 of Skylake-SP"), "{text}");
    assert!(text.contains("is 1024 KiB in 16 ways, not 4096 KiB in 16"), "{text}");
    assert!(text.contains("has 11 ways, not 16"), "{text}");
}

#[test]
fn more_l3_than_any_part_has_is_nonsense_in_a_guest_and_a_doubt_on_bare_metal() {
    for (guest, kind) in [(true, FindingKind::Nonsense), (false, FindingKind::Doubt)] {
        let fake = Fake::new();
        fake.cache(0, 0, (3, "Unified", 88 * 1024, 11, 131_072, "0"));
        let machine = fake.machine(&cpuid(Vendor::Intel, 6, 0x55, guest));
        let found = &machine.caches[0].findings;
        let limit = found.iter().find(|f| f.text.contains("at most 28 slices")).expect("finding");
        assert_eq!(limit.kind, kind);
    }
}

#[test]
fn sharing_beyond_cpuid_s_limit_is_a_difference() {
    let (fake, mut facts) = honest_guest();
    facts.caches[3].max_sharing = 1;
    let text = render(&fake.machine(&facts));
    assert!(text.contains("difference: sysfs lists 2 sharing CPUs, CPUID allows 1"), "{text}");
}

#[test]
fn each_core_complex_has_an_l3_of_its_own() {
    let fake = Fake::new();
    fake.put("sys/devices/system/cpu/online", "0-15");
    for cpu in 0..16 {
        let own = cpu.to_string();
        let complex = ["0-7", "8-15"][cpu as usize / 8];
        fake.topology(cpu, &own)
            .cache(cpu, 0, (1, "Data", 32, 8, 64, &own))
            .cache(cpu, 1, (2, "Unified", 512, 8, 1024, &own))
            .cache(cpu, 2, (3, "Unified", 32768, 16, 32768, complex));
    }
    let machine = fake.machine(&cpuid(Vendor::Amd, 0x19, 0x21, false));
    let l3 = machine.cache(LevelChoice::Llc).expect("an L3");
    assert_eq!(l3.instances, ["0-7", "8-15"].map(|list| CpuList::parse(list).expect("list")));
    assert_eq!((l3.geometry.shared_cpus, l3.geometry.slices), (8, Some(8)));
    assert_eq!(l3.slices.as_ref().map(|claim| claim.sets_per_slice), Some(4096));
    assert_eq!(l3.colors(PageSize::BASE), Some(64));
    assert_eq!(l3.source, CacheSource::Sysfs);
    assert!(l3.findings.is_empty(), "{:?}", l3.findings);
}

#[test]
fn hybrid_cores_are_listed_apart_and_cpuid_speaks_for_its_own_kind() {
    let fake = Fake::new();
    fake.cache(0, 0, (2, "Unified", 1280, 10, 2048, "0-1"))
        .cache(1, 0, (2, "Unified", 1280, 10, 2048, "0-1"))
        .cache(2, 0, (2, "Unified", 2048, 16, 2048, "2-3"))
        .cache(3, 0, (2, "Unified", 2048, 16, 2048, "2-3"));
    let mut facts = cpuid(Vendor::Intel, 6, 0x97, false);
    facts.caches = vec![leaf(2, Unified, 10, 2048, 2)];
    let machine = fake.machine(&facts);
    let sources: Vec<CacheSource> = machine.caches.iter().map(|c| c.source).collect();
    assert_eq!(sources, [CacheSource::Both, CacheSource::Sysfs]);
    assert!(machine.caches.iter().all(|c| c.findings.is_empty()), "{}", render(&machine));
}

#[test]
fn without_sysfs_cpuid_has_to_do() {
    let (_, facts) = client_i7();
    let machine = Fake::new().machine(&facts);
    assert_eq!(machine.caches.len(), 4);
    assert!(
        machine.caches.iter().all(|c| c.source == CacheSource::Cpuid && c.instances.is_empty())
    );
    assert_eq!(machine.caches[2].colors(PageSize::BASE), Some(16));
}

#[test]
fn without_either_there_is_an_error_that_says_what_to_do() {
    let facts = cpuid(Vendor::Other, 0, 0, false);
    let error = HostMachine::assemble(&Fake::new().roots.sys, &facts).expect_err("no caches");
    assert!(matches!(error, HostMachineError::NoCaches(_)));
    assert!(error.to_string().contains("mount sysfs"), "{error}");
}

#[test]
fn a_level_that_shrinks_is_doubted() {
    let fake = Fake::new();
    fake.cache(0, 0, (1, "Data", 512, 8, 1024, "0")).cache(0, 1, (3, "Unified", 256, 4, 1024, "0"));
    let text = render(&fake.machine(&cpuid(Vendor::Other, 0, 0, false)));
    assert!(text.contains("doubt: L3 of 256 KiB is smaller than L1 of 512 KiB"), "{text}");
    assert!(text.contains("doubt: no level between L1 and L3"), "{text}");
}

#[test]
fn cpuid_leaves_are_decoded() {
    let answer = |eax, ebx, ecx, edx| raw_cpuid::CpuIdResult { eax, ebx, ecx, edx };
    let reader = move |leaf: u32, sub: u32| match (leaf, sub) {
        (0, _) => answer(22, 0x756e_6547, 0x6c65_746e, 0x4965_6e69),
        (1, _) => answer(0x0005_0657, 0, 1 << 31, 0),
        (4, 0) => answer(0x0000_0121, 0x01c0_003f, 63, 0),
        (4, 1) => answer(0x0000_4143, 0x03c0_003f, 1023, 0),
        (0x4000_0000, _) => answer(0x4000_0001, 0x4b4d_564b, 0x564b_4d56, 0x4d),
        _ => answer(0, 0, 0, 0),
    };
    let facts = CpuidFacts::from_reader(raw_cpuid::CpuId::with_cpuid_reader(reader));
    assert_eq!((facts.model.vendor, facts.model.family), (Vendor::Intel, 6));
    assert_eq!((facts.model.model, facts.model.stepping), (0x55, 7));
    assert_eq!(facts.hypervisor.as_ref().map(|h| h.name), Some("KVM"));
    assert_eq!(facts.caches, [leaf(1, Data, 8, 64, 1), leaf(2, Unified, 16, 1024, 2)]);
    assert_eq!(facts.caches[1].size_bytes(), 1 << 20);
}

#[test]
fn this_machine_describes_itself() {
    let machine = HostMachine::read().expect("this machine has caches");
    assert!(machine.cache(LevelChoice::Llc).is_ok());
    assert!(!machine.online.is_empty());
}

#[test]
fn settings_come_from_files() {
    let fake = Fake::new();
    fake.put("proc/sys/kernel/osrelease", "6.1.0-18-amd64")
        .put("proc/filesystems", "nodev\tresctrl")
        .put("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never")
        .put("sys/kernel/mm/transparent_hugepage/hugepages-64kB/enabled", "[always] never")
        .put("sys/kernel/mm/transparent_hugepage/hugepages-8kB/shmem_enabled", "[never] always")
        .put("sys/kernel/mm/transparent_hugepage/hugepages-2048kB/enabled", "[never] always");
    let features = Features::probe(&fake.roots);
    let of = |id| features.get(id).map(|f| (f.state, f.detail.as_str())).expect("listed");
    assert_eq!(of(FeatureId::Release), (FeatureState::Missing, "6.1.0-18-amd64"));
    assert_eq!(of(FeatureId::Thp), (FeatureState::Present, "madvise"));
    assert_eq!(of(FeatureId::Mthp), (FeatureState::Present, "KiB: 64 2048; enabled: 64 always"));
    assert_eq!(of(FeatureId::Resctrl), (FeatureState::Present, "not mounted"));
    assert!(features.lacking().any(|f| f.id == FeatureId::Release));
}

#[test]
fn every_feature_is_tried_once() {
    let features = Features::probe(&Roots::default());
    let ids: Vec<FeatureId> = features.list.iter().map(|f| f.id).collect();
    assert!(ids.iter().map(|id| *id as usize).eq(0..18), "{ids:?}");
    // No kernel that runs this test is without these two.
    assert!(features.has(FeatureId::PidfdGetfd), "{:?}", features.get(FeatureId::PidfdGetfd));
    assert_ne!(features.get(FeatureId::TidAddress).map(|f| f.detail.as_str()), None);
}

/// On a kernel that is new enough, root can move pages: the rest of huepage rests on it.
#[test]
fn a_new_kernel_moves_pages_for_root() {
    let features = Features::probe(&Roots::default());
    let root = rustix::process::geteuid().is_root();
    if !root || !features.has(FeatureId::Release) {
        let reason = format!("needs root and Linux 6.8; here {}", features.release);
        return huepage_testing::skip("a_new_kernel_moves_pages_for_root", reason);
    }
    let lacking: Vec<_> = features.lacking().collect();
    assert!(lacking.is_empty(), "{lacking:?}");
}

fn status(euid: u32, capabilities: u64) -> String {
    format!(
        "Name:\tx\nUid:\t{euid}\t{euid}\t{euid}\t{euid}\nCapEff:\t{capabilities:016x}\n\
         NoNewPrivs:\t0\nSeccomp:\t0"
    )
}

#[test]
fn full_root_lacks_nothing() {
    let fake = Fake::new();
    fake.put("proc/self/status", &status(0, u64::MAX))
        .put("proc/self/uid_map", "         0          0 4294967295")
        .put("sys/kernel/security/lockdown", "none [integrity] confidentiality");
    let found = Privileges::read(&fake.roots);
    assert!(found.is_root() && found.suffice() && !found.user_namespace, "{found:?}");
    assert_eq!((found.seccomp, found.lockdown.as_deref()), (Seccomp::Off, Some("integrity")));
}

#[test]
fn an_ordinary_user_is_told_what_is_missing() {
    let fake = Fake::new();
    fake.put("proc/self/status", &status(1000, 0)).put("proc/sys/kernel/yama/ptrace_scope", "3");
    let found = Privileges::read(&fake.roots);
    assert!(!found.is_root() && !found.suffice());
    assert_eq!(found.missing.len(), 2);
    assert!(found.missing[0].contains("CAP_SYS_PTRACE and CAP_SYS_ADMIN"), "{found:?}");
    assert!(found.missing[1].contains("Yama"), "{found:?}");
}

#[test]
fn root_of_a_container_is_not_root_of_the_machine() {
    let fake = Fake::new();
    fake.put("proc/self/status", &status(0, u64::MAX))
        .put("proc/self/uid_map", "         0     100000      65536");
    let found = Privileges::read(&fake.roots);
    assert!(found.user_namespace && found.missing[0].contains("user namespace"), "{found:?}");
}
