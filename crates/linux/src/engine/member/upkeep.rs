//! The pages of a member are measured again for as long as it has them: the host may move them to frames
//! of other colours, and nothing shows it. Pages are looked at in rounds, in random order but many of one
//! colour together, which is cheaper; those near pages that were moved come first. What was moved is then
//! outside by what is known, and the next audit brings it back. When to look is decided by `ColorUpkeep`.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use huepage_color::{Color, ColorSet, PAGE_BYTES, Vpn};
use huepage_policy::{Looked, UpkeepLook};
use serde::{Deserialize, Serialize};

use super::Member;
use super::moves::held_by;
use crate::color::sources::{Candidate, ColorUpkeep};
use crate::engine::EngineError;
use crate::engine::census::ColorLookup;
use crate::engine::clear_tid::PAGES_PER_READ;
use crate::engine::in_place::{Gate, InPlace};
use crate::kernel::process_memory::thread_time;
use fastrand::Rng;

/// Pages of one colour that are looked at together.
const PAGES_TOGETHER: usize = 24;
/// Pages on either side of one that was moved which are looked at first.
const NEAR_PAGES: u64 = 16;
/// How far back "lately" reaches.
const LATELY_REACH: Duration = Duration::from_secs(60);
/// Pages of a round from which on the share that was moved is an estimate for the others.
const TELLING_PAGES: u64 = 200;

/// What keeping the colours of a process true has found and cost, for reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct UpkeepReport {
    /// Pages measured again, each as often as that was done.
    pub measured: u64,
    /// Of these, pages that the host had moved: they had other colours than before.
    pub moved: u64,
    /// CPU seconds that it took, of the agent as well.
    pub cpu_seconds: f64,
    /// Seconds for which pages were held.
    pub seconds: f64,
    /// Pages measured in the last minute.
    pub lately: u64,
    /// Estimated share, 0 to 1, of all pages that were moved and not found yet.
    pub stale: f64,
}

/// Where the rounds of a member are.
pub(super) struct UpkeepRounds {
    upkeep: Option<Arc<ColorUpkeep>>,
    id: u64,
    began: Instant,
    round: u64,
    /// Bursts that are known.
    bursts: u64,
    /// Pages left in this round, the next one last; and how many it had.
    list: Vec<u64>,
    all: usize,
    /// Pages measured and moved in this round; and the share moved that is to be expected before enough
    /// of them were measured.
    counts: (u64, u64),
    expected: f64,
    /// Pages found moved that those near them have still to be looked at for.
    moved: Vec<u64>,
    /// When how many pages were measured.
    lately: VecDeque<(Instant, u64)>,
    random: Rng,
    told: UpkeepReport,
}

impl UpkeepRounds {
    pub fn new(upkeep: Option<Arc<ColorUpkeep>>, seed: u64) -> UpkeepRounds {
        UpkeepRounds {
            id: upkeep.as_ref().map_or(0, |upkeep| upkeep.admit()),
            upkeep,
            began: Instant::now(),
            round: 0,
            bursts: 0,
            list: Vec::new(),
            all: 0,
            counts: (0, 0),
            expected: 0.0,
            moved: Vec::new(),
            lately: VecDeque::new(),
            random: Rng::with_seed(seed),
            told: UpkeepReport::default(),
        }
    }

    /// Begins a round with these pages, by colour.
    fn begin(&mut self, round: u64, by_color: HashMap<Color, Vec<u64>>) {
        self.expected = if self.list.is_empty() { 0.0 } else { self.share_moved() };
        (self.round, self.counts) = (round, (0, 0));
        let mut parts: Vec<Vec<u64>> = Vec::new();
        for mut pages in by_color.into_values() {
            self.random.shuffle(&mut pages);
            parts.extend(pages.chunks(PAGES_TOGETHER).map(<[u64]>::to_vec));
        }
        self.random.shuffle(&mut parts);
        let moved = std::mem::take(&mut self.moved);
        let (mut near, far) = divide(parts.concat(), moved);
        self.list = far;
        self.list.append(&mut near);
        self.all = self.list.len();
    }

