//! One run as a person asks for it: a machine, how frames are chosen, partitions, a policy;
//! and sweeps, which are many such runs that differ in a few numbers. Says what is wrong with a
//! wish in one line. Opening files and starting threads is the caller's business.

use std::str::FromStr;

use huepage_color::{CacheLevel, ColorMap, ColorSet, IndexFunction, Provenance};
use huepage_policy::StaticPartition;
use huepage_policy::conflict::CacheShape;
use serde::Serialize;

use crate::bytes::Bytes;
use crate::feedback::{Every, Sense};
use crate::frames::{Choice, Frames};
use crate::machine::{CacheSpec, Machine};
use crate::system::System;

/// What is wrong with a wish, in one line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct WishError(String);

impl WishError {
    /// In words that end with what to do.
    pub fn new(what: String) -> WishError {
        WishError(what)
    }
}

fn wrong<T>(what: impl Into<String>) -> Result<T, WishError> {
    Err(WishError(what.into()))
}

/// How frames are chosen for programs without a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameMapping {
    /// See [`Choice::InOrder`].
    InOrder,
    /// See [`Choice::Random`].
    Random(u64),
    /// See [`Choice::Coloring`].
    Coloring,
    /// See [`Choice::BinHopping`].
    BinHopping,
    /// See [`Choice::Reservation`].
    Reservation(u32),
    /// See [`Choice::Identity`].
    Identity,
}

impl FromStr for FrameMapping {
    type Err = WishError;

    fn from_str(text: &str) -> Result<FrameMapping, WishError> {
        let (name, rest) = text.split_once(':').unwrap_or((text, ""));
        let number = |default: u64| if rest.is_empty() { Some(default) } else { rest.parse().ok() };
        let found = match name {
            "in-order" if rest.is_empty() => Some(FrameMapping::InOrder),
            "identity" if rest.is_empty() => Some(FrameMapping::Identity),
            "random" => number(1).map(FrameMapping::Random),
            "coloring" | "colouring" if rest.is_empty() => Some(FrameMapping::Coloring),
            "bin-hopping" if rest.is_empty() => Some(FrameMapping::BinHopping),
            "reservation" => {
                let order = number(9).and_then(|order| u32::try_from(order).ok());
                order.filter(|order| (1..=10).contains(order)).map(FrameMapping::Reservation)
            }
            _ => None,
        };
        found.map_or_else(
            || wrong(format!("`{}` is no way to choose frames; give in-order, random[:SEED], coloring, bin-hopping, reservation[:ORDER] (1 to 10) or identity", text.escape_debug())),
            Ok,
        )
    }
}

/// A run.
#[derive(Clone, Debug)]
pub struct Experiment {
    /// The machine.
    pub machine: Machine,
    /// The cache level whose colours count; the farthest that has more than one if none.
    pub level: Option<u8>,
    /// For programs without a partition.
    pub mapping: FrameMapping,
    /// The partition of each program in turn, as written; the last one is that of the rest.
    pub partitions: Vec<String>,
    /// Cycles between audits of the live engine's policy, which moves what lies outside; none:
    /// partitions hold from the first touch on.
    pub audit: Option<u64>,
    /// Share of the largest free blocks that are spoilt before the start.
    pub fragment: f64,
}

impl Experiment {
    /// The colours of the level that counts, and its place on the way of data; none if no
    /// level has more than one colour and none was asked for.
    ///
    /// # Errors
    /// When the level asked for is not there or has no colours.
    pub fn colors(&self) -> Result<Option<(ColorMap, usize)>, WishError> {
        let path = self.machine.data_path();
        let depths: Vec<usize> = match self.level {
            None => (0..path.len()).rev().collect(),
            Some(level) => {
                let found = path.iter().position(|&i| self.machine.cache[i].level == level);
                match found {
                    Some(depth) => vec![depth],
                    None => {
                        return wrong(format!(
                            "no cache of level {level} on {}; see its file",
                            self.machine.name
                        ));
                    }
                }
            }
        };
        for depth in depths {
            if let Some(map) =
                color_map(&self.machine.cache[path[depth]]).filter(|m| m.colors() > 1)
            {
                return Ok(Some((map, depth)));
            }
        }
        match self.level {
            Some(level) => wrong(format!(
                "level {level} of {} has one colour; choose another with --level",
                self.machine.name
            )),
            None => Ok(None),
        }
    }

