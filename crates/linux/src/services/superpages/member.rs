//! One process whose superpages are looked after: what is known of its memory, the policy that
//! decides for it, and what was built. Says what is to be built; when is decided by the manager.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::{Duration, Instant};

use huepage_color::Vpn;
use huepage_policy::combined::Costs;
use huepage_policy::registry::Settings;
use huepage_policy::superpage::{Idle, MemoryBound};
use huepage_policy::{Action, Construction, Event, MoveRefusal, Policy};

use super::confined::Confined;
use super::live_policy::{LivePolicy, PACING, TouchedPages, needs_misses};
use super::report::Report;
use super::spare::{Spares, Took};
use crate::kernel::process_memory::{
    NotBuilt, ProcessMemory, SUPERPAGE_BYTES, SUPERPAGE_ORDER, SUPERPAGE_PAGES, thread_time,
};
use crate::kernel::procfs::{ProcError, ProcRoot, ScanQuery};
use crate::kernel::trace_points;
use crate::sensors::superpage_map::{BlockResidency, SuperpageMap, holes};
use crate::sensors::tlb::replay::ReplayedLook;
use crate::sensors::tlb::sensor::MissSensor;
use crate::sensors::tlb::turnover::misses;
use crate::sensors::tlb::{SensorError, TlbShape};
use fastrand::Rng;

/// Shortest sleep while a process is let run.
const SHORTEST_SLEEP: Duration = Duration::from_micros(200);
/// A superpage that was built here.
#[derive(Clone, Copy, Debug)]
struct Built {
    filled: u64,
    /// Misses a second before.
    rate: f64,
    at: Instant,
}

/// See the module's head.
pub(super) struct Member {
    pub pid: i32,
    start: u64,
    process: ProcessMemory,
    live_policy: LivePolicy,
    sensor: Option<Box<dyn MissSensor>>,
    map: SuperpageMap,
    census: Option<Census>,
    listens: bool,
    built: BTreeMap<u64, Built>,
    /// In a partition.
    confined: Option<Confined>,
    idle: Idle,
    /// Superpages marked as not touched, when that was, and the last that had its turn.
    marked: Vec<u64>,
    marked_at: f64,
    turn: u64,
    rates: HashMap<u64, f64>,
    queue: VecDeque<u64>,
    /// Pages that were told to a policy that goes by first touches.
    touched: Option<TouchedPages>,
    cpu_seconds: f64,
    looked_at: f64,
    /// When the next superpage may be built.
    rests_until: Instant,
    actions: Vec<Action>,
}

#[derive(Clone, Copy, Debug)]
struct Census {
    at: Instant,
    cost: Duration,
    resident: u64,
}

/// What superpages may cost in memory.
pub(super) struct Bounds<'a> {
    /// Pages that may be added for each that is resident.
    pub overhead: f64,
    pub shape: &'a TlbShape,
    /// Nanoseconds of a superpage.
    pub price: u64,
}

impl Member {
    /// Takes a process as it is.
    pub fn admit(
        root: &ProcRoot,
        pid: i32,
        policy: Settings,
        shape: &TlbShape,
        sensor: Option<Box<dyn MissSensor>>,
    ) -> Result<Member, ProcError> {
        let process = ProcessMemory::open(pid).map_err(|_| ProcError::NoProcess(pid))?;
        let stat = root.stat(pid)?;
        Ok(Member {
            pid,
            start: stat.start_time,
            process,
            live_policy: LivePolicy::new(&policy, shape),
            sensor,
            map: SuperpageMap::default(),
            census: None,
            listens: needs_misses(&policy),
            built: BTreeMap::new(),
            confined: None,
            idle: Idle::default(),
            marked: Vec::new(),
            marked_at: 0.0,
            turn: 0,
            rates: HashMap::new(),
            queue: VecDeque::new(),
            touched: TouchedPages::wanted_by(&policy),
            cpu_seconds: 0.0,
            looked_at: 0.0,
            rests_until: Instant::now(),
            actions: Vec::new(),
        })
    }

