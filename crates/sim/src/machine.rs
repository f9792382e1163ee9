//! A machine as a file describes it: cores, caches, TLBs, memory, and what each costs. Parses
//! text that the caller has read, and says in one line what is wrong with it and where. Base
//! pages have 4 KiB on every machine; larger pages are superpages of 2^n of them.

use huepage_color::{CacheKind, IndexFunction};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

use crate::bytes::Bytes;
use crate::cache::{
    BufferSpec, Cache, Inclusion, IndexBy, NextLineSpec, Replacement, Sets, StrideSpec, WritePolicy,
};
use crate::pagecache::PageCacheSpec;
use crate::tlb::Tlb;
use crate::walk::{MAX_LEVELS, TableKind};

/// One level of cache; there are as many of it as its sharing makes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CacheSpec {
    /// 1 is nearest to the core.
    pub level: u8,
    /// What it holds.
    #[serde(default = "unified")]
    pub kind: CacheKind,
    /// Its size.
    pub size: Bytes,
    /// Lines per set; all lines in one set if 0.
    pub ways: usize,
    /// Bytes per line.
    #[serde(default = "line")]
    pub line: Bytes,
    /// Cores that share one.
    #[serde(default = "one")]
    pub shared_by: usize,
    /// How a line is chosen to leave.
    #[serde(default)]
    pub replacement: Replacement,
    /// What writes do.
    #[serde(default)]
    pub write: WritePolicy,
    /// How it goes with the levels above.
    #[serde(default)]
    pub inclusion: Inclusion,
    /// How a set is chosen; address bits above the line if absent.
    pub index: Option<IndexFunction>,
    /// Which address chooses the set.
    #[serde(default)]
    pub index_by: IndexBy,
    /// A victim cache beside it.
    pub victim: Option<VictimSpec>,
    /// A second place for each line of a direct-mapped cache.
    pub column_associative: Option<ColumnSpec>,
    /// A write buffer towards the level below.
    pub write_buffer: Option<BufferSpec>,
    /// A prefetcher of following lines.
    pub next_line: Option<NextLineSpec>,
    /// A prefetcher that learns strides.
    pub stride: Option<StrideSpec>,
    /// Cycles until it answers.
    pub latency: u64,
}

/// A victim cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VictimSpec {
    /// Lines it holds.
    pub entries: usize,
    /// Cycles more for a hit in it.
    pub latency: u64,
}

/// What makes a cache column-associative.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ColumnSpec {
    /// Cycles more for a hit in the second place.
    pub latency: u64,
}

/// Who fills a TLB after a miss.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TlbFill {
    /// The processor.
    #[default]
    Hardware,
    /// The operating system: a policy sees every miss and what made way.
    Software,
}

/// A walker that reads page tables through the caches.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WalkSpec {
    /// How page tables are built.
    #[serde(default)]
    pub table: TableKind,
    /// Levels of the page table, where it is a tree.
    #[serde(default = "four")]
    pub levels: usize,
    /// Level of the first cache of the data path that it asks.
    #[serde(default = "first")]
    pub from: u8,
    /// Entries of its page-walk caches: for the tables of base pages first, then those above.
    #[serde(default)]
    pub caches: Vec<usize>,
}

/// One level of TLB, of each core.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TlbSpec {
    /// 1 is asked first.
    pub level: u8,
    /// What it translates for.
    #[serde(default = "unified")]
    pub kind: CacheKind,
    /// Pages it holds.
    pub entries: usize,
    /// Entries per set; all in one set if 0.
    pub ways: usize,
    /// Page sizes it holds.
    #[serde(default = "base_page")]
    pub pages: Vec<Bytes>,
    /// How a page is chosen to leave.
    #[serde(default)]
    pub replacement: Replacement,
    /// Who fills it.
    #[serde(default)]
    pub fill: TlbFill,
    /// Cycles more when it has to be asked.
    #[serde(default)]
    pub latency: u64,
}

