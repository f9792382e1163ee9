//! Caches in a row, the naive way: addresses are divided, everything is searched, every rule
//! is written out where it applies.

use huepage_sim::cache::{CacheCounts, Inclusion, Replacement, WritePolicy};
use huepage_sim::record::AccessKind;

use super::Table;

/// How a set is chosen.
#[derive(Clone, Debug)]
pub enum Index {
    /// Line number modulo sets.
    Modulo,
    /// Slice bits that are parities of address and mask.
    Parities(Vec<u64>),
    /// Slices looked up at line number XOR parities.
    Lookup(Vec<u8>, Vec<u64>),
}

/// What a level is like.
#[derive(Clone, Debug)]
pub struct Shape {
    pub sets: u64,
    pub ways: usize,
    pub line: u64,
    pub replacement: Replacement,
    pub write: WritePolicy,
    pub inclusion: Inclusion,
    pub index: Index,
    pub by_virtual: bool,
    pub victims: usize,
    pub column: bool,
    /// Entries, cycles to retire one, merging.
    pub buffer: Option<(usize, u64, bool)>,
    pub next_line: Option<u64>,
    /// Degree and table.
    pub stride: Option<(u64, u64)>,
}

struct Waiting {
    address: u64,
    bytes: u64,
    arrived: u64,
}

pub struct Level {
    pub shape: Shape,
    pub counts: CacheCounts,
    pub hits: u64,
    table: Table,
    victims: Option<Table>,
    rehashed: Vec<bool>,
    /// Virtually indexed: line and set.
    homes: Vec<(u64, u64)>,
    waiting: Vec<Waiting>,
    idle_since: u64,
    unused: Vec<u64>,
    /// Stride table, the frame used last at the end: frame, last line, stride, confidence.
    walks: Vec<(u64, i64, i64, u8)>,
    below: Option<usize>,
    above: Vec<usize>,
}

#[derive(Default)]
pub struct Model {
    pub levels: Vec<Level>,
    lessons: Vec<(usize, u64, u64, bool)>,
    pub now: u64,
    pub extra: u64,
    pub memory: [u64; 3],
}

fn parity(x: u64) -> u64 {
    u64::from(x.count_ones()) % 2
}

impl Level {
    pub fn new(shape: Shape, seed: u64) -> Level {
        Level {
            counts: CacheCounts::default(),
            hits: 0,
            table: Table::new(shape.ways, shape.replacement, seed),
            victims: (shape.victims > 0).then(|| Table::new(shape.victims, Replacement::Lru, 1)),
            rehashed: vec![true; shape.sets as usize],
            homes: Vec::new(),
            waiting: Vec::new(),
            idle_since: 0,
            unused: Vec::new(),
            walks: Vec::new(),
            below: None,
            above: Vec::new(),
            shape,
        }
    }

    fn set_of(&self, address: u64) -> u64 {
        let (line, sets) = (address / self.shape.line, self.shape.sets);
        match &self.shape.index {
            Index::Modulo => line % sets,
            Index::Parities(masks) => {
                let per_slice = sets >> masks.len();
                let slice = (0..masks.len()).map(|i| parity(address & masks[i]) << i).sum::<u64>();
                slice * per_slice + line % per_slice
            }
            Index::Lookup(base, masks) => {
                let slices = u64::from(*base.iter().max().unwrap()) + 1;
                let number = (0..masks.len()).map(|i| parity(address & masks[i]) << i).sum::<u64>();
                let slice = u64::from(base[(line % base.len() as u64 ^ number) as usize]);
                slice * (sets / slices) + line % (sets / slices)
            }
        }
    }

    fn other(&self, set: u64) -> u64 {
        (set + self.shape.sets / 2) % self.shape.sets
    }

    fn sets_of(&self, address: u64) -> Vec<u64> {
        let line = address / self.shape.line;
        if self.shape.by_virtual {
            return self.homes.iter().filter(|home| home.0 == line).map(|home| home.1).collect();
        }
        let set = self.set_of(address);
        if self.shape.column { vec![set, self.other(set)] } else { vec![set] }
    }

    fn has(&mut self, address: u64) -> bool {
        let line = address / self.shape.line;
        self.sets_of(address).into_iter().any(|set| self.table.contains(set, line))
            || self.victims.as_mut().is_some_and(|victims| victims.contains(0, line))
    }