    /// Superpages are built as a partition allows from now on.
    pub fn confine(&mut self, confined: Option<Confined>) {
        self.confined = confined;
    }

    /// Its partition has other colours, in which superpages cost so much.
    pub fn reprice_partition(&mut self, costs: Costs) {
        self.confined.iter_mut().for_each(|confined| confined.reprice(costs));
    }

    /// Looks how much CPU time the process has used; `false` once it has ended.
    pub fn is_alive(&mut self, root: &ProcRoot) -> bool {
        let Ok(stat) = root.stat(self.pid) else { return false };
        self.cpu_seconds = self.process.cpu_time().as_secs_f64();
        stat.start_time == self.start && !matches!(stat.state, 'Z' | 'X')
    }

    /// Whether it did anything since the last look: who does nothing misses nothing.
    pub fn has_worked(&self) -> bool {
        self.cpu_seconds > self.looked_at
    }

    /// How long until something is to be built; `None` if nothing is.
    pub fn builds_in(&self, now: Instant) -> Option<Duration> {
        (!self.queue.is_empty()).then(|| self.rests_until.saturating_duration_since(now))
    }

    /// Looks at what is resident where that is due.
    pub fn survey(
        &mut self,
        root: &ProcRoot,
        bounds: &Bounds,
        report: &mut Report,
    ) -> Result<(), SensorError> {
        let resident = root.statm(self.pid)?.resident;
        if !self.is_due(resident) {
            return Ok(());
        }
        let began = thread_time();
        self.map = match &mut self.sensor {
            Some(sensor) => sensor.survey(root, self.pid)?,
            None => SuperpageMap::from_proc(root, self.pid)?,
        };
        if let Some(confined) = &self.confined {
            confined.trim(&mut self.map);
        }
        self.census = Some(Census {
            at: Instant::now(),
            cost: thread_time().saturating_sub(began),
            resident,
        });
        self.mend(root, bounds, report);
        if self.touched.is_some() {
            self.tell_touched();
            self.carry_out(bounds, report);
        }
        Ok(())
    }

    fn is_due(&self, resident: u64) -> bool {
        let Some(last) = self.census else { return true };
        PACING.survey_is_due(last.at.elapsed(), last.cost, [last.resident, resident])
    }

    /// Superpages that the program has broken are given back what the kernel keeps of them, and if
    /// those that are left take too much memory, the emptiest are broken.
    fn mend(&mut self, root: &ProcRoot, bounds: &Bounds, report: &mut Report) {
        let blocks = &self.map.blocks;
        let whole = |at: &u64| blocks.get(at).is_some_and(|block| block.huge);
        let gone: Vec<u64> = self.built.keys().copied().filter(|at| !whole(at)).collect();
        for at in gone {
            self.split(root, at);
            self.forget(at, report);
        }
        let built = self.built.iter().map(|(&at, b)| (b.filled, at)).collect();
        for at in self.bound(bounds).excess(built, PACING.slack) {
            self.give_up(root, at, report);
        }
    }

    /// Breaks a superpage; whether it was one.
    fn give_up(&mut self, root: &ProcRoot, at: u64, report: &mut Report) -> bool {
        let split = self.split(root, at);
        if split {
            report.demoted += 1;
            self.forget(at, report);
        }
        split
    }