/// Most bytes of memory: what one zone of the allocator holds.
const MOST_MEMORY: u64 = 4088 << 30;

/// A machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// What people call it.
    pub name: String,
    /// Cores.
    #[serde(default = "one")]
    pub cores: usize,
    /// Memory.
    pub memory: Bytes,
    /// Cycles for a line from memory.
    pub memory_latency: u64,
    /// Cycles of a walker whose accesses are not simulated.
    #[serde(default)]
    pub walk_latency: u64,
    /// Cycles of the handler that fills a TLB by software; 30 if nothing is said, which is what
    /// Romer 1998, section 3.5.1, charges every policy, from 31 measured on an Alpha 3000/700.
    #[serde(default = "handler")]
    pub handler_latency: u64,
    /// Cycles until a line that a prefetcher fetched from memory is there; an access that comes
    /// before waits for the rest. 0 if nothing is said: prefetched lines are there at once.
    #[serde(default)]
    pub prefetch_latency: u64,
    /// A walker whose accesses are simulated, on top of that.
    pub walk: Option<WalkSpec>,
    /// The page cache, if its size, replacement or cost matter.
    pub page_cache: Option<PageCacheSpec>,
    /// Caches, in any order.
    #[serde(default)]
    pub cache: Vec<CacheSpec>,
    /// TLBs, in any order.
    #[serde(default)]
    pub tlb: Vec<TlbSpec>,
}

const fn unified() -> CacheKind {
    CacheKind::Unified
}

const fn line() -> Bytes {
    Bytes(64)
}

const fn one() -> usize {
    1
}

const fn handler() -> u64 {
    30
}

const fn four() -> usize {
    4
}

const fn first() -> u8 {
    1
}

fn base_page() -> Vec<Bytes> {
    vec![Bytes(4096)]
}

/// What is wrong with a description.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MachineError {
    /// It cannot be read as a description at all.
    #[error("line {line}: {what}")]
    Syntax {
        /// Where, from 1.
        line: usize,
        /// What was found or expected.
        what: String,
    },
    /// A cache, TLB or size that cannot be.
    #[error("{}{part}: {what}", if *line == 0 { String::new() } else { format!("line {line}: ") })]
    Impossible {
        /// Where it is described, from 1; 0 for a description that is no text.
        line: usize,
        /// Which part, such as `L2 unified cache`.
        part: String,
        /// What is wrong and what would be right.
        what: String,
    },
}

