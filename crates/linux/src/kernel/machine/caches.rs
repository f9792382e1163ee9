//! Caches as sysfs and CPUID report them, set side by side: where they differ, where a report
//! cannot be true, and how many colours follow for each page size.
//!
//! A hypervisor may report anything. What is impossible is called nonsense and gives no
//! colours; what is merely suspicious is a doubt, and stands.

use std::fmt;

use huepage_color::{CacheGeometry, CacheKind, CacheLevel, IndexFunction, PageClasses, PageSize};
use serde::Serialize;

use super::cpuid::{CpuidCache, CpuidFacts};
use super::slices::{self, SliceClaim};
use super::sysfs::{CpuList, Told};

/// Who reports a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum CacheSource {
    /// Sysfs and CPUID; see the findings for where they differ.
    Both,
    /// Sysfs alone.
    Sysfs,
    /// CPUID alone.
    Cpuid,
}

/// What sort of remark a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FindingKind {
    /// The report cannot be true.
    Nonsense,
    /// Sysfs and CPUID disagree.
    Difference,
    /// The report may be true but should not be relied on.
    Doubt,
}

impl fmt::Display for FindingKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            FindingKind::Nonsense => "nonsense",
            FindingKind::Difference => "difference",
            FindingKind::Doubt => "doubt",
        })
    }
}

/// A remark on a cache or on all of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CacheFinding {
    /// What sort.
    pub kind: FindingKind,
    /// One line.
    pub text: String,
}

impl CacheFinding {
    fn new(kind: FindingKind, text: impl Into<String>) -> CacheFinding {
        CacheFinding { kind, text: text.into() }
    }
}

/// What a number of colours rests on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ColorBasis {
    /// Plain address bits choose the set.
    Linear,
    /// The set bits inside a slice; a slice hash may split these colours further.
    SetBits,
    /// Set bits and a published slice hash.
    Hash,
}

/// Colours of a cache for one page size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ColorCount {
    /// Page size in bytes.
    pub page_bytes: u64,
    /// Colours, at least 1; 1 means that pages of this size cannot partition the cache.
    pub colors: u64,
    /// What the number rests on.
    pub basis: ColorBasis,
}

/// One kind of cache: all its instances have the same shape.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HostCache {
    /// The shape. `slices` is 1 for the first two levels, and from the claim for others.
    pub geometry: CacheGeometry,
    /// The CPUs that share each instance.
    pub instances: Vec<CpuList>,
    /// Who reports it.
    pub source: CacheSource,
    /// What is known of its slices.
    pub slices: Option<SliceClaim>,
    /// Colours per page size; empty where the report is nonsense or the index unknown.
    pub colors: Vec<ColorCount>,
    /// Remarks.
    pub findings: Vec<CacheFinding>,
}

impl HostCache {
    /// As it is reported; nothing is said of it yet.
    fn new(geometry: CacheGeometry, instances: Vec<CpuList>, source: CacheSource) -> HostCache {
        let (colors, findings) = (Vec::new(), Vec::new());
        HostCache { geometry, instances, source, slices: None, colors, findings }
    }

    /// Whether nothing in the report is impossible.
    pub fn sensible(&self) -> bool {
        self.findings.iter().all(|finding| finding.kind != FindingKind::Nonsense)
    }

    /// The colours that pages of this size have, if known.
    pub fn colors(&self, page: PageSize) -> Option<u64> {
        self.colors.iter().find(|c| c.page_bytes == page.bytes()).map(|c| c.colors)
    }
}

/// Joins the two reports. Where they differ the sensible one counts, sysfs before CPUID.
pub(super) fn cross_check(told: Vec<Told>, cpuid: &CpuidFacts) -> Vec<HostCache> {
    let cache = |(geometry, instances)| HostCache::new(geometry, instances, CacheSource::Sysfs);
    let told: Vec<HostCache> = told.into_iter().map(cache).collect();
    let unseen = cpuid.caches.iter().filter(|c| !told.iter().any(|t| same_place(t, c)));
    let unseen: Vec<_> = unseen.map(|cache| cpuid_only(cache, told.is_empty())).collect();
    let compared: Vec<bool> = told.iter().map(|cache| comparable(cache, &told, cpuid)).collect();
    let mut caches = told;
    let both = caches.iter_mut().zip(compared).filter(|(_, compared)| *compared);
    both.for_each(|(cache, _)| compare(cache, cpuid));
    caches.extend(unseen);
    caches.sort_by_key(|c| (c.geometry.level, c.geometry.kind == CacheKind::Instruction));
    mark_last_level(&mut caches);
    for cache in &mut caches {
        check_claims(cache, cpuid);
    }
    caches
}