    /// Looks which of some superpages were touched since the last time, and breaks those that have
    /// not been for long, where that gives memory back or, in a partition, colours: an idle
    /// superpage without holes costs nobody anything.
    fn retire(&mut self, root: &ProcRoot, report: &mut Report) -> Result<(), SensorError> {
        let Some(sensor) = &mut self.sensor else { return Ok(()) };
        if self.built.is_empty() || self.cpu_seconds - self.marked_at < PACING.use_interval {
            return Ok(());
        }
        let marked = std::mem::take(&mut self.marked);
        let Some(touched) = sensor.touched(&marked)? else { return Ok(()) };
        let confined = self.confined.is_some();
        let gains = |at: &u64| self.built.get(at).is_some_and(|built| confined || built.filled > 0);
        let told = touched.into_iter().filter(|(at, _)| gains(at));
        for page in self.idle.look(told.map(|(at, touched)| (Vpn(at * SUPERPAGE_PAGES), touched))) {
            if self.give_up(root, page.0 / SUPERPAGE_PAGES, report) {
                report.idle += 1;
            }
        }
        self.mark();
        Ok(())
    }

    /// Marks the next superpages as not touched, all of them once before any comes again.
    fn mark(&mut self) {
        let after = self.built.range(self.turn..).map(|(&at, _)| at);
        let all: Vec<u64> = after.chain(self.built.range(..self.turn).map(|(&at, _)| at)).collect();
        self.marked = all.into_iter().take(PACING.blocks_per_use).collect();
        self.turn = self.marked.last().map_or(0, |&at| at + 1);
        let ranges: Vec<_> =
            self.marked.iter().map(|at| at * SUPERPAGE_BYTES..(at + 1) * SUPERPAGE_BYTES).collect();
        self.marked.truncate(self.process.forget(&ranges));
        self.marked_at = self.cpu_seconds;
    }

    /// A superpage is none any more.
    fn forget(&mut self, at: u64, report: &mut Report) {
        let Some(built) = self.built.remove(&at) else { return };
        report.filled_pages = report.filled_pages.saturating_sub(built.filled);
        report.saved_misses += built.rate * built.at.elapsed().as_secs_f64();
        report.saved_misses_per_second -= built.rate;
        self.touched.iter_mut().for_each(|touched| touched.forget(at));
        self.idle.forget(Vpn(at * SUPERPAGE_PAGES));
        if let Some(confined) = &mut self.confined {
            confined.broken(at, self.cpu_seconds);
        }
        let event = Event::Demoted {
            page: Vpn(at * SUPERPAGE_PAGES),
            order: SUPERPAGE_ORDER,
            interfering: false,
        };
        self.live_policy.handle(event, &mut self.actions);
    }

    /// Breaks what is left of a superpage, by a page of it that is there.
    fn split(&self, root: &ProcRoot, at: u64) -> bool {
        let first = || {
            let mut regions = Vec::new();
            let bytes = at * SUPERPAGE_BYTES..(at + 1) * SUPERPAGE_BYTES;
            root.pagemap(self.pid).ok()?.scan(bytes, &ScanQuery::present(), &mut regions).ok()?;
            regions.first().map(|region| region.start)
        };
        first().is_some_and(|address| self.process.split(address).is_ok())
    }

    fn filled(&self) -> u64 {
        self.built.values().map(|built| built.filled).sum()
    }

    /// Pages that superpages may add to what the program has resident itself.
    fn bound(&self, bounds: &Bounds) -> MemoryBound {
        let resident = self.census.map_or(0, |census| census.resident);
        MemoryBound { resident, filled: self.filled(), overhead: bounds.overhead }
    }

    /// Tells a policy that goes by touched pages of those that are new.
    fn tell_touched(&mut self) {
        for page in self.touched.iter_mut().flat_map(|touched| touched.new_in(&self.map)) {
            let event = Event::Faulted { page, color: None };
            self.live_policy.handle(event, &mut self.actions);
        }
    }