impl Machine {
    /// Reads a description and checks it.
    ///
    /// # Errors
    /// The first thing found wrong.
    pub fn parse(text: &str) -> Result<Machine, MachineError> {
        let machine: Machine = toml::from_str(text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            let line = line_of(text, at);
            let what = error.message().lines().collect::<Vec<_>>().join(", ");
            MachineError::Syntax { line, what }
        })?;
        machine.check_with(&Lines::of(text))?;
        Ok(machine)
    }

    /// Whether such a machine can be.
    ///
    /// # Errors
    /// `Impossible`.
    pub fn check(&self) -> Result<(), MachineError> {
        self.check_with(&Lines::default())
    }

    fn check_with(&self, lines: &Lines) -> Result<(), MachineError> {
        self.check_whole().map_err(|what| {
            let (line, part) = (0, "machine".into());
            MachineError::Impossible { line, part, what }
        })?;
        for (at, cache) in self.cache.iter().enumerate() {
            let check = cache.check(self.cores).and_then(|()| self.check_place(at));
            let (line, part) = (lines.cache(at), cache.part());
            check.map_err(|what| MachineError::Impossible { line, part, what })?;
        }
        for (at, tlb) in self.tlb.iter().enumerate() {
            let check = tlb.check().and_then(|()| self.check_tlb_place(at));
            let (line, part) = (lines.tlb(at), tlb.part());
            check.map_err(|what| MachineError::Impossible { line, part, what })?;
        }
        Ok(())
    }

    fn check_whole(&self) -> Result<(), String> {
        if !(1..=1024).contains(&self.cores) {
            return Err(format!("{} cores; give 1 to 1024", self.cores));
        }
        if self.memory.0 < 4096 || self.memory.0 > MOST_MEMORY {
            return Err(format!("{} bytes of memory; give 4K to 4088G", self.memory.0));
        }
        if self.data_path().is_empty() {
            return Err("no cache that holds data; add a [[cache]]".into());
        }
        self.check_latencies()?;
        if self.page_cache.is_some_and(|cache| cache.pages() == 0) {
            return Err("a page cache below one page; give a `size` of 4K or more".into());
        }
        let Some(walk) = &self.walk else { return Ok(()) };
        if !(1..=MAX_LEVELS).contains(&walk.levels) {
            return Err(format!("a walk of {} levels; give 1 to {MAX_LEVELS}", walk.levels));
        }
        if self.data_path().iter().all(|&at| self.cache[at].level != walk.from) {
            return Err(format!("a walk from L{}; give the level of a data cache", walk.from));
        }
        if walk.table == TableKind::Hashed && !walk.caches.is_empty() {
            return Err("walk caches of a hashed table, which has no levels; leave them out".into());
        }
        if walk.caches.len() >= walk.levels || walk.caches.iter().any(|&n| n > 1 << 16) {
            let most = walk.levels - 1;
            return Err(format!(
                "walk caches {:?}; give at most {most} sizes to 65536",
                walk.caches
            ));
        }
        Ok(())
    }

    fn check_latencies(&self) -> Result<(), String> {
        check_cycles("memory_latency", self.memory_latency)?;
        check_cycles("walk_latency", self.walk_latency)?;
        check_cycles("handler_latency", self.handler_latency)?;
        check_cycles("prefetch_latency", self.prefetch_latency)?;
        let Some(cache) = &self.page_cache else { return Ok(()) };
        check_cycles("page_cache.miss_latency", cache.miss_latency)?;
        check_cycles("page_cache.write_latency", cache.write_latency)
    }

    /// How a cache goes with those directly above it.
    fn check_place(&self, at: usize) -> Result<(), String> {
        let lower = &self.cache[at];
        let mut above = false;
        for path in [self.data_path(), self.fetch_path()] {
            let Some(depth) = path.iter().position(|&cache| cache == at) else { continue };
            let Some(&upper) = depth.checked_sub(1).and_then(|depth| path.get(depth)) else {
                continue;
            };
            above = true;
            lower.check_below(&self.cache[upper])?;
        }
        if !above && lower.inclusion != Inclusion::None {
            return Err(
                "`inclusion` is about the levels above, and there is none; leave it out".into()
            );
        }
        if above && lower.index_by == IndexBy::Virtual {
            return Err(
                "a virtual index below another cache; give `index_by = \"physical\"`".into()
            );
        }
        Ok(())
    }

    /// Whether another TLB of the level would hold the same pages.
    fn check_tlb_place(&self, at: usize) -> Result<(), String> {
        let tlb = &self.tlb[at];
        let meets = |other: &TlbSpec| {
            let one = tlb.kind == other.kind
                || tlb.kind == CacheKind::Unified
                || other.kind == CacheKind::Unified;
            one && tlb.level == other.level && tlb.pages.iter().any(|p| other.pages.contains(p))
        };
        if self.tlb[..at].iter().any(meets) {
            return Err("a second TLB of this level for the same pages; give other `pages`".into());
        }
        self.check_fill(tlb)
    }

    /// Software sees the misses of the farthest level only: it fills that one, and hardware
    /// fills those nearer from it.
    fn check_fill(&self, tlb: &TlbSpec) -> Result<(), String> {
        let below = |other: &&TlbSpec| {
            let one = tlb.kind == other.kind || other.kind == CacheKind::Unified;
            one && other.level > tlb.level && tlb.pages.iter().any(|p| other.pages.contains(p))
        };
        let software = tlb.fill == TlbFill::Software;
        match self.tlb.iter().find(below).filter(|_| software) {
            Some(other) => Err(format!(
                "`fill = \"software\"` above the {}; give it to the last level only",
                other.part()
            )),
            None => Ok(()),
        }
    }

    /// The caches that data goes through, nearest first, by their place in the description.
    pub fn data_path(&self) -> Vec<usize> {
        self.path_without(CacheKind::Instruction)
    }

    /// Whether another machine differs in nothing but caches behind the nearest one for data: what cores,
    /// TLBs and nearest caches do with a stream of data is then the same on both.
    pub fn is_same_up_to_nearest(&self, other: &Machine) -> bool {
        let mut like = other.clone();
        for &behind in self.data_path().iter().skip(1) {
            if let Some(cache) = like.cache.get_mut(behind) {
                cache.clone_from(&self.cache[behind]);
            }
        }
        like == *self
    }

    /// The caches that instructions go through.
    pub fn fetch_path(&self) -> Vec<usize> {
        self.path_without(CacheKind::Data)
    }

    fn path_without(&self, other: CacheKind) -> Vec<usize> {
        let mut path: Vec<usize> =
            (0..self.cache.len()).filter(|&i| self.cache[i].kind != other).collect();
        path.sort_by_key(|&i| self.cache[i].level);
        path
    }

    /// The TLB levels for data, or for instructions.
    pub fn tlb_path(&self, fetch: bool) -> Vec<usize> {
        let other = if fetch { CacheKind::Data } else { CacheKind::Instruction };
        let mut path: Vec<usize> =
            (0..self.tlb.len()).filter(|&i| self.tlb[i].kind != other).collect();
        path.sort_by_key(|&i| self.tlb[i].level);
        path
    }
}