    fn take(&mut self, address: u64) -> Option<(u64, bool)> {
        let line = address / self.shape.line;
        for set in self.sets_of(address) {
            if let Some(gone) = self.table.remove(set, line) {
                self.homes.retain(|home| home.0 != line);
                return Some(gone);
            }
        }
        self.victims.as_mut()?.remove(0, line)
    }

    /// 0 not there, 1 there, 2 there at second sight.
    fn look(&mut self, address: u64, index: u64, dirty: bool) -> u8 {
        let (set, line) = (self.set_of(index), address / self.shape.line);
        if self.table.touch(set, line, dirty) {
            return 1;
        }
        if self.shape.column {
            let other = self.other(set);
            if self.rehashed[set as usize] || !self.table.contains(other, line) {
                return 0;
            }
            let (_, was) = self.table.remove(other, line).unwrap();
            self.swap_out(set);
            self.table.fill(set, line, was || dirty);
            return 2;
        }
        let Some(victims) = &mut self.victims else { return 0 };
        let Some((_, was)) = victims.remove(0, line) else { return 0 };
        let gone = self.put(set, line, was || dirty);
        assert_eq!(gone, None, "there was room");
        2
    }

    /// Column: what is at `set` goes to the other place; what was there.
    fn swap_out(&mut self, set: u64) -> Option<(u64, bool)> {
        let other = self.other(set);
        self.rehashed[other as usize] = true;
        let here = self.table.lines().into_iter().find(|l| self.table.contains(set, l.0));
        let (line, dirty) = here?;
        self.table.remove(set, line);
        self.table.fill(other, line, dirty)
    }

    fn put(&mut self, set: u64, line: u64, dirty: bool) -> Option<(u64, bool)> {
        let gone = self.table.fill(set, line, dirty);
        if self.shape.by_virtual {
            self.homes.push((line, set));
            self.homes.retain(|home| gone.is_none_or(|gone| gone.0 != home.0));
        }
        match &mut self.victims {
            Some(victims) => gone.and_then(|(line, dirty)| victims.fill(0, line, dirty)),
            None => gone,
        }
    }

    fn bring(&mut self, address: u64, index: u64, mut dirty: bool) -> Option<(u64, bool)> {
        let (set, line) = (self.set_of(index), address / self.shape.line);
        if self.shape.column {
            let here = self.table.lines().into_iter().any(|l| self.table.contains(set, l.0));
            let mut gone = None;
            if here && !self.rehashed[set as usize] {
                gone = self.swap_out(set);
            }
            self.rehashed[set as usize] = false;
            return self.table.fill(set, line, dirty).or(gone);
        }
        if self.shape.by_virtual && self.homes.iter().any(|home| home.0 == line) {
            let home = self.homes.iter().find(|home| home.0 == line).unwrap().1;
            dirty |= self.table.remove(home, line).unwrap().1;
            self.homes.retain(|home| home.0 != line);
            self.counts.invalidated += 1;
        }
        self.put(set, line, dirty)
    }

    pub fn lines(&self) -> Vec<(u64, bool)> {
        let mut all = self.table.lines();
        all.extend(self.victims.iter().flat_map(|victims| victims.lines()));
        all.sort_unstable();
        all.iter().map(|(line, dirty)| (line * self.shape.line, *dirty)).collect()
    }

    fn forget_unused(&mut self, address: u64) -> bool {
        let before = self.unused.len();
        self.unused.retain(|line| *line != address / self.shape.line);
        before != self.unused.len()
    }

    fn waits_for(&self, address: u64) -> bool {
        self.waiting.iter().any(|w| w.address / self.shape.line == address / self.shape.line)
    }
}

impl Model {
    pub fn add(&mut self, level: Level) -> usize {
        self.levels.push(level);
        self.levels.len() - 1
    }

    pub fn path(&mut self, path: &[usize]) {
        for i in 0..path.len() {
            self.levels[path[i]].below = path.get(i + 1).copied();
            for j in 0..i {
                if !self.levels[path[i]].above.contains(&path[j]) {
                    self.levels[path[i]].above.push(path[j]);
                }
            }
        }
    }