    /// The level whose colours count; none if no level has more than one.
    ///
    /// # Errors
    /// As [`Self::colors`].
    pub fn colored_level(&self) -> Result<Option<u8>, WishError> {
        let level =
            |(_, depth): (_, usize)| self.machine.cache[self.machine.data_path()[depth]].level;
        Ok(self.colors()?.map(level))
    }

    /// The cache whose colours count; none if no level has more than one.
    ///
    /// # Errors
    /// As [`Self::colors`].
    pub fn shape(&self) -> Result<Option<CacheShape>, WishError> {
        let Some((map, depth)) = self.colors()? else { return Ok(None) };
        let cache = &self.machine.cache[self.machine.data_path()[depth]];
        let (colors, lines_per_page) = (map.colors(), 4096 / cache.line.0.clamp(1, 4096));
        let ways = cache.size.0 / (4096 * u64::from(colors));
        let ways = u16::try_from(ways).unwrap_or(u16::MAX).max(1);
        Ok(Some(CacheShape { colors, ways, lines_per_page }))
    }

    /// The machine, ready to run.
    ///
    /// # Errors
    /// When a wish cannot be met on it.
    pub fn build(&self) -> Result<System, WishError> {
        let colors = self.colors()?;
        let universe = colors.as_ref().map(|(map, _)| map.colors());
        let by_color = matches!(self.mapping, FrameMapping::Coloring | FrameMapping::BinHopping);
        if universe.is_none() && (by_color || !self.partitions.is_empty()) {
            return wrong(format!("no cache of {} has more than one colour", self.machine.name));
        }
        if let Some(universe) = universe {
            self.partitions.iter().try_for_each(|set| self.fits(set, universe))?;
        }
        let depth = colors.as_ref().map(|&(_, depth)| depth);
        let choice = match self.mapping {
            FrameMapping::InOrder => Choice::InOrder,
            FrameMapping::Identity => Choice::Identity,
            FrameMapping::Random(seed) => Choice::Random(seed),
            FrameMapping::Coloring => Choice::Coloring,
            FrameMapping::BinHopping => Choice::BinHopping,
            FrameMapping::Reservation(order) => Choice::Reservation(order),
        };
        let mut frames =
            Frames::new(self.machine.memory.0 >> 12, choice, colors.map(|(map, _)| map));
        frames.fragment(self.fragment, 1);
        let mut system = System::new(self.machine.clone(), frames);
        if let Some(depth) = depth {
            system.count_colors_at(depth);
        }
        Ok(system)
    }

    /// Whether the systems of both may be twins, see [`System::leading`]: the same machine up to the
    /// nearest cache, and no policy.
    pub fn may_share(&self, other: &Experiment) -> bool {
        let policy = self.audit.or(other.audit).is_some();
        self.machine.is_same_up_to_nearest(&other.machine) && self.level == other.level && !policy
    }

    /// Puts a program's address space into its partition, if it has one.
    ///
    /// # Errors
    /// When the partition as written cannot be.
    pub fn confine(
        &self,
        system: &mut System,
        program: usize,
        space: u16,
    ) -> Result<(), WishError> {
        let Some(set) = self.partition(program, system.frames_mut().colors())? else {
            return Ok(());
        };
        match self.audit {
            None => system.frames_mut().choose_for(space, Choice::Partition(set)),
            Some(every) => {
                // Looking at a page takes the live engine about 20 ns: 50 cycles.
                let audit = Some(Every { every, cost: 50 });
                let policy = Box::new(StaticPartition::new(set));
                let sense = Sense { audit, ..Sense::default() };
                system.govern(space, policy, sense).map_err(|e| WishError(e.to_string()))?;
            }
        }
        Ok(())
    }

    /// Whether a partition is one of so many colours.
    fn fits(&self, set: &str, universe: u16) -> Result<(), WishError> {
        let last = set.strip_prefix("0-").and_then(|last| last.parse::<u64>().ok());
        if last.is_some_and(|last| last >= u64::from(universe)) {
            return wrong(format!(
                "colours `{set}` are more than the {universe} of {}; sweep at most colors=1..{universe}",
                self.machine.name
            ));
        }
        ColorSet::parse(set, universe).map(drop).map_err(|error| WishError(error.to_string()))
    }