    /// The next pages of the round.
    fn next(&mut self, pages: usize) -> Vec<u64> {
        self.list.split_off(self.list.len().saturating_sub(pages))
    }

    /// What keeps colours true, and the number of the member there; none where they are not measured.
    pub fn of_member(&self) -> Option<(Arc<ColorUpkeep>, u64)> {
        Some((Arc::clone(self.upkeep.as_ref()?), self.id))
    }

    fn share_moved(&self) -> f64 {
        let (measured, moved) = self.counts;
        if measured < TELLING_PAGES { self.expected } else { moved as f64 / measured as f64 }
    }

    fn note(&mut self, seen: &[Seen], cpu: Duration) {
        let now = Instant::now();
        let moved = seen.iter().filter(|seen| seen.before != seen.now);
        self.moved.extend(moved.clone().map(|seen| seen.page));
        let (measured, moved) = (seen.len() as u64, moved.count() as u64);
        self.counts = (self.counts.0 + measured, self.counts.1 + moved);
        self.lately.push_back((now, measured));
        while self.lately.front().is_some_and(|(at, _)| now.duration_since(*at) > LATELY_REACH) {
            self.lately.pop_front();
        }
        self.told.measured += measured;
        self.told.moved += moved;
        self.told.cpu_seconds += cpu.as_secs_f64();
        self.told.seconds = self.began.elapsed().as_secs_f64();
        self.told.lately = self.lately.iter().map(|(_, pages)| pages).sum();
        self.told.stale = self.share_moved() * self.list.len() as f64 / self.all.max(1) as f64;
    }
}

impl Drop for UpkeepRounds {
    fn drop(&mut self) {
        if let Some(upkeep) = &self.upkeep {
            upkeep.dismiss(self.id);
        }
    }
}

/// Pages near one that was moved, and the others, in the same order.
fn divide(pages: Vec<u64>, mut moved: Vec<u64>) -> (Vec<u64>, Vec<u64>) {
    moved.sort_unstable();
    pages.into_iter().partition(|&page| {
        let least = page.saturating_sub(NEAR_PAGES * PAGE_BYTES);
        let next = moved.partition_point(|&moved| moved < least);
        moved.get(next).is_some_and(|&moved| moved <= page + NEAR_PAGES * PAGE_BYTES)
    })
}

/// A page that was measured again.
pub(super) struct Seen {
    page: u64,
    before: Color,
    now: Color,
}

impl Member {
    /// Measures some pages again if it is time; whether it did.
    pub(super) fn keep(&mut self) -> Result<bool, EngineError> {
        let Some(upkeep) = self.upkeep.upkeep.clone() else { return Ok(false) };
        if self.config.storm || !self.foreign.may_look() {
            return Ok(false);
        }
        let Some(look) = upkeep.due(self.upkeep.id) else { return Ok(false) };
        let began = (thread_time(), self.agent.counts().look_cpu_ns);
        let looked = self.look_again(look)?;
        let agents = self.agent.counts().look_cpu_ns.saturating_sub(began.1);
        let cpu = thread_time().saturating_sub(began.0) + Duration::from_nanos(agents);
        // Counted by itself: as a part of the look it would make pages seem a hundred times dearer.
        upkeep.heal_if_due();
        let left = if looked.is_some() { self.upkeep.list.len() } else { usize::MAX };
        let (round, seen) = (look.round, looked.unwrap_or_default());
        let moved = seen.iter().filter(|seen| seen.before != seen.now).count();
        upkeep.looked(self.upkeep.id, Looked { round, pages: seen.len(), moved, left, cpu });
        if moved > 0 {
            self.audit_now();
        }
        self.upkeep.note(&seen, cpu);
        let told = self.upkeep.told;
        self.with_status(|status| status.upkeep = told);
        Ok(true)
    }

