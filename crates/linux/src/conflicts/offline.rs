//! Conflicts in a recording instead of in a process: the driver and the policy that decide live are told
//! what a residency sensor saw of pages in use, and pages that are to be moved count as moved. What was
//! recorded of them then is of before; a page that was of a crowded colour, and is of one that is crowded no
//! more, counts as found. Reads nothing of this machine; only [`pages_in_use`] looks at a process, to begin a
//! recording with.

use std::collections::HashMap;

use huepage_color::{Color, ColorSet, PAGE_BYTES, Vpn};
use huepage_policy::residency::Errors;
use huepage_policy::residency::recording::{Head, Look};
use serde::Serialize;

use super::Settings;
use super::driver::Driver;
use super::in_use::InUse;
use super::report::Crowd;
use crate::procfs::ProcRoot;
use crate::residency::{FrameColors, ResidencyError, Sight};

/// Seconds between two turns of the policy; live it is CPU time of the process.
const CHUNK: f64 = 0.1;
/// Pages of a process that are moved in a second, at most, as live when nothing is said.
const RATE: u32 = 512;

/// What the policy would have done.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Outcome {
    /// Pages in use.
    pub pages: u64,
    /// Of these, those of each colour at first.
    pub pages_by_color_before: Vec<u64>,
    /// The same in the end.
    pub pages_by_color: Vec<u64>,
    /// Colours with more of them than fit at first.
    pub crowds: Vec<Crowd>,
    /// Times that the policy asked which pages are in use.
    pub snapshots: u32,
    /// Times that it had pages moved.
    pub conflicts: u32,
    /// Pages moved.
    pub recolorings: u64,
    /// The share of the lines of pages in use that was in the cache, as recorded.
    pub residency_before: Option<f64>,
    /// The same at last, if pages that have room then are found.
    pub residency: Option<f64>,
    /// What it was doing when the recording ended.
    pub stage: String,
}

/// One recording on its way through the policy.
pub struct Replay {
    driver: Driver,
    ways: u64,
    colors: HashMap<Vpn, Option<Color>>,
    /// In the order of the recording.
    pages: Vec<Vpn>,
    by_color: Vec<u64>,
    /// Whether a colour was crowded at first.
    crowded: Vec<bool>,
    before: Vec<u64>,
    /// The colour of a page at first.
    home: HashMap<Vpn, Color>,
    told: f64,
    snapshots: u32,
    moved: u64,
    /// Looks at pages in use, and those that found the line.
    looks: [u64; 2],
}

impl Replay {
    /// At the beginning of a recording; `None` if that says nothing of pages in use and their colours.
    pub fn new(head: &Head) -> Option<Replay> {
        let in_use = head.in_use.as_ref()?;
        let pages = head.areas.iter().flat_map(|area| &area.pages).map(|&page| Vpn(page));
        let pages: Vec<Vpn> = pages.collect();
        let colors = in_use.of.iter().map(|color| color.map(Color));
        let colors: HashMap<Vpn, Option<Color>> = pages.iter().copied().zip(colors).collect();
        let settings = Settings {
            colors: in_use.colors,
            ways: in_use.ways,
            cache_bytes: u64::from(in_use.colors) * u64::from(in_use.ways) * PAGE_BYTES,
            keep_off: ColorSet::empty(in_use.colors),
            sight: Sight::Missing("a recording has no frames".to_owned()),
            cpu: 0.01,
            rate: RATE,
        };
        let home = colors.iter().filter_map(|(&page, color)| Some((page, (*color)?))).collect();
        let mut replay = Replay {
            driver: Driver::new(&settings),
            ways: u64::from(in_use.ways),
            colors,
            pages,
            by_color: vec![0; usize::from(in_use.colors)],
            crowded: Vec::new(),
            before: Vec::new(),
            home,
            told: 0.0,
            snapshots: 0,
            moved: 0,
            looks: [0; 2],
        };
        replay.count();
        replay.before.clone_from(&replay.by_color);
        replay.crowded = replay.by_color.iter().map(|&pages| pages > replay.ways).collect();
        replay.tell(false);
        Some(replay)
    }

    /// The next look of the recording.
    pub fn look(&mut self, look: &Look) {
        for (pages, found) in [(&look.found, true), (&look.missed, false)] {
            for page in pages.iter().map(|&page| Vpn(page)) {
                self.looks = [self.looks[0] + 1, self.looks[1] + u64::from(found)];
                let there = found || self.has_room(page);
                self.driver.looked(page, there);
            }
        }
        if look.at - self.told >= CHUNK {
            self.told = look.at;
            self.turn(look.at);
        }
    }

    /// What would have been done so far.
    pub fn outcome(&self) -> Outcome {
        let [all, found] = self.looks;
        let crowd = |(color, &pages): (u16, &u64)| Crowd { color, pages };
        let crowds = (0..).zip(&self.before).map(crowd).filter(|crowd| crowd.pages > self.ways);
        Outcome {
            pages: self.pages.len() as u64,
            pages_by_color_before: self.before.clone(),
            pages_by_color: self.by_color.clone(),
            crowds: crowds.collect(),
            snapshots: self.snapshots,
            conflicts: self.driver.conflicts(),
            recolorings: self.moved,
            residency_before: (all > 0).then(|| found as f64 / all as f64),
            residency: self.driver.residency(Errors::default()),
            stage: self.driver.stage(),
        }
    }