    /// Looks at what is touched, if that is of interest, and tells the policy; whether it looked.
    pub fn look(
        &mut self,
        root: &ProcRoot,
        random: &mut Rng,
        bounds: &Bounds,
        report: &mut Report,
    ) -> Result<bool, SensorError> {
        self.retire(root, report)?;
        self.progress(bounds, report);
        let Some(sensor) = self.sensor.as_mut().filter(|_| self.listens) else { return Ok(false) };
        let look = sensor.look(&self.map, &self.process, self.cpu_seconds, random)?;
        self.looked_at = self.cpu_seconds;
        let pages: u64 = look.sampled.iter().map(|one| u64::from(one.pages)).sum();
        report.looks += 1;
        report.sampled_pages += pages;
        let mut found = misses(bounds.shape, &self.map, &look, random);
        if let Some(confined) = &mut self.confined {
            confined.note_look(&look, &found.rates, self.cpu_seconds);
        }
        look.sampled.iter().for_each(|one| _ = self.rates.remove(&one.block));
        self.rates.extend(found.rates.iter().copied());
        found.misses.extend(look.misses);
        self.tell(&found, bounds, report);
        Ok(true)
    }

    fn tell(&mut self, found: &ReplayedLook, bounds: &Bounds, report: &mut Report) {
        self.live_policy.reprice(bounds.shape, bounds.price);
        self.live_policy.handle(Event::TlbFlushed, &mut self.actions);
        for miss in &found.misses {
            let victim = miss.victim.map(|page| (page, 0));
            let event = Event::TlbMiss { page: miss.page, order: 0, victim };
            self.live_policy.handle(event, &mut self.actions);
            if !self.actions.is_empty() {
                self.carry_out(bounds, report);
            }
        }
    }