    /// `None` if nothing can be looked at now.
    fn look_again(&mut self, look: UpkeepLook) -> Result<Option<Vec<Seen>>, EngineError> {
        if !self.know_clear_tid()? {
            return Ok(None);
        }
        if look.bursts != self.upkeep.bursts {
            self.source.doubt();
            self.stock_anew()?;
            self.upkeep.bursts = look.bursts;
        }
        if look.round != self.upkeep.round {
            let pages = self.pages_by_color()?;
            self.upkeep.begin(look.round, pages);
        }
        let pages = self.upkeep.next(look.pages);
        let (seen, left) = self.look_in_place(pages)?;
        self.upkeep.list.extend(left);
        Ok(Some(seen))
    }

    /// Gives the stock back, as the host may have moved it as well: it was measured before.
    fn stock_anew(&mut self) -> Result<(), EngineError> {
        self.pool_filler.end_round(&mut self.agent)?;
        self.agent.empty_stock()?;
        self.refill();
        Ok(())
    }

    /// Movable pages of known colour.
    fn pages_by_color(&self) -> Result<HashMap<Color, Vec<u64>>, EngineError> {
        let nothing = ColorSet::empty(self.config.colors.universe());
        let own = self.agent.own_ranges();
        let lookup = ColorLookup {
            pagemap: &self.pagemap,
            color_of: &|frame| self.source.vouched(frame),
            colors: &nothing,
            own: &own,
            foreign: self.foreign.areas(),
            except: self.apart(),
        };
        let areas = self.root.maps(self.pid)?;
        let cut = self.config.scope.as_ref().map(|scope| scope.cut(&areas));
        let flags = self.flags()?;
        let mut pages: HashMap<Color, Vec<u64>> = HashMap::new();
        lookup.count(cut.as_deref().unwrap_or(&areas), |area, page| {
            let free =
                flags.of(area).is_some_and(|of| held_by(of, self.watches(), false).is_none());
            if let Some(color) = page.seen.color.filter(|_| free)
                && !self.pinned.holds(page.seen.page)
            {
                pages.entry(color).or_default().push(page.address());
            }
            None
        })?;
        Ok(pages)
    }

    /// Measures pages where they are; those that could be, and those that are left as the program has a
    /// userfaultfd of its own by now. It gets its way at once.
    fn look_in_place(&mut self, mut pages: Vec<u64>) -> Result<(Vec<Seen>, Vec<u64>), EngineError> {
        let absent = self.clear_tid.search((self.pid, &self.pagemap), &pages, PAGES_PER_READ)?;
        pages.retain(|page| !self.clear_tid.holds(*page) && !absent.contains(page));
        let mut by_range: HashMap<(u64, u64), Vec<u64>> = HashMap::new();
        for page in pages {
            let range = self.range_around(page);
            range.into_iter().for_each(|range| by_range.entry(range).or_default().push(page));
        }
        let (root, mut left) = (self.root.clone(), Vec::new());
        let (mut seen, mut gate) = (Vec::new(), Gate::new(&root, self.pid));
        self.agent.drop_lost()?;
        for (range, pages) in by_range {
            let found = self.look_in_range(&mut gate, range, &pages)?;
            seen.extend(found);
            if gate.is_closed() {
                left.extend(pages);
            }
        }
        if gate.is_closed() {
            self.saw_userfaultfd()?;
        }
        Ok((seen, left))
    }

    /// What is found of pages of a range; nothing when the gate closes.
    fn look_in_range(
        &mut self,
        gate: &mut Gate<'_>,
        range: (u64, u64),
        pages: &[u64],
    ) -> Result<Vec<Seen>, EngineError> {
        let (serve, bytes) = (self.watches(), self.source.reference().map_or(0, |of| of.1));
        let mut bench = InPlace::new((&mut self.agent, gate), range, serve, bytes);
        let Some(movable) = bench.movable(pages)? else { return Ok(Vec::new()) };
        let (mut candidates, mut before) = (Vec::new(), Vec::new());
        for address in movable {
            let frame = self.pagemap.entry(Vpn(address / PAGE_BYTES))?.pfn();
            let known = frame.and_then(|frame| Some((frame, self.source.known(frame)?)));
            if let Some((frame, color)) = known {
                candidates.push(Candidate { address, frame });
                before.push(color);
            }
        }
        let found = self.source.measure_again(&mut bench, &candidates);
        let (failed, refused) = (bench.failed, bench.refused);
        if refused {
            self.foreign.suspect();
        }
        if gate.is_closed() {
            return Ok(Vec::new());
        }
        let all = candidates.iter().zip(before).zip(found?);
        let seen = all.filter(|((page, _), _)| !failed.contains(&page.address));
        let seen = seen
            .filter_map(|((of, before), now)| Some(Seen { page: of.address, before, now: now? }));
        Ok(seen.collect())
    }