impl CacheSpec {
    /// How messages name it.
    pub fn part(&self) -> String {
        format!("L{} {} cache", self.level, format!("{:?}", self.kind).to_ascii_lowercase())
    }

    /// Ways that 0 stands for, or as given.
    pub fn real_ways(&self) -> usize {
        if self.ways == 0 { self.lines() } else { self.ways }
    }

    fn lines(&self) -> usize {
        usize::try_from(self.size.0 / self.line.0.max(1)).unwrap_or(usize::MAX)
    }

    /// How many sets it has.
    pub fn sets(&self) -> usize {
        self.lines() / self.real_ways().max(1)
    }

    /// Such a cache, empty. `seed` matters for random replacement.
    ///
    /// # Panics
    /// If the description was not checked.
    pub fn build(&self, seed: u64) -> Cache {
        let sets = Sets::new(self.sets(), self.real_ways(), self.replacement, seed);
        let mut cache = match &self.index {
            Some(index) => Cache::indexed(sets, index.clone(), self.write),
            None => Cache::new(sets, self.line.0.ilog2(), self.write),
        };
        if let Some(column) = self.column_associative {
            cache = cache.column_associative(column.latency);
        }
        if let Some(victim) = self.victim {
            cache = cache.with_victims(victim.entries, victim.latency);
        }
        if self.index_by == IndexBy::Virtual {
            cache = cache.virtually_indexed();
        }
        if let Some(buffer) = self.write_buffer {
            cache = cache.with_buffer(buffer);
        }
        if self.next_line.is_some() || self.stride.is_some() {
            cache = cache.with_prefetchers(self.next_line, self.stride);
        }
        cache
    }

    fn check(&self, cores: usize) -> Result<(), String> {
        if !self.line.0.is_power_of_two() || !(16..=4096).contains(&self.line.0) {
            return Err(format!("lines of {} bytes; give 2^n from 16 to 4096", self.line.0));
        }
        let way = (self.real_ways() as u64).saturating_mul(self.line.0);
        if way == 0 || self.size.0 == 0 || !self.size.0.is_multiple_of(way) {
            let (size, ways, line) = (self.size.0, self.ways, self.line.0);
            let right = "give a `size` that is a multiple of ways times line";
            return Err(format!(
                "{size} bytes are not sets of {ways} lines of {line} bytes; {right}"
            ));
        }
        if self.lines() > 1 << 28 {
            return Err(format!("{} bytes; give at most 2^28 lines", self.size.0));
        }
        if self.shared_by == 0 || !cores.is_multiple_of(self.shared_by) {
            return Err(format!("shared by {} of {cores} cores; give a divisor", self.shared_by));
        }
        check_cycles("latency", self.latency)?;
        check_replacement(self.replacement, self.real_ways())?;
        self.check_index()?;
        self.check_extras()
    }

