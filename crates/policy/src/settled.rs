//! How often a process is looked at whose pages lie right: by what changed, not by time.
//!
//! A page comes by a fault, an area by a call that the process makes, a frame goes by a migration; the kernel
//! counts all of these. So as long as the counts of a process ([`Signs`]) are what they were before its pages were
//! last found to lie right, they do; one that has not even run needs no look at the others. [`AuditPace`] says when
//! pages are looked at, [`SignWatch`] how often the counts are, for all processes of a group together. Only a debugger that
//! writes into a process leaves no sign; what it changed is found with the next change.
//!
//! Knows no clock: times are told, as durations since any beginning.

use std::time::Duration;

use crate::pace::{Gap, GapSettings};

/// What the kernel counts for a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Signs {
    /// Nanoseconds that its threads have run.
    pub ran: u64,
    /// Page faults.
    pub faults: u64,
    /// Pages of its address space, present or not.
    pub mapped: u64,
    /// Open descriptors, where the kernel tells.
    pub descriptors: u64,
}

impl Signs {
    /// Whether no page can have come or gone between these and `later` ones.
    pub const fn same_memory(&self, later: &Signs) -> bool {
        self.faults == later.faults && self.mapped == later.mapped
    }
}

/// How audits are paced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuditSettings {
    /// Pauses while memory comes unseen, and while not; an audit takes an eighth of one CPU at most, or a twentieth.
    pub gap: GapSettings,
    /// Pauses between audits of a process that lay right, for which a few faults alone speak.
    pub quiet: GapSettings,
    /// Memory came unseen when an audit found this part of the pages outside. A few stragglers can wait; more than
    /// that tell of memory of which there will be more.
    pub unseen_part: u64,
    /// Audits in a row with the longest pause that want nothing moved before a process is left alone: some five
    /// seconds after its last new memory. What programs do early they are seen doing soon.
    pub calm_audits: u32,
}

impl Default for AuditSettings {
    fn default() -> AuditSettings {
        let (gap, quiet) = (GapSettings::AUDITS, GapSettings::QUIET_AUDITS);
        AuditSettings { gap, quiet, unseen_part: 200, calm_audits: 4 }
    }
}

/// What an audit found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Audited {
    /// Pages that are to move, whether they could be tried or not.
    pub wanted: usize,
    /// Of these, pages that were tried.
    pub tried: usize,
    /// Pages that could be moved, wherever they lie.
    pub movable: u64,
    /// CPU time that it took, without moving: where CPUs are short it is not made to wait for having waited.
    pub looking: Duration,
}

/// When the pages of a process are looked at.
#[derive(Clone, Copy, Debug)]
pub struct AuditPace {
    settings: AuditSettings,
    gap: Gap,
    quiet: Gap,
    /// For how long a few faults wait.
    patience: Duration,
    /// When the last audit ended, and the pause that it has earned.
    at: Duration,
    earned: Duration,
    /// Audits in a row with the longest pause that wanted nothing moved.
    calm: u32,
    movable: u64,
}

impl AuditPace {
    /// The first audit is due after the shortest pause.
    pub const fn new(settings: AuditSettings, now: Duration) -> AuditPace {
        AuditPace {
            settings,
            gap: Gap::new(settings.gap),
            quiet: Gap::new(settings.quiet),
            patience: settings.quiet.shortest,
            at: now,
            earned: Duration::ZERO,
            calm: 0,
            movable: 0,
        }
    }

    /// Something is to be found soon.
    pub const fn soon(&mut self) {
        self.gap.reset();
        self.calm = 0;
    }

    /// Whether an audit is due of a process that is looked after all the time.
    pub fn is_due(&self, now: Duration) -> bool {
        now.saturating_sub(self.at) >= self.gap.now().max(self.earned)
    }

    /// Whether the process needs no audit before something changes.
    pub const fn is_calm(&self) -> bool {
        self.calm >= self.settings.calm_audits
    }

    /// Whether the last audit came after the longest pause and found nothing to move: what may be done once a process
    /// has stopped growing need wait no longer.
    pub const fn is_still(&self) -> bool {
        self.calm > 0
    }

    /// The longest pause between audits of a process that is looked after all the time.
    pub const fn longest(&self) -> Duration {
        self.settings.gap.longest
    }