    /// The depth that answered.
    pub fn access(&mut self, first: usize, address: u64, index: u64, kind: AccessKind) -> usize {
        let index = if self.levels[first].shape.by_virtual { index } else { address };
        let write = self.levels[first].shape.write;
        let store = kind == AccessKind::Store;
        let depth = match write {
            WritePolicy::ThroughNoAllocate if store => {
                self.look(first, address, index, Some(kind), false);
                self.send(first, address, 1);
                0
            }
            WritePolicy::BackNoAllocate if store => {
                if self.look(first, address, index, Some(kind), true) == 0 {
                    self.send(first, address, 1);
                }
                0
            }
            WritePolicy::ThroughAllocate if store => {
                let (depth, _) = self.want(first, address, index, Some(kind), false);
                self.send(first, address, 1);
                depth
            }
            _ => self.want(first, address, index, Some(kind), store).0,
        };
        self.learn();
        depth
    }

    fn look(
        &mut self,
        n: usize,
        address: u64,
        index: u64,
        kind: Option<AccessKind>,
        dirty: bool,
    ) -> u8 {
        let level = &mut self.levels[n];
        let found = level.look(address, index, dirty);
        let Some(kind) = kind else {
            level.counts.prefetch_reads += 1;
            level.counts.prefetch_misses += u64::from(found == 0);
            return found;
        };
        level.counts.accesses[kind as usize] += 1;
        if found == 0 {
            level.counts.misses[kind as usize] += 1;
        } else {
            level.hits += 1;
        }
        if found == 2 {
            level.counts.second_hits += 1;
            self.extra += 3;
        }
        let first_use = found != 0 && level.forget_unused(address);
        level.counts.useful += u64::from(first_use);
        self.lessons.push((n, address, index, found == 0 || first_use));
        found
    }

    /// Asks a level for a line that it keeps: how far it was, counted from here.
    fn want(
        &mut self,
        n: usize,
        a: u64,
        index: u64,
        kind: Option<AccessKind>,
        dirty: bool,
    ) -> (usize, bool) {
        if self.look(n, a, index, kind, dirty) != 0 {
            return (0, false);
        }
        let (depth, came_dirty) = self.ask_below(n, a, kind);
        if self.left_below(n, a) {
            if dirty || came_dirty {
                self.send(n, a, self.levels[n].shape.line);
            }
        } else {
            self.bring(n, a, index, dirty || came_dirty);
        }
        (depth, false)
    }

    /// Whether a line that is on its way up is no more in a level that has to have it.
    fn left_below(&mut self, n: usize, address: u64) -> bool {
        let Some(below) = self.levels[n].below else { return false };
        let needed = self.levels[below].shape.inclusion == Inclusion::Inclusive;
        needed && !self.levels[below].has(address) || self.left_below(below, address)
    }

    fn bring(&mut self, n: usize, address: u64, index: u64, dirty: bool) {
        let exclusive = self.levels[n].shape.inclusion == Inclusion::Exclusive;
        if exclusive && self.above_has(n, address) {
            if dirty {
                self.send(n, address, self.levels[n].shape.line);
            }
            return;
        }
        let gone = self.levels[n].bring(address, index, dirty);
        self.lost(n, gone);
    }

    fn ask_below(&mut self, n: usize, address: u64, kind: Option<AccessKind>) -> (usize, bool) {
        while self.levels[n].waits_for(address) {
            self.let_one_go(n);
        }
        let Some(below) = self.levels[n].below else {
            self.memory[0] += 1;
            self.memory[2] += u64::from(kind.is_none());
            return (1, false);
        };
        if self.levels[below].shape.inclusion != Inclusion::Exclusive {
            let (depth, dirty) = self.want(below, address, address, kind, false);
            return (depth + 1, dirty);
        }
        if self.look(below, address, address, kind, false) == 0 {
            let (depth, dirty) = self.ask_below(below, address, kind);
            return (depth + 1, dirty);
        }
        let level = &mut self.levels[below];
        let (_, dirty) = level.take(address).unwrap();
        level.counts.useful += u64::from(level.forget_unused(address));
        (1, dirty)
    }