    fn check_index(&self) -> Result<(), String> {
        let Some(index) = &self.index else { return Ok(()) };
        index.check().map_err(|error| error.to_string())?;
        let line = 1 << index.line_bits();
        if line != self.line.0 {
            return Err(format!(
                "an index for lines of {line} bytes; give `line_bits = {}`",
                self.line.0.ilog2()
            ));
        }
        let (slices, places) = (index.slices(), u64::from(index.slices()) << index.set_bits());
        if places != self.sets() as u64 {
            let sets = self.sets();
            return Err(format!(
                "an index for {places} sets in {slices} slices; give one for {sets} sets"
            ));
        }
        Ok(())
    }

    fn check_extras(&self) -> Result<(), String> {
        let sets = self.sets();
        if self.column_associative.is_some() {
            if self.real_ways() != 1 || !sets.is_power_of_two() || sets < 2 {
                let ways = self.real_ways();
                return Err(format!(
                    "column-associative with {ways} ways and {sets} sets; give 1 way and 2^n sets"
                ));
            }
            if self.victim.is_some() || self.index_by == IndexBy::Virtual {
                return Err(
                    "column-associative with a victim cache or a virtual index; leave one out"
                        .into(),
                );
            }
        }
        check_cycles("victim.latency", self.victim.map_or(0, |victim| victim.latency))?;
        let second = self.column_associative.map_or(0, |column| column.latency);
        check_cycles("column_associative.latency", second)?;
        let exclusive = self.inclusion == Inclusion::Exclusive;
        if exclusive && !self.write.is_back() {
            return Err("exclusive and write-through; give `write = \"back-allocate\"`".into());
        }
        let buffer = self.write_buffer.map(|b| ("write_buffer.entries", b.entries as u64, 1 << 10));
        let retire = self.write_buffer.map(|b| ("write_buffer.retire", b.retire.max(1), 1 << 20));
        let victim = self.victim.map(|v| ("victim.entries", v.entries as u64, 1 << 12));
        let next = self.next_line.map(|n| ("next_line.degree", n.degree, 1 << 8));
        let stride = self.stride.map(|s| ("stride.degree", s.degree, 1 << 8));
        let table = self.stride.map(|s| ("stride.table", s.table as u64, 1 << 16));
        let all = [buffer, retire, victim, next, stride, table];
        match all.into_iter().flatten().find(|(_, n, most)| !(1..=*most).contains(n)) {
            Some((key, n, most)) => Err(format!("`{key} = {n}`; give 1 to {most}")),
            None => Ok(()),
        }
    }

    /// What would be wrong with it directly below another cache.
    fn check_below(&self, upper: &CacheSpec) -> Result<(), String> {
        let above = upper.part();
        if self.level == upper.level {
            return Err(format!(
                "a second cache of this level beside the {above}; give another `level`"
            ));
        }
        if upper.kind == CacheKind::Unified && self.kind != CacheKind::Unified {
            return Err(format!("it is split below the {above}; give `kind = \"unified\"`"));
        }
        if self.line < upper.line {
            let (own, other) = (self.line.0, upper.line.0);
            return Err(format!("lines of {own} bytes below the {above}; give at least {other}"));
        }
        if self.inclusion == Inclusion::Exclusive && self.line != upper.line {
            let (own, other) = (self.line.0, upper.line.0);
            return Err(format!(
                "exclusive with lines of {own} bytes below the {above}; give {other}"
            ));
        }
        if !self.shared_by.is_multiple_of(upper.shared_by.max(1)) {
            let (own, other) = (self.shared_by, upper.shared_by);
            return Err(format!(
                "shared by {own} cores below the {above}; give a multiple of {other}"
            ));
        }
        Ok(())
    }
}