    /// An audit has ended; whether memory came unseen.
    pub fn audited(&mut self, found: Audited, now: Duration) -> bool {
        let unseen = found.tried as u64 > found.movable / self.settings.unseen_part;
        let was_calm = self.is_calm();
        self.earned = self.gap.after(found.looking, unseen);
        let right = found.wanted == 0 && self.gap.is_longest();
        self.calm = if right { self.calm.saturating_add(1) } else { 0 };
        self.patience = self.quiet.after(found.looking, !(self.is_calm() && was_calm));
        (self.at, self.movable) = (now, found.movable);
        unseen
    }

    /// Whether a process that lay right, with these signs before the last audit, is to be looked after again as it
    /// has others now. A few faults may be of pages that were there; they wait.
    pub fn wakes(&self, before: &Signs, now_signs: &Signs, now: Duration) -> bool {
        if before.mapped != now_signs.mapped || before.descriptors != now_signs.descriptors {
            return true;
        }
        let faults = now_signs.faults.abs_diff(before.faults);
        let many = faults > self.movable / self.settings.unseen_part;
        let since = now.saturating_sub(self.at);
        faults > 0 && (many || since >= self.patience) && since >= self.earned
    }
}

/// How the signs of all processes of a group are watched.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SignWatchSettings {
    /// Share of one CPU for that, 0 to 1.
    pub share: f64,
    /// The same for audits as frames were migrated somewhere on the machine.
    pub migration_share: f64,
    /// CPU time of one round: who is left has a turn in the next.
    pub round: Duration,
    /// CPU time at most of what comes with each round that counts: more was for something else.
    pub turn: Duration,
    /// Time between two rounds, at least.
    pub shortest: Duration,
    /// Time between two looks whether frames were migrated.
    pub migrations: Duration,
}

impl Default for SignWatchSettings {
    /// Together less than half of the 0.1 % of one CPU that a group may cost which lies right: a process alone is
    /// looked at some ten times a second, a hundred that sleep some three times a second.
    fn default() -> SignWatchSettings {
        SignWatchSettings {
            share: 0.0003,
            migration_share: 0.0001,
            round: Duration::from_micros(400),
            turn: Duration::from_millis(1),
            shortest: Duration::from_millis(20),
            migrations: Duration::from_secs(2),
        }
    }
}

/// When signs are looked at.
#[derive(Clone, Copy, Debug)]
pub struct SignWatch {
    settings: SignWatchSettings,
    next: Duration,
    /// When it is looked for migrations, and when an audit for one may be made.
    next_migrations: Duration,
    next_audit: Duration,
}

impl SignWatch {
    /// The first round is due at once.
    pub const fn new(settings: SignWatchSettings) -> SignWatch {
        let start = Duration::ZERO;
        SignWatch { settings, next: start, next_migrations: start, next_audit: start }
    }

    /// How long until the next round.
    pub const fn wait(&self, now: Duration) -> Duration {
        self.next.saturating_sub(now)
    }

    /// Whether a round that has taken so much CPU time goes on.
    pub fn goes_on(&self, spent: Duration) -> bool {
        spent < self.settings.round
    }

    /// A round has ended that took so much CPU time, and so much what came with it.
    pub fn looked(&mut self, now: Duration, round: Duration, turn: Duration) {
        let pause = self.pause(round + turn.min(self.settings.turn));
        self.next = now + pause.max(self.settings.shortest);
    }

    /// How long to wait after something that took so much CPU time.
    pub fn pause(&self, spent: Duration) -> Duration {
        pause(spent, self.settings.share)
    }

    /// Whether it is time to look for migrations; says so once each time.
    pub fn migrations_due(&mut self, now: Duration) -> bool {
        let due = now >= self.next_migrations;
        if due {
            self.next_migrations = now + self.settings.migrations;
        }
        due
    }

    /// Whether a process may be audited for a migration, which takes so much CPU time; says so once each time.
    pub fn audit_due(&mut self, now: Duration, cost: Duration) -> bool {
        let due = now >= self.next_audit;
        if due {
            self.next_audit = now + pause(cost, self.settings.migration_share);
        }
        due
    }
}

