//! How often what was measured is measured again. A host moves pages between frames that only it can
//! see: their colours change, in bursts, with nothing to show it. So pages are sampled for as long as
//! they are held, at a small share of a CPU; once pages are found moved, all that was measured before is
//! looked at anew at a larger share, and again if that finds more, until nothing moves.
//!
//! Each member of a group keeps a list of its pages in random order, and looks at all of them once in a
//! round. Time comes as the time since some moment, CPU time as what each look took.

use std::collections::BTreeMap;
use std::time::Duration;

/// Numbers of [`Upkeep`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct UpkeepSettings {
    /// Share of one CPU while nothing moves, 0 to 1, for all members together.
    pub quiet_share: f64,
    /// The same after pages were found moved.
    pub moving_share: f64,
    /// CPU time of one look: more pages together cost less for each, and hold up other work for longer.
    pub look: Duration,
    /// Pages lately measured, of which those moved are counted.
    pub lately: f64,
    /// Pages moved among these that make a burst: one alone may be an error.
    pub burst: f64,
    /// Share of the pages of a round, moved, from which on another round is made at once: some were moved
    /// after they were looked at.
    pub again: f64,
    /// By how much the share of a CPU falls with each round that finds less.
    pub falls: f64,
    /// Longest time between two looks at the reference pages.
    pub references: Duration,
    /// A member that does not ask for so long is not waited for: its program may be stopped.
    pub absent: Duration,
}

impl Default for UpkeepSettings {
    /// A fifth of a percent while nothing moves: at 20 us for a page, 100 pages a second, so that a host
    /// that moved 2 % is found out within two seconds. Two percent afterwards: 64 MiB in 16 seconds. A round
    /// that finds less ends that: what comes later is found as ever.
    fn default() -> UpkeepSettings {
        UpkeepSettings {
            quiet_share: 0.002,
            moving_share: 0.02,
            look: Duration::from_millis(4),
            lately: 400.0,
            burst: 1.5,
            again: 0.002,
            falls: 10.0,
            references: Duration::from_secs(60),
            absent: Duration::from_secs(5),
        }
    }
}

/// What a member is to look at now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UpkeepLook {
    /// The round: one that the member has not seen before begins with a new list of all its pages.
    pub round: u64,
    /// Times that pages were found moved in a burst so far: what was measured before the last is doubtful.
    pub bursts: u64,
    /// Pages to measure.
    pub pages: usize,
}

/// What a look found.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Looked {
    /// The round that it was part of.
    pub round: u64,
    /// Pages measured.
    pub pages: usize,
    /// Of these, in another colour than when they were measured before.
    pub moved: usize,
    /// Pages of the member's list that are left in this round.
    pub left: usize,
    /// CPU time that it took, the choice of pages included.
    pub cpu: Duration,
}

/// Where a member is in a round.
#[derive(Clone, Copy, Debug)]
struct Progress {
    round: u64,
    left: usize,
    asked: Duration,
}

/// Decides when how many pages are measured again. See the module's head.
#[derive(Clone, Debug)]
pub struct Upkeep {
    settings: UpkeepSettings,
    /// Share of a CPU that it may take now.
    share: f64,
    /// CPU seconds that may be spent; below 0 when too much was.
    credit: f64,
    at: Duration,
    /// CPU seconds for a page: running mean.
    cost: f64,
    round: u64,
    bursts: u64,
    members: BTreeMap<u64, Progress>,
    /// Pages measured and moved, lately.
    lately: (f64, f64),
    /// Pages measured and moved, in this round.
    counts: (usize, usize),
    /// When reference pages were looked at last; none: they are to be, at once.
    references: Option<Duration>,
}

/// CPU seconds that a page is thought to take before any was measured.
const FIRST_COST: f64 = 20e-6;
/// How fast the mean cost follows.
const FOLLOWS: f64 = 0.2;
/// Fewest pages of a look: below that most of the time goes to what comes with each.
const FEWEST: f64 = 48.0;
/// Most pages of a look.
const MOST: f64 = 2048.0;

impl Upkeep {
    /// Nothing was measured yet.
    pub fn new(settings: UpkeepSettings) -> Upkeep {
        Upkeep {
            settings,
            share: settings.quiet_share,
            credit: 0.0,
            at: Duration::ZERO,
            cost: FIRST_COST,
            round: 1,
            bursts: 0,
            members: BTreeMap::new(),
            lately: (0.0, 0.0),
            counts: (0, 0),
            references: Some(Duration::ZERO),
        }
    }