    /// The partition of a program, if it has one.
    pub(crate) fn partition(
        &self,
        program: usize,
        colors: u16,
    ) -> Result<Option<ColorSet>, WishError> {
        let Some(text) = self.partitions.get(program).or(self.partitions.last()) else {
            return Ok(None);
        };
        match ColorSet::parse(text, colors) {
            Ok(set) => Ok(Some(set)),
            Err(error) => wrong(error.to_string()),
        }
    }

    /// Changes one number; keys are `colors` (the first so many), `seed`, `memory`, `audit`,
    /// `fragment`, and `l1.ways`, `l2.size` and the like.
    ///
    /// # Errors
    /// When there is no such number, or it cannot have this value.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), WishError> {
        let number = || {
            value.parse::<u64>().map_err(|_| {
                WishError(format!("`{}` is no number for {key}", value.escape_debug()))
            })
        };
        match key {
            "colors" => self.partitions = vec![first_colors(number()?)?],
            "seed" => self.mapping = FrameMapping::Random(number()?),
            "audit" => self.audit = Some(number()?),
            "memory" => self.machine.memory = size(value)?,
            "fragment" => match value.parse() {
                Ok(share) if (0.0..=1.0).contains(&share) => self.fragment = share,
                _ => {
                    return wrong(format!(
                        "`{}` is no share; give 0 to 1 for fragment",
                        value.escape_debug()
                    ));
                }
            },
            _ => self.set_cache(key, value)?,
        }
        self.machine.check().map_err(|e| WishError(e.to_string()))
    }

    fn set_cache(&mut self, key: &str, value: &str) -> Result<(), WishError> {
        let unknown = || {
            WishError(format!(
                "`{}` cannot be swept; give colors, seed, memory, audit, fragment, or l2.size, l2.ways, l2.latency and the like",
                key.escape_debug()
            ))
        };
        let (level, field) =
            key.strip_prefix('l').and_then(|rest| rest.split_once('.')).ok_or_else(unknown)?;
        let level: u8 = level.parse().map_err(|_| unknown())?;
        let path = self.machine.data_path();
        let place = path.into_iter().find(|&i| self.machine.cache[i].level == level);
        let Some(place) = place else {
            return wrong(format!("{} has no level {level} for data", self.machine.name));
        };
        let number = || {
            value.parse().map_err(|_| {
                WishError(format!("`{}` is no number for {key}", value.escape_debug()))
            })
        };
        let cache = &mut self.machine.cache[place];
        match field {
            "size" => cache.size = size(value)?,
            "ways" => {
                // As many sets as before: what changes is how much each holds.
                let (sets, ways) = (cache.sets() as u64, number()?);
                cache.ways = usize::try_from(ways).unwrap_or(usize::MAX);
                cache.size = Bytes(sets.saturating_mul(ways).saturating_mul(cache.line.0));
            }
            "latency" => cache.latency = number()?,
            _ => return Err(unknown()),
        }
        Ok(())
    }
}

fn first_colors(n: u64) -> Result<String, WishError> {
    if n == 0 { wrong("no colours; sweep colors from 1") } else { Ok(format!("0-{}", n - 1)) }
}

fn size(text: &str) -> Result<Bytes, WishError> {
    Bytes::parse(text).map_err(WishError)
}

/// The colours of a cache, as an operating system can know them from frame numbers.
fn color_map(spec: &CacheSpec) -> Option<ColorMap> {
    let level = CacheLevel(spec.level);
    let plain = || {
        let sets = spec.sets();
        let linear = || IndexFunction::linear(spec.line.0.ilog2(), sets.ilog2()).ok();
        sets.is_power_of_two().then(linear).flatten()
    };
    let index = spec.index.clone().or_else(plain)?;
    ColorMap::computed(level, &index, Provenance::Declared).ok()
}

/// One number that varies: `colors=1..16`, `l3.size=1M,2M,4M`, `seed=1..10`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Sweep {
    /// What varies.
    pub key: String,
    /// Its values, as written.
    pub values: Vec<String>,
}

/// Most values of one key.
const MOST: u64 = 100_000;

impl FromStr for Sweep {
    type Err = WishError;