/// How often it is looked who of all processes belongs to a group.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ProcessSearchSettings {
    /// Share of one CPU for looks at those that have run since the last one, 0 to 1, when any process has begun on the
    /// machine, and when none has.
    pub shares: [f64; 2],
    /// The same for looks at all: others may have put them elsewhere.
    pub share_of_all: f64,
    /// Time between two looks at all, at most.
    pub longest: Duration,
}

impl Default for ProcessSearchSettings {
    fn default() -> ProcessSearchSettings {
        let longest = Duration::from_secs(60);
        ProcessSearchSettings { shares: [0.0002, 0.0001], share_of_all: 0.0001, longest }
    }
}

/// When that is.
#[derive(Clone, Copy, Debug)]
pub struct ProcessSearch {
    settings: ProcessSearchSettings,
    /// When the last look ended, what it took, and when all are looked at again.
    at: Option<Duration>,
    took: Duration,
    all: Duration,
}

impl ProcessSearch {
    /// The first look is due at once, and is one at all.
    pub const fn new(settings: ProcessSearchSettings) -> ProcessSearch {
        ProcessSearch { settings, at: None, took: Duration::ZERO, all: Duration::ZERO }
    }

    /// How long until the next look, of which there is one in so much time at most; `begun`: a process has begun.
    pub fn wait(&self, now: Duration, shortest: Duration, begun: bool) -> Duration {
        let Some(at) = self.at else { return Duration::ZERO };
        let earned = pause(self.took, self.settings.shares[usize::from(!begun)]);
        (at + earned.max(shortest)).min(self.all).saturating_sub(now)
    }

    /// Whether the look that is due now is one at all processes.
    pub fn is_at_all(&self, now: Duration) -> bool {
        now >= self.all
    }

    /// The next look is due at once, and at all.
    pub const fn again(&mut self) {
        (self.at, self.all) = (None, Duration::ZERO);
    }

    /// A look has ended that took so much CPU time.
    pub fn looked(&mut self, now: Duration, spent: Duration) {
        if self.is_at_all(now) {
            let earned = pause(spent, self.settings.share_of_all);
            self.all = now + earned.min(self.settings.longest);
        } else {
            self.took = spent;
        }
        self.at = Some(now);
    }
}