    /// The watched range that holds a page.
    fn range_around(&self, page: u64) -> Option<(u64, u64)> {
        let next = self.ranges.partition_point(|&(start, _)| start <= page);
        let range = self.ranges[..next].last().copied();
        range.filter(|&(_, end)| page < end)
    }
}

#[cfg(test)]
mod tests {
    use huepage_policy::{Upkeep, UpkeepSettings};

    use super::*;
    use crate::color::probe::model::{ModelBench, Replacement};
    use crate::color::probe::{Classifier, ColorClasses, ProbeParams};

    const BASE: u64 = 1 << 30;
    const COLORS: u16 = 8;

    /// A modelled machine whose host moves pages, and all that keeps what is known of them true.
    struct World {
        model: ModelBench,
        classifier: Classifier,
        references: Vec<u32>,
        known: HashMap<u64, Color>,
        policy: Upkeep,
        upkeep: UpkeepRounds,
    }

    impl World {
        fn new(pages: usize) -> World {
            let params = ProbeParams::new(COLORS, 8, 64, 512);
            let mut model = ModelBench::new(&params, Replacement::Random, BASE);
            model.populate(BASE, params.candidates, COLORS);
            let references: Vec<u32> = (0..params.candidates as u32).collect();
            let mut classes = vec![Vec::new(); usize::from(COLORS)];
            for &page in &references {
                classes[usize::from(model.color(BASE + u64::from(page) * 4096))].push(page);
            }
            let pages = model.populate(1 << 40, pages, COLORS);
            let known = pages.into_iter().map(|page| (page, Color(model.color(page)))).collect();
            World {
                classifier: Classifier::new(ColorClasses { params, classes }),
                model,
                references,
                known,
                policy: Upkeep::new(UpkeepSettings::default()),
                upkeep: UpkeepRounds::new(None, 1),
            }
        }

        /// The host moves one page in so many, reference pages as well.
        fn burst(&mut self, one_in: usize) {
            let pages: Vec<u64> = self.known.keys().copied().collect();
            let own = self.references.iter().map(|&page| BASE + u64::from(page) * 4096);
            for page in pages.into_iter().chain(own).step_by(one_in) {
                self.model.relocate(page, (self.model.color(page) + 3) % COLORS);
            }
        }

        fn wrong(&self) -> usize {
            let wrong = |(page, color): &(&u64, &Color)| self.model.color(**page) != color.0;
            self.known.iter().filter(wrong).count()
        }

        fn second(&mut self, now: Duration) {
            let limit = Duration::from_secs(60);
            if self.policy.references_due(now) {
                let model = &mut self.model;
                self.classifier.heal_among(model, &self.references, limit).expect("they hold");
            }
            let Some(look) = self.policy.due(1, now) else { return };
            if look.round != self.upkeep.round {
                let mut by_color: HashMap<Color, Vec<u64>> = HashMap::new();
                self.known.iter().for_each(|(&p, &c)| by_color.entry(c).or_default().push(p));
                self.upkeep.begin(look.round, by_color);
            }
            let pages = self.upkeep.next(look.pages);
            let colors: Vec<Color> = pages.iter().map(|page| self.known[page]).collect();
            let found = self.classifier.confirm(&mut self.model, &pages, &colors, limit);
            let found = found.expect("the model does not fail");
            let all = pages.iter().zip(&colors).zip(&found);
            let seen: Vec<Seen> = all
                .filter_map(|((&page, &before), now)| Some(Seen { page, before, now: now.color? }))
                .collect();
            seen.iter().for_each(|seen| _ = self.known.insert(seen.page, seen.now));
            let moved = seen.iter().filter(|seen| seen.before != seen.now).count();
            let cpu = Duration::from_micros(20) * pages.len() as u32;
            let (round, left) = (look.round, self.upkeep.list.len());
            self.policy.looked(1, Looked { round, pages: seen.len(), moved, left, cpu }, now);
            self.upkeep.note(&seen, cpu);
        }
    }