impl TlbSpec {
    /// How messages name it.
    pub fn part(&self) -> String {
        format!("L{} {} TLB", self.level, format!("{:?}", self.kind).to_ascii_lowercase())
    }

    /// Such a TLB, empty.
    ///
    /// # Panics
    /// If the description was not checked.
    pub fn build(&self) -> Tlb {
        let orders: Vec<u32> = self.pages.iter().map(|size| size.0.ilog2() - 12).collect();
        Tlb::new(self.entries, self.real_ways(), &orders, self.replacement)
    }

    fn check(&self) -> Result<(), String> {
        let ways = self.real_ways();
        if self.entries == 0 || self.entries > 1 << 20 || !self.entries.is_multiple_of(ways) {
            let entries = self.entries;
            return Err(format!("{entries} entries in sets of {ways}; give a multiple up to 2^20"));
        }
        let odd = |size: &&Bytes| !size.0.is_power_of_two() || !(12..=30).contains(&size.0.ilog2());
        if let Some(size) = self.pages.iter().find(odd) {
            return Err(format!("pages of {} bytes; give 2^n from 4K to 1G", size.0));
        }
        if self.pages.is_empty() {
            return Err("no page size; give `pages = [\"4K\"]`".into());
        }
        check_cycles("latency", self.latency)?;
        check_replacement(self.replacement, ways)
    }

    /// Ways that 0 stands for, or as given.
    pub fn real_ways(&self) -> usize {
        if self.ways == 0 { self.entries } else { self.ways }
    }
}

/// Most cycles that anything takes: of 2^32 accesses they can be added up.
const MOST_CYCLES: u64 = 1 << 32;

/// Whether cycles can be added up.
fn check_cycles(key: &str, cycles: u64) -> Result<(), String> {
    match cycles {
        0..=MOST_CYCLES => Ok(()),
        _ => Err(format!("`{key} = {cycles}`; give at most {MOST_CYCLES} cycles")),
    }
}

/// Whether sets of so many ways can be replaced like this.
fn check_replacement(replacement: Replacement, ways: usize) -> Result<(), String> {
    match replacement {
        Replacement::TreePlru if !ways.is_power_of_two() || ways > 64 => {
            Err(format!("tree-plru over {ways} ways; give 2^n up to 64, or another replacement"))
        }
        Replacement::Nru if ways > 64 => Err(format!("nru over {ways} ways; give at most 64")),
        Replacement::Srrip if ways > 32 => Err(format!("srrip over {ways} ways; give at most 32")),
        _ => Ok(()),
    }
}

/// The lines on which parts of a description begin.
#[derive(Default)]
struct Lines {
    caches: Vec<usize>,
    tlbs: Vec<usize>,
}

impl Lines {
    fn of(text: &str) -> Lines {
        #[derive(Deserialize)]
        struct Places {
            #[serde(default)]
            cache: Vec<toml::Spanned<IgnoredAny>>,
            #[serde(default)]
            tlb: Vec<toml::Spanned<IgnoredAny>>,
        }
        let line = |part: &toml::Spanned<IgnoredAny>| line_of(text, part.span().start);
        let places: Option<Places> = toml::from_str(text).ok();
        places.map_or_else(Lines::default, |places| Lines {
            caches: places.cache.iter().map(line).collect(),
            tlbs: places.tlb.iter().map(line).collect(),
        })
    }

    fn cache(&self, at: usize) -> usize {
        self.caches.get(at).copied().unwrap_or(0)
    }

    fn tlb(&self, at: usize) -> usize {
        self.tlbs.get(at).copied().unwrap_or(0)
    }
}

/// The line of a place in a text, from 1.
fn line_of(text: &str, at: usize) -> usize {
    text.bytes().take(at).filter(|&byte| byte == b'\n').count() + 1
}
