//! Conflicts in a recording instead of in a process: the policy that decides live is told what a residency
//! sensor saw of pages in use, and pages that are to be moved count as moved. What was recorded of them then
//! is of before; a page that was of a crowded colour, and is of one that is crowded no more, counts as found.

use std::collections::HashMap;

use huepage_color::{Color, ColorSet, Vpn};
use serde::Serialize;

use super::CacheShape;
use super::in_use::{Crowd, InUse, InUseSettings, crowds};
use crate::event::Policy;
use crate::recording::residency::{ResidencyHead, ResidencyLook};
use crate::residency::Errors;

/// Seconds between two turns of the policy; live it is CPU time of the process.
const CHUNK: f64 = 0.1;
/// Pages of a process that are moved in a second, at most, as live when nothing is said.
const RATE: u32 = 512;

/// What the policy would have done.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ConflictOutcome {
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
pub struct ConflictReplay<P> {
    policy: InUse<P>,
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

/// The settings of the policy for what was recorded.
fn settings_of(head: &ResidencyHead) -> Option<InUseSettings> {
    let in_use = head.in_use.as_ref()?;
    let (colors, ways) = (in_use.colors, in_use.ways);
    let shape = CacheShape { colors, ways, lines_per_page: 64 };
    Some(InUseSettings::new(shape, RATE, ColorSet::empty(colors)))
}

impl<P: Policy> ConflictReplay<P> {
    /// At the beginning of a recording, by a policy that is `made` for its cache; `None` if it says nothing of
    /// pages in use and their colours, or there is no such policy.
    pub fn new(
        head: &ResidencyHead,
        made: impl FnOnce(InUseSettings) -> Option<InUse<P>>,
    ) -> Option<ConflictReplay<P>> {
        let (in_use, policy) = (head.in_use.as_ref()?, made(settings_of(head)?)?);
        let pages = head.areas.iter().flat_map(|area| &area.pages).map(|&page| Vpn(page));
        let pages: Vec<Vpn> = pages.collect();
        let colors = in_use.of.iter().map(|color| color.map(Color));
        let colors: HashMap<Vpn, Option<Color>> = pages.iter().copied().zip(colors).collect();
        let home = colors.iter().filter_map(|(&page, color)| Some((page, (*color)?))).collect();
        let mut replay = ConflictReplay {
            policy,
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
        let _ = replay.tell(false);
        Some(replay)
    }

    /// The next look of the recording.
    pub fn look(&mut self, look: &ResidencyLook) {
        for (pages, found) in [(&look.found, true), (&look.missed, false)] {
            for page in pages.iter().map(|&page| Vpn(page)) {
                self.looks = [self.looks[0] + 1, self.looks[1] + u64::from(found)];
                let there = found || self.has_room(page);
                self.policy.looked(page, there);
            }
        }
        if look.at - self.told >= CHUNK {
            self.told = look.at;
            self.turn(look.at);
        }
    }

    /// What would have been done so far.
    pub fn outcome(&self) -> ConflictOutcome {
        let [all, found] = self.looks;
        ConflictOutcome {
            pages: self.pages.len() as u64,
            pages_by_color_before: self.before.clone(),
            pages_by_color: self.by_color.clone(),
            crowds: crowds(&self.before, self.ways),
            snapshots: self.snapshots,
            conflicts: self.policy.conflicts,
            recolorings: self.moved,
            residency_before: (all > 0).then(|| found as f64 / all as f64),
            residency: self.policy.residency(Errors::default()),
            stage: self.policy.stage(),
        }
    }

    /// A stretch of time is over: the policy wants something or not.
    fn turn(&mut self, now: f64) {
        let wants = self.policy.passed(now, Errors::default());
        let mut moves = wants.moves;
        if wants.snapshot {
            self.snapshots += 1;
            moves.extend(self.tell(true));
        }
        if moves.is_empty() {
            return;
        }
        for &(page, to) in &moves {
            self.colors.insert(page, Some(to));
        }
        self.moved += moves.len() as u64;
        self.count();
        let placed: Vec<(Vpn, bool)> = moves.iter().map(|&(page, _)| (page, true)).collect();
        self.policy.answered(&placed);
    }

    /// Tells which pages are in use, and whether they were asked for; the moves that follow at once.
    fn tell(&mut self, asked: bool) -> Vec<(Vpn, Color)> {
        let told = self.pages.iter().map(|page| (*page, self.colors.get(page).copied().flatten()));
        self.policy.in_use(&told.collect::<Vec<_>>(), asked).moves
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

#[cfg(test)]
mod tests {
    use crate::AreaKind;
    use crate::recording::residency::InUseColors;
    use crate::residency::ResidencyTally;

    use super::*;

    /// Pages whose colours are 0, 1, 2 and so on, but for the first `crowd`, which are of colour 0; of a
    /// cache of 16 colours and 8 ways.
    fn head(pages: u64, crowd: u64) -> ResidencyHead {
        let mut tally = ResidencyTally::default();
        let own = (16..16 + pages).map(Vpn);
        let named = (AreaKind::Heap, "pages in use".to_owned());
        tally.add((16 * 4096, (16 + pages) * 4096), named, pages, own);
        let color = |page: u64| u16::try_from(if page < crowd { 0 } else { page % 15 + 1 }).ok();
        let of = (0..pages).map(color).collect();
        let in_use = Some(InUseColors { colors: 16, ways: 8, of });
        ResidencyHead { in_use, ..ResidencyHead::of(7, 512 << 10, &tally) }
    }

    fn replay_of(
        policy: &str,
        head: &ResidencyHead,
    ) -> Option<ConflictReplay<Box<dyn Policy + Send>>> {
        let policy = crate::registry::Settings::parse(policy).unwrap();
        ConflictReplay::new(head, |settings| policy.in_use(settings).ok())
    }

    fn replayed(head: &ResidencyHead, crowd: u64, seconds: u32) -> ConflictOutcome {
        replayed_by("snapshot-in-use", head, crowd, seconds)
    }

    /// So many seconds of looks at pages by chance; those of the crowd are mostly missing.
    fn replayed_by(
        policy: &str,
        head: &ResidencyHead,
        crowd: u64,
        seconds: u32,
    ) -> ConflictOutcome {
        let mut replay = replay_of(policy, head).unwrap();
        let pages: u64 = head.areas[0].pages.len() as u64;
        let mut seed = 1_u64;
        let mut below = |n: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % n
        };
        for at in 1..=seconds * 100 {
            let mut look = ResidencyLook { at: f64::from(at) / 100.0, ..ResidencyLook::default() };
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

    /// Each policy of conflicts that running programs can be told enough for spreads a crowd, and leaves alone
    /// what has none.
    #[test]
    fn every_live_policy_of_conflicts_works_on_pages_in_use() {
        for policy in crate::registry::LiveOption::RecolorConflicts.names() {
            let found = replayed_by(policy, &head(80, 32), 32, 120);
            let by_chance = policy == "periodic-random";
            assert!(found.recolorings >= 1, "{policy}: {found:?}");
            assert!(by_chance || found.pages_by_color[0] < 32, "{policy}: {found:?}");
            let even = replayed_by(policy, &head(80, 0), 0, 20);
            assert_eq!(even.recolorings, 0, "{policy}: {even:?}");
        }
    }

    #[test]
    fn more_pages_than_fit_are_left_alone() {
        let found = replayed(&head(400, 100), 400, 20);
        assert_eq!(found.recolorings, 0, "{found:?}");
        assert!(found.stage.contains("more pages are in use"), "{found:?}");
    }

    #[test]
    fn without_colours_there_is_nothing_to_go_by() {
        let head = ResidencyHead { in_use: None, ..head(10, 0) };
        assert!(replay_of("snapshot-in-use", &head).is_none());
    }
}