fn same_place(told: &HostCache, cpuid: &CpuidCache) -> bool {
    told.geometry.level == cpuid.level && told.geometry.kind == cpuid.kind
}

/// CPUID speaks for one CPU only: on a hybrid processor it says nothing of the other kind.
fn comparable(told: &HostCache, all: &[HostCache], cpuid: &CpuidFacts) -> bool {
    let place = |c: &HostCache| (c.geometry.level, c.geometry.kind);
    let kinds = all.iter().filter(|c| place(c) == place(told)).count();
    let has = |cpu: u32| told.instances.iter().any(|list| list.0.contains(&cpu));
    !cpuid.caches.is_empty() && (kinds == 1 || cpuid.asked.is_some_and(has))
}

fn compare(cache: &mut HostCache, cpuid: &CpuidFacts) {
    let Some(other) = cpuid.caches.iter().find(|c| same_place(cache, c)) else {
        cache.findings.push(CacheFinding::new(FindingKind::Difference, "CPUID has no such cache"));
        return;
    };
    cache.source = CacheSource::Both;
    cache.findings = differences(&cache.geometry, other);
    let claimed = cpuid_geometry(other, cache.geometry.shared_cpus);
    if !cache.geometry.nonsense().is_empty() && claimed.nonsense().is_empty() {
        let text = "sysfs cannot be true; CPUID counts";
        cache.findings.push(CacheFinding::new(FindingKind::Doubt, text));
        cache.geometry = claimed;
    }
}

fn cpuid_geometry(told: &CpuidCache, shared_cpus: u32) -> CacheGeometry {
    CacheGeometry {
        level: told.level,
        kind: told.kind,
        size_bytes: told.size_bytes(),
        line_bytes: told.line_bytes.saturating_mul(told.partitions),
        ways: told.ways,
        sets: told.sets,
        slices: None,
        shared_cpus,
        last_level: false,
    }
}

fn cpuid_only(told: &CpuidCache, no_sysfs: bool) -> HostCache {
    let text = match no_sysfs {
        true => "sysfs describes no caches; who shares this one is not known",
        false => "sysfs has no such cache",
    };
    let geometry = cpuid_geometry(told, told.max_sharing);
    let findings = vec![CacheFinding::new(FindingKind::Difference, text)];
    HostCache { findings, ..HostCache::new(geometry, Vec::new(), CacheSource::Cpuid) }
}

fn differences(sysfs: &CacheGeometry, cpuid: &CpuidCache) -> Vec<CacheFinding> {
    let say = |text| CacheFinding::new(FindingKind::Difference, text);
    let pairs = [
        ("bytes", sysfs.size_bytes, cpuid.size_bytes()),
        ("bytes a line", sysfs.line_bytes.into(), cpuid.line_bytes.into()),
        ("ways", sysfs.ways.into(), cpuid.ways.into()),
        ("sets", sysfs.sets.into(), cpuid.sets.into()),
    ];
    let unequal = pairs.into_iter().filter(|(_, a, b)| a != b);
    let mut found: Vec<CacheFinding> =
        unequal.map(|(what, a, b)| say(format!("sysfs says {a} {what}, CPUID {b}"))).collect();
    if sysfs.shared_cpus > cpuid.max_sharing {
        let (listed, most) = (sysfs.shared_cpus, cpuid.max_sharing);
        found.push(say(format!("sysfs lists {listed} sharing CPUs, CPUID allows {most}")));
    }
    found
}

fn mark_last_level(caches: &mut [HostCache]) {
    let data = caches.iter().filter(|c| c.geometry.kind != CacheKind::Instruction);
    let highest = data.map(|c| c.geometry.level).max();
    for cache in caches {
        let geometry = &mut cache.geometry;
        geometry.last_level =
            geometry.kind != CacheKind::Instruction && Some(geometry.level) == highest;
    }
}

/// Adds what is impossible or doubtful about the report, then slices and colours.
fn check_claims(cache: &mut HostCache, cpuid: &CpuidFacts) {
    let impossible = cache.geometry.nonsense().into_iter().map(|n| n.to_string());
    let unlike = unlike_model(&cache.geometry, cpuid);
    // On bare metal the table of models is the likelier culprit.
    let guest = cpuid.hypervisor.is_some();
    let unlike_kind = if guest { FindingKind::Nonsense } else { FindingKind::Doubt };
    cache.findings.extend(impossible.map(|text| CacheFinding::new(FindingKind::Nonsense, text)));
    cache.findings.extend(unlike.into_iter().map(|text| CacheFinding::new(unlike_kind, text)));
    if !cache.sensible() {
        return;
    }
    if cache.geometry.last_level && cache.geometry.level >= CacheLevel::L3 {
        cache.slices = slices::claim(&cpuid.model, &cache.geometry);
        cache.geometry.slices = cache.slices.as_ref().map(|claim| claim.slices);
    } else {
        cache.geometry.slices = Some(1);
    }
    cache.colors = color_counts(&cache.geometry, cache.slices.as_ref());
    cache.findings.extend(hidden_neighbours(&cache.geometry, cpuid));
}