    #[test]
    fn a_host_that_moves_pages_is_followed() {
        let mut world = World::new(3000);
        let mut second = 0;
        let mut pass = |world: &mut World, seconds| {
            for _ in 0..seconds {
                second += 1;
                world.second(Duration::from_secs(second));
            }
        };
        pass(&mut world, 40);
        assert_eq!((world.wrong(), world.upkeep.told.moved), (0, 0));
        for one_in in [20, 10] {
            world.burst(one_in);
            assert!(world.wrong() >= 3000 / one_in - 1);
            pass(&mut world, 60);
            assert!(world.wrong() <= 3, "{} are wrong a minute later", world.wrong());
            assert!(world.upkeep.told.stale < 0.01, "{:?}", world.upkeep.told);
        }
        let moved = world.upkeep.told.moved;
        assert!((445..460).contains(&moved), "{moved} of 450 were found");
        let spent = world.upkeep.told.cpu_seconds / 160.0;
        assert!(spent <= 0.02, "{spent}");
    }

    fn upkeep(pages: u64) -> UpkeepRounds {
        let mut upkeep = UpkeepRounds::new(None, 5);
        let mut by_color: HashMap<Color, Vec<u64>> = HashMap::new();
        (0..pages).for_each(|i| by_color.entry(Color(i as u16 % 4)).or_default().push(i * 4096));
        upkeep.begin(1, by_color);
        upkeep
    }

    fn seen(pages: &[u64], moved: impl Fn(u64) -> bool) -> Vec<Seen> {
        let now = |page| if moved(page) { Color(9) } else { Color(1) };
        pages.iter().map(|&page| Seen { page, before: Color(1), now: now(page) }).collect()
    }

    #[test]
    fn a_round_has_each_page_once_and_many_of_a_colour_together() {
        let mut upkeep = upkeep(4000);
        let mut all = Vec::new();
        loop {
            let pages = upkeep.next(PAGES_TOGETHER * 4);
            if pages.is_empty() {
                break;
            }
            let mut colors: Vec<u64> = pages.iter().map(|page| page / 4096 % 4).collect();
            colors.dedup();
            assert!(colors.len() <= 6, "{colors:?}");
            all.extend(pages);
        }
        all.sort_unstable();
        assert_eq!(all, (0..4000).map(|i| i * 4096).collect::<Vec<u64>>());
    }

    #[test]
    fn what_is_near_a_page_that_was_moved_comes_first() {
        let mut upkeep = upkeep(4000);
        let moved = seen(&[1000 * 4096], |_| true);
        upkeep.note(&moved, Duration::ZERO);
        let again = (0..4000).map(|i| i * 4096).collect();
        upkeep.begin(2, HashMap::from([(Color(0), again)]));
        let mut first = upkeep.next(33);
        first.sort_unstable();
        assert_eq!(first, (984..=1016).map(|i| i * 4096).collect::<Vec<u64>>());
        assert_eq!(upkeep.list.len(), 4000 - 33);
    }

    #[test]
    fn what_was_not_looked_at_since_is_as_wrong_as_the_rest_was() {
        let mut upkeep = upkeep(4000);
        let pages = upkeep.next(1000);
        upkeep.note(&seen(&pages, |page| page / 4096 % 10 == 0), Duration::from_secs(1));
        let stale = upkeep.told.stale;
        assert!((0.05..0.1).contains(&stale), "a tenth of three quarters: {stale}");
        let pages = upkeep.next(3000);
        upkeep.note(&seen(&pages, |page| page / 4096 % 10 == 0), Duration::ZERO);
        assert_eq!((upkeep.told.stale, upkeep.told.measured), (0.0, 4000));
        assert_eq!((upkeep.told.moved, upkeep.told.cpu_seconds), (400, 1.0));
        assert_eq!(upkeep.told.lately, 4000);
    }
}