    /// What member `id` is to look at now; `None`: nothing.
    pub fn due(&mut self, id: u64, now: Duration) -> Option<UpkeepLook> {
        self.earn(now);
        let begin = Progress { round: 0, left: usize::MAX, asked: now };
        let own = self.members.entry(id).or_insert(begin);
        own.asked = now;
        if own.round != self.round {
            own.left = usize::MAX;
        }
        let waits = own.left == 0;
        if waits && !self.ends_round(now) {
            return None;
        }
        let cost = self.most();
        if self.credit < cost {
            return None;
        }
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "48 to 2048")]
        let pages = (cost / self.cost).clamp(FEWEST, MOST) as usize;
        Some(UpkeepLook { round: self.round, bursts: self.bursts, pages })
    }

    /// How long a member has nothing to look at after pages were found moved, if it has some left in this round;
    /// `None`: nothing is to be hurried. Members take turns.
    pub fn hurried(&mut self, id: u64, now: Duration) -> Option<Duration> {
        self.earn(now);
        let is_open = self.members.get(&id).is_none_or(|own| self.is_open(own));
        if !self.moves() || !is_open {
            return None;
        }
        let open = self.members.values().filter(|own| self.is_open(own)).count().max(1);
        #[expect(clippy::cast_precision_loss, reason = "members of a group")]
        let turns = (self.most() - self.credit) / self.share * open as f64;
        Some(Duration::from_secs_f64(turns.max(0.0)))
    }

    /// Whether a member has pages left in this round.
    fn is_open(&self, member: &Progress) -> bool {
        member.round != self.round || member.left > 0
    }

    /// CPU seconds of a look, for which time is kept.
    fn most(&self) -> f64 {
        (self.cost * FEWEST).max(self.settings.look.as_secs_f64())
    }

    /// CPU time that was not used is kept for one look.
    fn earn(&mut self, now: Duration) {
        let since = now.saturating_sub(self.at).as_secs_f64();
        self.credit = (self.credit + since * self.share).min(self.most());
        self.at = now;
    }

    /// Begins another round if all who ask have done this one; whether it did.
    fn ends_round(&mut self, now: Duration) -> bool {
        let absent = self.settings.absent;
        let open = |of: &Progress| self.is_open(of) && now.saturating_sub(of.asked) < absent;
        if self.members.values().any(open) {
            return false;
        }
        let (measured, moved) = self.counts;
        #[expect(clippy::cast_precision_loss, reason = "counts of pages")]
        let many = moved as f64 > measured as f64 * self.settings.again;
        if !many {
            self.share = (self.share / self.settings.falls).max(self.settings.quiet_share);
        }
        self.begin_round();
        true
    }

    fn begin_round(&mut self) {
        self.round += 1;
        self.counts = (0, 0);
    }

    /// A member has looked at pages.
    pub fn looked(&mut self, id: u64, found: Looked, now: Duration) {
        self.credit -= found.cpu.as_secs_f64();
        if let Some(own) = self.members.get_mut(&id) {
            *own = Progress { round: found.round, left: found.left, asked: now };
        }
        if found.pages == 0 {
            return;
        }
        #[expect(clippy::cast_precision_loss, reason = "counts of pages")]
        let (pages, moved) = (found.pages as f64, found.moved as f64);
        self.cost += FOLLOWS * (found.cpu.as_secs_f64() / pages - self.cost);
        if found.round != self.round {
            return;
        }
        let kept = (1.0 - pages / self.settings.lately).max(0.0);
        self.lately = (self.lately.0 * kept + pages, self.lately.1 * kept + moved);
        self.counts = (self.counts.0 + found.pages, self.counts.1 + found.moved);
        if self.lately.1 >= self.settings.burst && !self.moves() {
            self.hurry();
        }
    }

    /// All that was measured before is to be measured anew, soon.
    fn hurry(&mut self) {
        self.share = self.settings.moving_share;
        self.bursts += 1;
        self.begin_round();
        self.lately = (0.0, 0.0);
        self.references = None;
    }

    /// Whether the larger share is spent, as pages were found moved.
    pub fn moves(&self) -> bool {
        self.share >= self.settings.moving_share
    }

    /// Whether the reference pages are to be looked at now; says so once each time.
    pub fn references_due(&mut self, now: Duration) -> bool {
        let due = self.references.is_none_or(|at| now >= at + self.settings.references);
        if due {
            self.references = Some(now);
        }
        due
    }

    /// CPU time was spent on something else that belongs to it.
    pub fn spent(&mut self, cpu: Duration) {
        self.credit -= cpu.as_secs_f64();
    }

    /// A member has ended.
    pub fn leave(&mut self, id: u64) {
        self.members.remove(&id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: Duration = Duration::from_millis(5);
    /// CPU time of a page.
    const PAGE: Duration = Duration::from_micros(20);

    /// Members with pages of which a host moves some; what they do with what they are told.
    struct Model {
        upkeep: Upkeep,
        /// For each page of each member, whether it is in another colour than is known.
        stale: Vec<Vec<bool>>,
        /// Pages left in each member's round, last first.
        lists: Vec<(u64, Vec<usize>)>,
        now: Duration,
        cpu: Duration,
        found: usize,
        random: u64,
    }

    impl Model {
        fn new(pages: &[usize]) -> Model {
            Model {
                upkeep: Upkeep::new(UpkeepSettings::default()),
                stale: pages.iter().map(|&n| vec![false; n]).collect(),
                lists: vec![(0, Vec::new()); pages.len()],
                now: Duration::ZERO,
                cpu: Duration::ZERO,
                found: 0,
                random: 88_172_645_463_325_252,
            }
        }

        fn below(&mut self, n: usize) -> usize {
            self.random ^= self.random << 13;
            self.random ^= self.random >> 7;
            self.random ^= self.random << 17;
            usize::try_from(self.random >> 11).expect("53 bits") % n
        }

        fn list(&mut self, member: usize) -> Vec<usize> {
            let mut list: Vec<usize> = (0..self.stale[member].len()).collect();
            for i in (1..list.len()).rev() {
                let other = self.below(i + 1);
                list.swap(i, other);
            }
            list
        }

        fn look(&mut self, member: usize) {
            let id = member as u64;
            let Some(look) = self.upkeep.due(id, self.now) else { return };
            if self.lists[member].0 != look.round {
                self.lists[member] = (look.round, self.list(member));
            }
            let list = &mut self.lists[member].1;
            let pages = list.split_off(list.len().saturating_sub(look.pages));
            let stale = &mut self.stale[member];
            let moved = pages.iter().filter(|&&page| std::mem::take(&mut stale[page])).count();
            let (left, pages) = (list.len(), pages.len());
            let cpu = PAGE * u32::try_from(pages).expect("few");
            let looked = Looked { round: look.round, pages, moved, left, cpu };
            self.upkeep.looked(id, looked, self.now);
            self.cpu += cpu;
            self.found += moved;
        }

        /// Lets time pass; members in `silent` do not ask. The share of a CPU that was spent.
        fn pass(&mut self, time: Duration, silent: &[usize]) -> f64 {
            let (end, before) = (self.now + time, self.cpu);
            while self.now < end {
                for member in (0..self.stale.len()).filter(|m| !silent.contains(m)) {
                    self.look(member);
                }
                self.now += STEP;
            }
            (self.cpu - before).as_secs_f64() / time.as_secs_f64()
        }

        /// The host moves so many of 1,000 pages.
        fn burst(&mut self, per_mille: usize) {
            for member in 0..self.stale.len() {
                for page in 0..self.stale[member].len() {
                    self.stale[member][page] |= self.below(1000) < per_mille;
                }
            }
        }

        /// Pages in other colours than known, in 1,000.
        fn wrong(&self) -> usize {
            let all = self.stale.iter().flatten();
            all.clone().filter(|stale| **stale).count() * 1000 / all.count().max(1)
        }
    }

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn little_is_spent_while_nothing_moves() {
        let mut model = Model::new(&[65_536]);
        let share = model.pass(MINUTE * 20, &[]);
        assert!((0.0015..=0.002).contains(&share), "{share}");
        assert!(model.lists[0].0 >= 2, "all pages in 20 minutes");
    }

    #[test]
    fn a_burst_is_found_and_mended_within_a_minute_or_so() {
        for per_mille in [20, 50, 100] {
            let mut model = Model::new(&[65_536]);
            model.pass(MINUTE * 3, &[]);
            model.burst(per_mille);
            let share = model.pass(MINUTE, &[]);
            assert!(share <= 0.02, "{share}");
            assert!(model.wrong() <= per_mille / 6, "{} of {per_mille} are left", model.wrong());
            model.pass(MINUTE, &[]);
            assert_eq!(model.wrong(), 0);
            assert!(model.found >= 65_536 * per_mille * 9 / 10_000, "{}", model.found);
        }
    }

    #[test]
    fn it_calms_down_when_nothing_moves_any_more() {
        let mut model = Model::new(&[65_536]);
        model.burst(30);
        model.pass(MINUTE * 10, &[]);
        let share = model.pass(MINUTE * 10, &[]);
        assert!(share <= 0.002, "{share}");
        assert_eq!(model.wrong(), 0);
    }

    #[test]
    fn what_moves_while_a_round_is_made_is_found_by_the_next() {
        let mut model = Model::new(&[65_536]);
        model.burst(50);
        model.pass(MINUTE, &[]);
        model.burst(50);
        model.pass(MINUTE * 3, &[]);
        assert_eq!(model.wrong(), 0);
    }

    #[test]
    fn a_page_alone_makes_no_burst() {
        let mut model = Model::new(&[20_000]);
        model.pass(MINUTE, &[]);
        model.stale[0][7] = true;
        let share = model.pass(MINUTE * 10, &[]);
        assert!(share <= 0.002 && model.found == 1, "{share}, {} found", model.found);
    }

    #[test]
    fn members_share_what_may_be_spent_and_each_gets_its_turn() {
        let mut model = Model::new(&[30_000, 300, 0, 5_000]);
        let share = model.pass(MINUTE * 10, &[]);
        assert!(share <= 0.002, "{share}");
        model.burst(50);
        let share = model.pass(MINUTE * 2, &[]);
        assert!(share <= 0.02 && model.wrong() == 0, "{share}, {}", model.wrong());
    }

    #[test]
    fn who_sleeps_between_looks_is_as_soon_through_as_who_does_not() {
        let mut model = Model::new(&[65_536, 200]);
        model.pass(MINUTE * 3, &[]);
        assert_eq!(model.upkeep.hurried(0, model.now), None, "nothing moves");
        model.burst(50);
        let mut next = [model.now; 2];
        let end = model.now + MINUTE * 3;
        while model.now < end {
            for member in [0, 1] {
                if next[member] > model.now {
                    continue;
                }
                model.look(member);
                let sleep = model.upkeep.hurried(member as u64, model.now);
                next[member] = model.now + sleep.unwrap_or(Duration::from_secs(1)).max(STEP);
            }
            model.now += STEP;
        }
        assert_eq!(model.wrong(), 0);
    }

    #[test]
    fn nobody_waits_for_a_member_that_does_not_ask() {
        let mut model = Model::new(&[3_000, 3_000]);
        model.pass(MINUTE, &[1]);
        model.burst(100);
        model.pass(MINUTE * 3, &[1]);
        assert!(model.stale[0].iter().all(|stale| !stale), "the one that asks");
        assert!(model.stale[1].iter().any(|stale| *stale), "the other cannot be looked at");
        model.pass(MINUTE * 3, &[]);
        assert_eq!(model.wrong(), 0);
        model.upkeep.leave(1);
        assert!(model.pass(MINUTE, &[1]) <= 0.002);
    }

    #[test]
    fn a_look_that_took_long_is_paid_for() {
        let mut upkeep = Upkeep::new(UpkeepSettings::default());
        let at = Duration::from_secs;
        let look = upkeep.due(1, at(10)).expect("there is credit by now");
        assert!(look.pages >= 48 && look.bursts == 0);
        let looked = Looked { round: look.round, left: 9, cpu: at(1), ..Looked::default() };
        upkeep.looked(1, looked, at(10));
        assert_eq!(upkeep.due(1, at(400)), None, "a second of CPU is 500 seconds");
        assert!(upkeep.due(1, at(600)).is_some());
    }

    #[test]
    fn reference_pages_are_looked_at_every_minute_and_after_a_burst() {
        let mut upkeep = Upkeep::new(UpkeepSettings::default());
        let at = Duration::from_secs;
        let due: Vec<u64> = (0..200).filter(|&s| upkeep.references_due(at(s))).collect();
        assert_eq!(due, [60, 120, 180]);
        let look = upkeep.due(1, at(200)).expect("there is credit by now");
        let looked = Looked { round: look.round, pages: 60, moved: 2, left: 9, cpu: PAGE };
        upkeep.looked(1, looked, at(200));
        assert!(upkeep.moves() && upkeep.references_due(at(201)));
        assert!(!upkeep.references_due(at(202)));
    }
}