    fn from_str(text: &str) -> Result<Sweep, WishError> {
        let Some((key, list)) = text.split_once('=') else {
            return wrong(format!(
                "`{}` is no sweep; write colors=1..16 or l3.size=1M,2M",
                text.escape_debug()
            ));
        };
        let values = match list.split_once("..") {
            None => list.split(',').map(|v| v.trim().to_owned()).collect(),
            Some((first, last)) => {
                let ends = (first.trim().parse::<u64>(), last.trim().parse::<u64>());
                let (Ok(first), Ok(last)) = ends else {
                    return wrong(format!("`{}` is no range; write 1..16", list.escape_debug()));
                };
                if first > last || last - first >= MOST {
                    return wrong(format!(
                        "`{}` is empty or has more than {MOST} values",
                        list.escape_debug()
                    ));
                }
                (first..=last).map(|v| v.to_string()).collect::<Vec<_>>()
            }
        };
        if key.is_empty() || values.iter().any(String::is_empty) {
            return wrong(format!(
                "`{}` lacks a key or a value; write colors=1,2,4",
                text.escape_debug()
            ));
        }
        Ok(Sweep { key: key.to_owned(), values })
    }
}

/// Every combination of the sweeps, the last key varying fastest; one empty one without sweeps.
pub fn points(sweeps: &[Sweep]) -> Vec<Vec<(String, String)>> {
    sweeps.iter().fold(vec![Vec::new()], |points, sweep| {
        let with = |point: &Vec<(String, String)>, value: &String| {
            let mut point = point.clone();
            point.push((sweep.key.clone(), value.clone()));
            point
        };
        points.iter().flat_map(|p| sweep.values.iter().map(move |v| with(p, v))).collect()
    })
}

/// A share of a sweep's points: part `number` of `parts`, both from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    /// Which part, from 1.
    pub number: usize,
    /// Of how many.
    pub parts: usize,
}

impl Shard {
    /// Whether a point, counted from 0, belongs to it. Points are dealt in turns, so that parts
    /// take about as long as each other where cost grows along the sweep.
    pub const fn has(self, point: usize) -> bool {
        point % self.parts == self.number - 1
    }
}

impl FromStr for Shard {
    type Err = WishError;

    fn from_str(text: &str) -> Result<Shard, WishError> {
        let parts =
            text.split_once('/').and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
        match parts {
            Some((number, parts)) if (1..=parts).contains(&number) => Ok(Shard { number, parts }),
            _ => wrong(format!("`{}` is no part; write 1/4 to 4/4", text.escape_debug())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sweeps_are_every_combination_in_order() {
        let sweeps: Vec<Sweep> =
            ["colors=1..2", "l2.size=1M,2M"].map(|s| s.parse().expect("a sweep")).to_vec();
        let written: Vec<String> = points(&sweeps)
            .iter()
            .map(|p| p.iter().map(|(k, v)| format!("{k}={v}")).collect::<Vec<_>>().join(" "))
            .collect();
        assert_eq!(
            written,
            [
                "colors=1 l2.size=1M",
                "colors=1 l2.size=2M",
                "colors=2 l2.size=1M",
                "colors=2 l2.size=2M"
            ]
        );
        assert_eq!(points(&[]), [Vec::new()]);
    }

    #[test]
    fn parts_are_disjoint_and_complete() {
        let shards: Vec<Shard> =
            (1..=3).map(|n| format!("{n}/3").parse().expect("a part")).collect();
        for point in 0..20 {
            assert_eq!(shards.iter().filter(|s| s.has(point)).count(), 1, "point {point}");
        }
    }

    #[test]
    fn bad_wishes_are_told_in_one_line() {
        for text in ["colors", "colors=", "=1", "colors=5..1", "colors=1..x", "l2.size=1M,,2M"] {
            let said = text.parse::<Sweep>().expect_err(text).to_string();
            assert!(said.contains('`') && !said.contains('\n'), "{said}");
        }
        for text in ["0/3", "4/3", "1", "a/b", "1/0"] {
            assert!(text.parse::<Shard>().is_err(), "{text}");
        }
        for text in ["", "rondom", "in-order:3", "reservation:0", "random:x"] {
            assert!(text.parse::<FrameMapping>().is_err(), "{text}");
        }
    }
}