    fn progress(&mut self, bounds: &Bounds, report: &mut Report) {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "nanoseconds")]
        let time = (self.cpu_seconds * 1e9) as u64;
        let event = Event::Progress { cycles: time, instructions: time };
        self.live_policy.handle(event, &mut self.actions);
        self.carry_out(bounds, report);
    }

    /// Answers what the policy asks, and notes what it wants built.
    fn carry_out(&mut self, bounds: &Bounds, report: &mut Report) {
        while let Some(action) = self.actions.pop() {
            match action {
                Action::Quote { page, order } => {
                    let construction = self.quote(page, bounds, report);
                    let event = Event::Quoted { page, order, construction };
                    self.live_policy.handle(event, &mut self.actions);
                }
                Action::Promote { page, order: SUPERPAGE_ORDER } => {
                    self.queue.push_back(page.0 / SUPERPAGE_PAGES);
                }
                Action::Promote { page, order } => {
                    let event = Event::NotPromoted { page, order, why: MoveRefusal::Other };
                    self.live_policy.handle(event, &mut self.actions);
                }
                Action::TellTlbMisses(on) => self.listens = on,
                _ => {}
            }
        }
    }

    fn quote(&self, page: Vpn, bounds: &Bounds, report: &mut Report) -> Construction {
        match self.may_build(page.0 / SUPERPAGE_PAGES, bounds) {
            Ok(block) => Construction::Copy { pages: u64::from(block.resident) },
            Err(why) => {
                report.refuse(why);
                Construction::Impossible(MoveRefusal::Other)
            }
        }
    }

    /// What is there now, if a superpage may take its place.
    fn may_build(&self, at: u64, bounds: &Bounds) -> Result<BlockResidency, NotBuilt> {
        let block = self.map.blocks.get(&at).copied().ok_or(NotBuilt::Gone)?;
        if !self.bound(bounds).allows(holes(block)) {
            return Err(NotBuilt::Sparse);
        }
        if let Some(confined) = &self.confined {
            let resident = self.census.map_or(u64::MAX, |census| census.resident);
            confined.ask(at, resident, self.cpu_seconds)?;
        }
        Ok(block)
    }

    /// Builds the next superpage that is wanted, and lets the process run for a while. How long, by the clock, the
    /// process may have waited for it; none if none was built.
    pub fn build(
        &mut self,
        bounds: &Bounds,
        spares: &mut Spares,
        report: &mut Report,
    ) -> Option<Duration> {
        let at = self.queue.pop_front()?;
        let (ran, rest) = (self.process.cpu_time(), self.rest(at, bounds));
        let (took, wait) = self.build_one(at, bounds, spares, report);
        trace_points::built(self.pid, at * SUPERPAGE_BYTES, wait);
        let began = thread_time();
        // What builds in a partition is a thread of the process.
        let ran = if self.confined.is_some() { ran + took } else { ran };
        self.let_run(took, ran);
        self.rests_until = Instant::now() + took.mul_f64(rest - 1.0);
        report.construction_cpu_seconds += thread_time().saturating_sub(began).as_secs_f64();
        wait
    }

    /// How long the process should run after it had to wait for a superpage, as a multiple of that.
    fn rest(&self, at: u64, bounds: &Bounds) -> f64 {
        // Who tells of single misses, or of none, tells of no rates.
        let rate = (!self.rates.is_empty()).then(|| self.rates.get(&at).copied().unwrap_or(0.0));
        PACING.rest(bounds.price, rate.map(|rate| rate * bounds.shape.walk_ns as f64))
    }

    /// Waits until the process has had the CPU for as long as it had to wait for a superpage, since
    /// its CPU time was `ran`: whoever has waited should not meet the next one before it has done
    /// anything.
    fn let_run(&self, waited: Duration, ran: Duration) {
        let start = Instant::now();
        let left = || waited.saturating_sub(self.process.cpu_time().saturating_sub(ran));
        while !left().is_zero() && start.elapsed() < waited * PACING.longest_rest {
            std::thread::sleep(left().max(SHORTEST_SLEEP));
        }
    }

    /// Builds one; the time in which the process may have had to wait, and that of the call that built it.
    fn build_one(
        &mut self,
        at: u64,
        bounds: &Bounds,
        spares: &mut Spares,
        report: &mut Report,
    ) -> (Duration, Option<Duration>) {
        let (page, start) = (Vpn(at * SUPERPAGE_PAGES), Instant::now());
        // Much may have been built since it was wanted.
        let (done, took) = self.have_built(at, bounds, spares);
        let wait = done.as_ref().is_ok_and(|block| !block.huge).then_some(took.wait);
        let event = match done {
            Ok(block) => {
                self.note_built(at, block, report);
                // Somebody else may have built it.
                if !block.huge {
                    report.built(took);
                    let agents = if self.confined.is_some() { took.all } else { Duration::ZERO };
                    report.agent_cpu_seconds += agents.as_secs_f64();
                }
                Event::Promoted { page, order: SUPERPAGE_ORDER }
            }
            Err(why) => {
                report.refuse(why);
                report.construction_cpu_seconds += took.all.as_secs_f64();
                Event::NotPromoted { page, order: SUPERPAGE_ORDER, why: MoveRefusal::Other }
            }
        };
        self.live_policy.handle(event, &mut self.actions);
        self.carry_out(bounds, report);
        if self.confined.is_some() {
            return (took.stall, wait);
        }
        (start.elapsed().saturating_sub(took.all - took.stall), wait)
    }

    /// Has it built by whoever can, if it still may be; what it was before.
    fn have_built(
        &self,
        at: u64,
        bounds: &Bounds,
        spares: &mut Spares,
    ) -> (Result<BlockResidency, NotBuilt>, Took) {
        match self.may_build(at, bounds) {
            Ok(block) if !block.huge => {
                let (done, took) = match &self.confined {
                    Some(confined) => confined.build(at, block),
                    None => spares.build(|| self.process.build(at)),
                };
                (done.map(|()| block), took)
            }
            known => (known, Took::default()),
        }
    }

    fn note_built(&mut self, at: u64, block: BlockResidency, report: &mut Report) {
        let (filled, rate) = (holes(block), self.rates.get(&at).copied().unwrap_or(0.0));
        self.built.insert(at, Built { filled, rate, at: Instant::now() });
        if let Some(known) = self.map.blocks.get_mut(&at) {
            *known = BlockResidency { resident: 512, zero: 0, huge: true };
        }
        report.promoted += 1;
        report.filled_pages += filled;
        report.saved_misses_per_second += rate;
    }

    /// Misses saved by superpages that still are, since they were built.
    pub fn saved(&self) -> f64 {
        self.built.values().map(|built| built.rate * built.at.elapsed().as_secs_f64()).sum()
    }
}