    /// A line has left a level.
    fn lost(&mut self, n: usize, gone: Option<(u64, bool)>) {
        let Some((line, mut dirty)) = gone else { return };
        let bytes = self.levels[n].shape.line;
        let address = line * bytes;
        if self.levels[n].forget_unused(address) {
            self.levels[n].counts.useless += 1;
        }
        if self.levels[n].shape.inclusion == Inclusion::Inclusive {
            for upper in self.levels[n].above.clone() {
                dirty |= self.clear(upper, address, bytes);
            }
        }
        let below = self.levels[n].below;
        let to_exclusive =
            below.filter(|b| self.levels[*b].shape.inclusion == Inclusion::Exclusive);
        if let Some(below) = to_exclusive {
            self.levels[n].counts.writes_out += u64::from(dirty);
            self.levels[below].counts.writes_in += u64::from(dirty);
            if self.above_has(below, address) {
                if dirty {
                    self.send(below, address, bytes);
                }
                return;
            }
            if self.levels[below].look(address, address, dirty) == 0 {
                self.levels[below].counts.write_misses += u64::from(dirty);
                let gone = self.levels[below].bring(address, address, dirty);
                self.lost(below, gone);
            }
        } else if dirty {
            self.send(n, address, bytes);
        }
    }

    /// Takes all lines between two addresses out of a level; whether one was written.
    fn clear(&mut self, n: usize, address: u64, bytes: u64) -> bool {
        let level = &mut self.levels[n];
        let mut dirty = false;
        let mut part = address;
        while part < address + bytes {
            let before = level.waiting.len();
            let line = level.shape.line;
            level.waiting.retain(|w| w.address / line != part / line);
            level.counts.merged += (before - level.waiting.len()) as u64;
            dirty |= before != level.waiting.len();
            if let Some((_, was)) = level.take(part) {
                dirty |= was;
                level.counts.invalidated += 1;
                level.counts.useless += u64::from(level.forget_unused(part));
            }
            part += line;
        }
        dirty
    }

    /// Whether a level above has any of a line, in itself or waiting.
    fn above_has(&mut self, n: usize, address: u64) -> bool {
        let bytes = self.levels[n].shape.line;
        let start = address / bytes * bytes;
        for upper in self.levels[n].above.clone() {
            let level = &mut self.levels[upper];
            let mut part = start;
            while part < start + bytes {
                if level.waits_for(part) || level.has(part) {
                    return true;
                }
                part += level.shape.line;
            }
        }
        false
    }

    fn send(&mut self, n: usize, address: u64, bytes: u64) {
        self.levels[n].counts.writes_out += 1;
        let Some((entries, retire, merge)) = self.levels[n].shape.buffer else {
            return self.arrive(n, address, bytes);
        };
        let arrived = self.now;
        self.levels[n].waiting.push(Waiting { address, bytes, arrived });
        while self.levels[n].waiting.len() > 1 {
            let level = &mut self.levels[n];
            let done = level.idle_since.max(level.waiting[0].arrived) + retire;
            if done > self.now {
                break;
            }
            level.idle_since = done;
            let oldest = level.waiting.remove(0);
            self.arrive(n, oldest.address, oldest.bytes);
        }
        let level = &mut self.levels[n];
        let Some(mut last) = level.waiting.pop() else { return };
        let line = level.shape.line;
        let same = level.waiting.iter_mut().find(|w| w.address / line == last.address / line);
        if let Some(same) = same.filter(|_| merge) {
            same.bytes = same.bytes.max(last.bytes);
            level.counts.merged += 1;
            return;
        }
        if level.waiting.len() < entries {
            return level.waiting.push(last);
        }
        let done = level.idle_since.max(level.waiting[0].arrived) + retire;
        last.arrived = last.arrived.max(done);
        level.waiting.push(last);
        self.let_one_go(n);
    }

    fn let_one_go(&mut self, n: usize) {
        let level = &mut self.levels[n];
        let retire = level.shape.buffer.unwrap().1;
        let oldest = level.waiting.remove(0);
        level.idle_since = level.idle_since.max(oldest.arrived) + retire;
        if level.idle_since > self.now {
            let wait = level.idle_since - self.now;
            level.counts.stalls += 1;
            level.counts.stall_cycles += wait;
            self.now += wait;
            self.extra += wait;
        }
        self.arrive(n, oldest.address, oldest.bytes);
    }