/// In how much time this is a share of one CPU.
fn pause(spent: Duration, share: f64) -> Duration {
    Duration::try_from_secs_f64(spent.as_secs_f64() / share).unwrap_or(Duration::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const NOTHING: Audited = Audited { wanted: 0, tried: 0, movable: 16_384, looking: MS };

    /// Audits that find nothing until the process is calm; when that is.
    fn calm(pace: &mut AuditPace) -> Duration {
        let mut now = Duration::ZERO;
        while !pace.is_calm() {
            now += MS;
            if pace.is_due(now) {
                pace.audited(NOTHING, now);
            }
            assert!(now < 10_000 * MS, "it never calms down");
        }
        now
    }

    fn pace() -> AuditPace {
        AuditPace::new(AuditSettings::default(), Duration::ZERO)
    }

    #[test]
    fn a_process_calms_down_when_nothing_is_to_be_moved() {
        let mut pace = pace();
        let now = calm(&mut pace);
        assert!(now > 4000 * MS && now < 6000 * MS, "{now:?}");
        pace.audited(Audited { wanted: 3, ..NOTHING }, now);
        assert!(!pace.is_calm(), "what could not be tried is tried again");
        (0..4).for_each(|_| _ = pace.audited(NOTHING, now));
        assert!(pace.is_calm());
        assert!(pace.audited(Audited { wanted: 100, tried: 100, ..NOTHING }, now), "unseen");
        assert!(!pace.is_calm() && !pace.is_due(now + 7 * MS) && pace.is_due(now + 20 * MS));
        calm(&mut pace);
        pace.soon();
        assert!(!pace.is_calm());
    }

    #[test]
    fn audits_take_an_eighth_of_a_cpu_or_a_twentieth() {
        let mut pace = pace();
        let looking = 100 * MS;
        for (tried, share) in [(1000, 8), (1, 20), (0, 20)] {
            pace.audited(Audited { wanted: tried, tried, looking, ..NOTHING }, MS);
            let due = (0..).find(|&ms| pace.is_due(MS + ms * MS)).unwrap_or(0);
            assert_eq!(due, 100 * share, "{tried} pages");
        }
    }

    #[test]
    fn what_changed_wakes_and_few_faults_wait() {
        let mut pace = pace();
        let now = calm(&mut pace);
        let before = Signs { ran: 9, faults: 50, mapped: 700, descriptors: 4 };
        let wakes =
            |pace: &AuditPace, signs: Signs, later| pace.wakes(&before, &signs, now + later);
        assert!(!wakes(&pace, Signs { ran: 1_000_000, ..before }, 3_600_000 * MS));
        assert!(wakes(&pace, Signs { mapped: 701, ..before }, MS));
        assert!(wakes(&pace, Signs { descriptors: 5, ..before }, MS));
        let few = Signs { faults: 51, ..before };
        assert!(!wakes(&pace, few, 900 * MS) && wakes(&pace, few, 1000 * MS));
        // The more often they were of nothing, the longer they wait.
        (0..10).for_each(|_| _ = pace.audited(NOTHING, now));
        assert!(!wakes(&pace, few, 15_900 * MS) && wakes(&pace, few, 16_000 * MS));
        assert!(wakes(&pace, Signs { faults: 1000, ..before }, 1000 * MS), "many do not");
        pace.audited(Audited { wanted: 1, tried: 1, ..NOTHING }, now);
        (0..4).for_each(|_| _ = pace.audited(NOTHING, now));
        assert!(wakes(&pace, few, 1000 * MS), "of something again");
    }

    /// The share of one CPU that rounds of so much CPU time take, and how many there are in a second.
    fn rounds(each: Duration) -> (f64, f64) {
        let turn = Duration::from_micros(15);
        let mut watch = SignWatch::new(SignWatchSettings::default());
        let (mut spent, mut count) = (Duration::ZERO, 0.0);
        for ms in 0..100_000 {
            if watch.wait(ms * MS) == Duration::ZERO {
                watch.looked(ms * MS, each, turn);
                spent += each + turn;
                count += 1.0;
            }
        }
        (spent.as_secs_f64() / 100.0, count / 100.0)
    }

    #[test]
    fn rounds_take_a_share_of_a_cpu_however_many_are_watched() {
        for micros in [1, 10, 60, 1000, 20_000] {
            let (share, _) = rounds(Duration::from_micros(micros));
            assert!(share <= 0.000_31 + 0.02 / 100.0, "{micros} us a round: {share}");
        }
        assert!(rounds(Duration::from_micros(4)).1 > 15.0);
        assert!(rounds(Duration::from_micros(60)).1 > 3.0);
        let watch = SignWatch::new(SignWatchSettings::default());
        assert!(watch.goes_on(100 * MS / 1000) && !watch.goes_on(MS));
    }

    #[test]
    fn who_belongs_to_a_group_is_looked_for_at_a_share_of_a_cpu() {
        let (mut search, half) = (ProcessSearch::new(ProcessSearchSettings::default()), 500 * MS);
        assert!(search.wait(MS, half, false) == Duration::ZERO && search.is_at_all(MS));
        search.looked(MS, 10 * MS);
        assert_eq!(search.wait(MS, half, false), half);
        search.looked(501 * MS, MS);
        assert_eq!(search.wait(501 * MS, half, true).as_millis(), 5000);
        assert_eq!(search.wait(501 * MS, half, false).as_millis(), 10_000);
        // All of them again after a minute, however little is to be done else.
        search.looked(60_000 * MS, Duration::from_secs(1));
        assert_eq!(search.wait(60_000 * MS, half, true), MS);
        assert!(!search.is_at_all(60_000 * MS) && search.is_at_all(60_001 * MS));
        search.again();
        assert_eq!(search.wait(60_000 * MS, half, false), Duration::ZERO);
    }

    #[test]
    fn audits_for_migrations_have_a_share_of_their_own() {
        let mut watch = SignWatch::new(SignWatchSettings::default());
        let due: Vec<u32> = (0..60_000).filter(|&ms| watch.audit_due(ms * MS, 2 * MS)).collect();
        assert_eq!(due, [0, 20_000, 40_000]);
        let looks = (0..60_000).filter(|&ms| watch.migrations_due(ms * MS)).count();
        assert_eq!(looks, 30);
    }
}