    /// A stretch of time is over: the policy wants something or not.
    fn turn(&mut self, now: f64) {
        let wants = self.driver.passed(now, Errors::default());
        if wants.snapshot {
            self.snapshots += 1;
            self.tell(true);
        }
        if wants.moves.is_empty() {
            return;
        }
        for &(page, to) in &wants.moves {
            self.colors.insert(page, Some(to));
        }
        self.moved += wants.moves.len() as u64;
        self.count();
        let placed: Vec<(Vpn, bool)> = wants.moves.iter().map(|&(page, _)| (page, true)).collect();
        self.driver.answered(&placed);
    }

    /// Tells which pages are in use; whether they were asked for.
    fn tell(&mut self, asked: bool) {
        let told = self.pages.iter().map(|page| (*page, self.colors.get(page).copied().flatten()));
        self.driver.in_use(&told.collect::<Vec<_>>(), asked);
    }

    fn count(&mut self) {
        self.by_color.fill(0);
        for color in self.colors.values().flatten() {
            self.by_color.get_mut(usize::from(color.0)).into_iter().for_each(|n| *n += 1);
        }
    }

    /// Whether a page that was in a crowd is in none any more.
    fn has_room(&self, page: Vpn) -> bool {
        let crowded = |color: &Color| self.crowded.get(usize::from(color.0)).is_some_and(|c| *c);
        let now = self.colors.get(&page).copied().flatten();
        let full = |color: Color| {
            self.by_color.get(usize::from(color.0)).is_none_or(|&pages| pages > self.ways)
        };
        self.home.get(&page).is_some_and(crowded) && now.is_some_and(|color| !full(color))
    }
}

/// Pages with their colours; none where nobody knows.
pub type Colored = Vec<(Vpn, Option<Color>)>;

/// The pages that a process uses again and again now, ascending, with their colours; `None` of one with too
/// much memory. Takes a few milliseconds of the process, and longer where colours are measured.
///
/// # Errors
/// When the process has ended, or the kernel does not let us.
pub fn pages_in_use(pid: i32, sight: Sight) -> Result<Option<Colored>, ResidencyError> {
    let Some(pages) = InUse::of(pid)?.find()? else { return Ok(None) };
    let pagemap = ProcRoot::default().pagemap(pid)?;
    let (mut places, mut frames) = (Vec::new(), Vec::new());
    for (at, page) in pages.iter().enumerate() {
        if let Some(frame) = pagemap.entry(*page)?.pfn().filter(|frame| frame.0 != 0) {
            places.push(at);
            frames.push(frame);
        }
    }
    let colors = FrameColors::open(sight)?.of(&frames)?;
    let mut told: Colored = pages.into_iter().map(|page| (page, None)).collect();
    for (at, color) in places.into_iter().zip(colors) {
        told[at].1 = color;
    }
    Ok(Some(told))
}

#[cfg(test)]
mod tests {
    use huepage_policy::AreaKind;
    use huepage_policy::residency::Tally;
    use huepage_policy::residency::recording::InUse;

    use super::*;

    /// Pages whose colours are 0, 1, 2 and so on, but for the first `crowd`, which are of colour 0; of a
    /// cache of 16 colours and 8 ways.
    fn head(pages: u64, crowd: u64) -> Head {
        let mut tally = Tally::default();
        let own = (16..16 + pages).map(Vpn);
        let named = (AreaKind::Heap, "pages in use".to_owned());
        tally.add((16 * 4096, (16 + pages) * 4096), named, pages, own);
        let color = |page: u64| u16::try_from(if page < crowd { 0 } else { page % 15 + 1 }).ok();
        let of = (0..pages).map(color).collect();
        let in_use = Some(InUse { colors: 16, ways: 8, of });
        Head { in_use, ..Head::of(7, 512 << 10, &tally) }
    }

    /// So many seconds of looks at pages by chance; those of the crowd are mostly missing.
    fn replayed(head: &Head, crowd: u64, seconds: u32) -> Outcome {
        let mut replay = Replay::new(head).unwrap();
        let pages: u64 = head.areas[0].pages.len() as u64;
        let mut seed = 1_u64;
        let mut below = |n: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % n
        };
        for at in 1..=seconds * 100 {
            let mut look = Look { at: f64::from(at) / 100.0, ..Look::default() };
            for _ in 0..50 {
                let page = below(pages);
                let there = below(100) < if page < crowd { 20 } else { 98 };
                if there { &mut look.found } else { &mut look.missed }.push(16 + page);
            }
            replay.look(&look);
        }
        replay.outcome()
    }

    #[test]
    fn a_crowd_is_spread_and_an_even_spread_is_left() {
        let found = replayed(&head(80, 32), 32, 20);
        assert_eq!(found.crowds, [Crowd { color: 0, pages: 32 }]);
        assert!(found.recolorings >= 24, "{found:?}");
        assert!(found.pages_by_color.iter().all(|&pages| pages <= 8), "{found:?}");
        assert!(found.residency > found.residency_before && found.conflicts >= 1, "{found:?}");
        assert_eq!(found, replayed(&head(80, 32), 32, 20), "the same each time");

        let even = replayed(&head(80, 0), 0, 20);
        assert_eq!((even.recolorings, even.conflicts), (0, 0), "{even:?}");
        assert_eq!(even.pages_by_color, even.pages_by_color_before);
    }

    #[test]
    fn more_pages_than_fit_are_left_alone() {
        let found = replayed(&head(400, 100), 400, 20);
        assert_eq!(found.recolorings, 0, "{found:?}");
        assert!(found.stage.contains("more pages are in use"), "{found:?}");
    }

    #[test]
    fn without_colours_there_is_nothing_to_go_by() {
        let head = Head { in_use: None, ..head(10, 0) };
        assert!(Replay::new(&head).is_none());
    }
}