/// What no part of this processor generation has; emulators report defaults of their own.
fn unlike_model(cache: &CacheGeometry, cpuid: &CpuidFacts) -> Vec<String> {
    let Some(known) = slices::generation(&cpuid.model) else { return Vec::new() };
    let (name, mut found) = (known.name, Vec::new());
    if let (CacheLevel::L2, Some((bytes, ways))) = (cache.level, known.l2)
        && (cache.size_bytes, cache.ways) != (bytes, ways)
    {
        let (real, told) = (kib(bytes), kib(cache.size_bytes));
        found.push(format!(
            "the L2 of {name} is {real} KiB in {ways} ways, not {told} KiB in {}: \
             the model or the cache is made up",
            cache.ways
        ));
    }
    if cache.level == CacheLevel::L3 {
        if let Some(ways) = known.l3_ways.filter(|&ways| ways != cache.ways) {
            found.push(format!("the L3 of {name} has {ways} ways, not {}", cache.ways));
        } else if slices::claim(&cpuid.model, cache).is_none() {
            let most = known.max_slices;
            found.push(format!(
                "{} sets do not fit the at most {most} slices of {name}",
                cache.sets
            ));
        }
    }
    found
}

fn hidden_neighbours(cache: &CacheGeometry, cpuid: &CpuidFacts) -> Option<CacheFinding> {
    let guest = cpuid.hypervisor.is_some();
    (guest && cache.last_level && cache.level >= CacheLevel::L3).then(|| {
        let text = "in a guest: other guests of this host may use it too, unseen from here";
        CacheFinding::new(FindingKind::Doubt, text)
    })
}

/// Page sizes that are listed: 4 KiB, 64 KiB, 2 MiB, 1 GiB.
fn page_sizes() -> impl Iterator<Item = PageSize> {
    [0, 4, 9, 18].into_iter().filter_map(PageSize::from_order)
}

fn color_counts(cache: &CacheGeometry, claim: Option<&SliceClaim>) -> Vec<ColorCount> {
    let Some((index, basis)) = index_of(cache, claim) else { return Vec::new() };
    let count = |page: PageSize| {
        let colors = PageClasses::new(&index, page).ok()?.colors();
        Some(ColorCount { page_bytes: page.bytes(), colors, basis })
    };
    page_sizes().filter_map(count).collect()
}

/// The index function as far as it is known.
fn index_of(
    cache: &CacheGeometry,
    claim: Option<&SliceClaim>,
) -> Option<(IndexFunction, ColorBasis)> {
    if cache.slices == Some(1) {
        return Some((cache.linear_index().ok()?, ColorBasis::Linear));
    }
    let claim = claim.filter(|claim| claim.sets_per_slice.is_power_of_two())?;
    let (line, sets) = (cache.line_bytes.trailing_zeros(), claim.sets_per_slice.trailing_zeros());
    if claim.masks.is_empty() {
        Some((IndexFunction::linear(line, sets).ok()?, ColorBasis::SetBits))
    } else {
        Some((IndexFunction::xor(line, sets, claim.masks.clone()).ok()?, ColorBasis::Hash))
    }
}

/// What is odd about the caches as a whole: a level smaller than the one below, unequal lines,
/// a missing level.
pub(super) fn hierarchy(caches: &[HostCache]) -> Vec<CacheFinding> {
    let data = caches.iter().map(|c| &c.geometry).filter(|g| g.kind != CacheKind::Instruction);
    let mut firsts: Vec<&CacheGeometry> = data.collect();
    firsts.dedup_by_key(|g| g.level);
    let say = |text| CacheFinding::new(FindingKind::Doubt, text);
    let mut found = Vec::new();
    for pair in firsts.windows(2) {
        let (low, high) = (pair[0], pair[1]);
        if high.size_bytes < low.size_bytes {
            let (a, b) = (kib(high.size_bytes), kib(low.size_bytes));
            let text =
                format!("{} of {a} KiB is smaller than {} of {b} KiB", high.level, low.level);
            found.push(say(text));
        }
        if high.line_bytes != low.line_bytes {
            found.push(say(format!("lines of {} and {} differ in size", low.level, high.level)));
        }
        if high.level.0 != low.level.0 + 1 {
            found.push(say(format!("no level between {} and {}", low.level, high.level)));
        }
    }
    found
}

fn kib(bytes: u64) -> u64 {
    bytes / 1024
}