    /// A write of a level reaches what is below it.
    fn arrive(&mut self, n: usize, address: u64, bytes: u64) {
        let Some(n) = self.levels[n].below else {
            self.memory[1] += 1;
            return;
        };
        let level = &mut self.levels[n];
        level.counts.writes_in += 1;
        let shape = level.shape.clone();
        let back = matches!(shape.write, WritePolicy::BackAllocate | WritePolicy::BackNoAllocate);
        if level.look(address, address, back) != 0 {
            if !back {
                self.send(n, address, bytes);
            }
            return;
        }
        level.counts.write_misses += 1;
        let no_allocate =
            matches!(shape.write, WritePolicy::ThroughNoAllocate | WritePolicy::BackNoAllocate);
        if no_allocate || shape.inclusion == Inclusion::Exclusive {
            return self.send(n, address, bytes);
        }
        let mut dirty = back;
        if bytes < shape.line {
            dirty |= self.ask_below(n, address, Some(AccessKind::Store)).1;
        }
        self.bring(n, address, address, dirty);
        if !back {
            self.send(n, address, bytes);
        }
    }

    /// Delivers everything that waits, the lowest number first.
    pub fn flush(&mut self) {
        while let Some(n) = (0..self.levels.len()).find(|n| self.buffered(*n) > 0) {
            let oldest = self.levels[n].waiting.remove(0);
            let retire = self.levels[n].shape.buffer.unwrap().1;
            self.levels[n].idle_since = self.levels[n].idle_since.max(oldest.arrived) + retire;
            self.arrive(n, oldest.address, oldest.bytes);
        }
        self.lessons.clear();
    }

    fn learn(&mut self) {
        while !self.lessons.is_empty() {
            let (n, address, index, fresh) = self.lessons.remove(0);
            let line = self.levels[n].shape.line;
            for next in self.guesses(n, address, fresh) {
                let moved = next * line % 4096;
                self.prefetch(n, next * line, index / 4096 * 4096 + moved);
            }
        }
    }

    /// Line numbers that should follow.
    fn guesses(&mut self, n: usize, address: u64, fresh: bool) -> Vec<u64> {
        let level = &mut self.levels[n];
        let bytes = level.shape.line;
        let (line, frame, mut all) = ((address / bytes) as i64, address / 4096, Vec::new());
        if let Some(degree) = level.shape.next_line.filter(|_| fresh) {
            all.extend((1..=degree as i64).map(|step| line + step));
        }
        if let Some((degree, table)) = level.shape.stride {
            let known = level.walks.iter().position(|walk| walk.0 == frame);
            let mut walk = known.map_or((frame, line, 0, 0), |at| level.walks.remove(at));
            let step = line - walk.1;
            if step != 0 {
                walk.1 = line;
                if step == walk.2 {
                    walk.3 = (walk.3 + 1).min(3);
                } else if walk.3 > 0 {
                    walk.3 -= 1;
                } else {
                    walk.2 = step;
                }
                if walk.3 >= 2 {
                    all.extend((1..=degree as i64).map(|step| line + step * walk.2));
                }
            }
            level.walks.push(walk);
            if level.walks.len() as u64 > table {
                level.walks.remove(0);
            }
        }
        all.retain(|line| line * bytes as i64 / 4096 == frame as i64 && *line >= 0);
        all.into_iter().map(|line| line as u64).collect()
    }

    fn prefetch(&mut self, n: usize, address: u64, index: u64) {
        let exclusive = self.levels[n].shape.inclusion == Inclusion::Exclusive;
        if self.levels[n].has(address) || exclusive && self.above_has(n, address) {
            return;
        }
        let (_, dirty) = self.ask_below(n, address, None);
        if self.left_below(n, address) {
            if dirty {
                self.send(n, address, self.levels[n].shape.line);
            }
            return;
        }
        let level = &mut self.levels[n];
        level.counts.prefetched += 1;
        level.unused.push(address / level.shape.line);
        let gone = level.bring(address, index, dirty);
        self.lost(n, gone);
    }

    pub fn buffered(&self, n: usize) -> usize {
        self.levels[n].waiting.len()
    }
}