/// Leaves all others alone from now on; what was saved until then stays known.
pub(super) fn keep(
    members: &mut Vec<Member>,
    report: &mut Report,
    mut wanted: impl FnMut(&mut Member) -> bool,
) {
    let gone = members.extract_if(.., |member| !wanted(member));
    report.saved_misses += gone.map(|member| member.saved()).sum::<f64>();
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

    use super::*;
    use crate::services::superpages::usual_policy;

    const SHAPE: TlbShape = TlbShape { entries: 1536, known: true, walk_ns: 30 };

    fn bounds(overhead: f64) -> Bounds<'static> {
        Bounds { overhead, shape: &SHAPE, price: 1_000_000 }
    }

    /// Memory of this process, of whose blocks every second page is in use.
    struct Half {
        base: u64,
        bytes: usize,
    }

    impl Half {
        fn new(blocks: usize) -> Half {
            let bytes = (blocks + 1) * SUPERPAGE_BYTES as usize;
            let prot = ProtFlags::READ | ProtFlags::WRITE;
            // SAFETY: a new mapping at an address of the kernel's choice.
            let base =
                unsafe { mmap_anonymous(std::ptr::null_mut(), bytes, prot, MapFlags::PRIVATE) };
            let half = Half { base: base.unwrap() as u64, bytes };
            // Other tests of this process fork meanwhile, and the kernel builds and breaks none of shared pages.
            half.advise(Advice::LinuxDontFork);
            // Where the kernel builds superpages of its own accord, it may not in these moments.
            let file = "/sys/kernel/mm/transparent_hugepage/enabled";
            let always = std::fs::read_to_string(file).is_ok_and(|text| text.contains("[always]"));
            if always {
                half.advise(Advice::LinuxNoHugepage);
            }
            (0..bytes / 8192).for_each(|i| half.word(i).store(i as u64 + 1, Ordering::Relaxed));
            if always {
                half.advise(Advice::LinuxHugepage);
            }
            half
        }

        fn advise(&self, advice: Advice) {
            // SAFETY: the mapping is owned, and the advices used change no contents.
            unsafe { madvise(self.base as *mut _, self.bytes, advice) }.unwrap();
        }

        /// A word of the `i`th page in use.
        fn word(&self, i: usize) -> &AtomicU64 {
            assert!(i * 8192 < self.bytes);
            // SAFETY: it lies in the mapping, which lives as long as `self`, and is aligned.
            unsafe { &*((self.base + i as u64 * 8192) as *const AtomicU64) }
        }

        fn first_block(&self) -> u64 {
            self.base.div_ceil(SUPERPAGE_BYTES)
        }
    }

    impl Drop for Half {
        fn drop(&mut self) {
            // SAFETY: the mapping is owned, and nobody borrows from it any more.
            let _ = unsafe { munmap(self.base as *mut _, self.bytes) };
        }
    }

    #[test]
    fn superpages_that_take_too_much_memory_are_broken_and_nothing_is_lost() {
        if !rustix::process::geteuid().is_root() {
            return huepage_testing::skip("superpages_that_take_too_much_memory", "not root");
        }
        let (half, root) = (Half::new(4), ProcRoot::default());
        let pid = std::process::id().cast_signed();
        let mut member = Member::admit(&root, pid, usual_policy(), &SHAPE, None).unwrap();
        let mut report = Report::new(usual_policy(), SHAPE.entries);
        member.survey(&root, &bounds(1e6), &mut report).unwrap();
        let blocks: Vec<u64> = (half.first_block()..half.first_block() + 4).collect();
        member.queue.extend(&blocks);
        for _ in 0..4 {
            member.build(&bounds(1e6), &mut Spares::default(), &mut report);
        }
        if report.refused.contains_key(&NotBuilt::NoMemory) {
            let test = "superpages_that_take_too_much_memory";
            return huepage_testing::skip(test, "no 2 MiB are free");
        }
        assert_eq!((report.promoted, report.filled_pages), (4, 4 * 256), "{report:?}");
        // Another look finds them whole, and with no memory allowed each is one too many.
        member.census = None;
        member.survey(&root, &bounds(0.0), &mut report).unwrap();
        assert_eq!((report.demoted, report.filled_pages), (4, 0), "{report:?}");
        let now = SuperpageMap::from_proc(&root, pid).unwrap();
        for at in blocks {
            let block = now.blocks[&at];
            assert!(!block.huge && block.resident <= 256, "holes are holes again: {block:?}");
        }
        let right =
            (0..half.bytes / 8192).all(|i| half.word(i).load(Ordering::Relaxed) == i as u64 + 1);
        assert!(right, "contents");
    }

    /// Says of every superpage that nobody touched it.
    struct Unused;

    impl MissSensor for Unused {
        fn look(
            &mut self,
            _: &SuperpageMap,
            _: &ProcessMemory,
            _: f64,
            _: &mut Rng,
        ) -> Result<crate::sensors::tlb::sensor::SensorLook, SensorError> {
            Ok(crate::sensors::tlb::sensor::SensorLook::default())
        }

        fn touched(&mut self, blocks: &[u64]) -> Result<Option<Vec<(u64, bool)>>, SensorError> {
            Ok(Some(blocks.iter().map(|&at| (at, false)).collect()))
        }
    }

    #[test]
    fn superpages_that_nobody_uses_give_their_memory_back_a_few_at_a_time() {
        if !rustix::process::geteuid().is_root() {
            return huepage_testing::skip("superpages_that_nobody_uses", "not root");
        }
        let (half, root) = (Half::new(6), ProcRoot::default());
        let pid = std::process::id().cast_signed();
        let sensor: Option<Box<dyn MissSensor>> = Some(Box::new(Unused));
        let mut member = Member::admit(&root, pid, usual_policy(), &SHAPE, sensor).unwrap();
        let mut report = Report::new(usual_policy(), SHAPE.entries);
        member.survey(&root, &bounds(1e6), &mut report).unwrap();
        member.queue.extend(half.first_block()..half.first_block() + 6);
        for _ in 0..6 {
            member.build(&bounds(1e6), &mut Spares::default(), &mut report);
        }
        if report.refused.contains_key(&NotBuilt::NoMemory) {
            return huepage_testing::skip("superpages_that_nobody_uses", "no 2 MiB are free");
        }
        // One that has no holes costs nobody anything, and stays.
        member.built.get_mut(&half.first_block()).unwrap().filled = 0;
        let mut broken = Vec::new();
        for second in 1..=12 {
            member.cpu_seconds = f64::from(second);
            member.retire(&root, &mut report).unwrap();
            broken.push(report.idle);
        }
        // Marked in the first interval; unused in the next eight.
        assert_eq!(broken, [0, 0, 0, 0, 0, 0, 0, 0, 4, 5, 5, 5], "{report:?}");
        assert_eq!(report.demoted, 5);
        let now = SuperpageMap::from_proc(&root, pid).unwrap();
        for at in half.first_block() + 1..half.first_block() + 6 {
            let block = now.blocks[&at];
            assert!(!block.huge && block.resident <= 256, "holes are holes again: {block:?}");
        }
        assert!(now.blocks[&half.first_block()].huge, "asked about, but not broken");
        let right =
            (0..half.bytes / 8192).all(|i| half.word(i).load(Ordering::Relaxed) == i as u64 + 1);
        assert!(right, "contents");
    }

    #[test]
    fn a_superpage_that_is_touched_is_told_from_one_that_is_not() {
        let tables = match crate::kernel::page_tables::PageTables::open() {
            Ok(tables) => std::rc::Rc::new(std::cell::RefCell::new(tables)),
            Err(error) => return huepage_testing::skip("a_superpage_that_is_touched", error),
        };
        let (half, process) =
            (Half::new(2), ProcessMemory::open(std::process::id().cast_signed()).unwrap());
        let pid = std::process::id().cast_signed();
        let mut sensor = crate::sensors::tlb::accessed::AccessedBits::open(&tables, pid).unwrap();
        let blocks = [half.first_block(), half.first_block() + 1];
        if blocks.iter().any(|&at| process.build(at) == Err(NotBuilt::NoMemory)) {
            return huepage_testing::skip("a_superpage_that_is_touched", "no 2 MiB are free");
        }
        let ranges = blocks.map(|at| at * SUPERPAGE_BYTES..(at + 1) * SUPERPAGE_BYTES);
        assert_eq!(process.forget(&ranges), 2);
        // The word lies in the second block, wherever the mapping begins.
        let i = usize::try_from((blocks[1] * SUPERPAGE_BYTES - half.base) / 8192 + 9).unwrap();
        half.word(i).store(i as u64 + 1, Ordering::Relaxed);
        let told = sensor.touched(&blocks).unwrap();
        assert_eq!(told, Some(vec![(blocks[0], false), (blocks[1], true)]), "and both are whole");
    }

    #[test]
    fn what_a_program_saved_stays_known_when_it_ends() {
        let (root, pid) = (ProcRoot::default(), std::process::id().cast_signed());
        let mut report = Report::new(usual_policy(), SHAPE.entries);
        let of = |rate| {
            let admitted = Member::admit(&root, pid, usual_policy(), &SHAPE, None);
            let mut member = admitted.unwrap();
            let at = Instant::now() - Duration::from_secs(3);
            member.built.insert(7, Built { filled: 0, rate, at });
            member
        };
        let mut members = vec![of(1000.0), of(1e6)];
        keep(&mut members, &mut report, |member| member.saved() > 1e6);
        assert_eq!(members.len(), 1);
        assert!((3000.0..1e5).contains(&report.saved_misses), "{report:?}");
    }

    #[test]
    fn what_pays_late_is_built_seldom() {
        let (root, pid) = (ProcRoot::default(), std::process::id().cast_signed());
        let mut member = Member::admit(&root, pid, usual_policy(), &SHAPE, None).unwrap();
        assert!((member.rest(5, &bounds(1.0)) - PACING.unknown_rest).abs() < 1e-9);
        // A superpage of 1 ms that saves 30 ns so many times a second.
        member.rates = [(5, 1e6), (7, 10.0)].into();
        let rest = [5, 7, 8].map(|at| member.rest(at, &bounds(1.0)));
        assert_eq!(rest, [1.0, PACING.most_rest, PACING.most_rest]);
    }

    #[test]
    fn what_would_fill_too_much_is_refused_before_it_is_built() {
        let (root, pid) = (ProcRoot::default(), std::process::id().cast_signed());
        let mut member = Member::admit(&root, pid, usual_policy(), &SHAPE, None).unwrap();
        let block = |resident| BlockResidency { resident, zero: 0, huge: false };
        member.map.blocks = [(5, block(512)), (6, block(8))].into();
        member.census = Some(Census { at: Instant::now(), cost: Duration::ZERO, resident: 10_000 });
        assert_eq!(member.may_build(5, &bounds(0.0)), Ok(block(512)));
        assert_eq!(member.may_build(6, &bounds(0.05)), Err(NotBuilt::Sparse));
        assert_eq!(member.may_build(6, &bounds(0.06)), Ok(block(8)));
        assert_eq!(member.may_build(7, &bounds(1.0)), Err(NotBuilt::Gone));
    }
}
