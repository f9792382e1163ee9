//! Policies at work: events go to the policy of a space, and what it wants done is done.

use huepage_policy::{Action, AreaKind, Event, MoveRefusal, Policy, ResidentPage};

use super::{RunError, System};
use crate::cost::ProgramCosts;
use crate::feedback::{Alarm, Every, Sense, Watch};
use crate::pagecache::FilePage;
use crate::record::{AccessKind, Record};
use crate::tlb::TlbPage;
use huepage_color::{Color, Pfn, VirtAddr, Vpn};

impl System {
    /// Puts a space under the care of a policy, which hears of what `sense` lets it hear.
    ///
    /// # Errors
    /// When the space cannot be.
    pub fn govern(
        &mut self,
        space: u16,
        policy: Box<dyn Policy + Send>,
        sense: Sense,
    ) -> Result<(), RunError> {
        if usize::from(space) >= self.spaces.len() {
            self.make_room(space)?;
        }
        if let Some(cml) = sense.cml {
            self.watch_memory(cml.references);
        }
        let state = &mut self.spaces[usize::from(space)];
        let watch = Watch::new(policy, sense);
        (state.alarm, state.watch) = (watch.next(), Some(Box::new(watch)));
        Ok(())
    }

    /// Gives back the policy of a space.
    pub fn release(&mut self, space: u16) -> Option<Box<dyn Policy + Send>> {
        let state = self.spaces.get_mut(usize::from(space))?;
        state.alarm = u64::MAX;
        let watch = state.watch.take()?;
        watch.handler.values().for_each(|&frame| self.frames.give_back(frame, 0));
        Some(watch.policy)
    }

    /// Tells the policy of a space that file data was missing; the policy acts at once.
    pub fn tell_file_miss(&mut self, core: usize, space: u16, file: u64, block: u64) {
        let pages = self.files.pages_of(file).max(block + 1);
        let Some(state) = self.spaces.get_mut(usize::from(space)) else { return };
        if let Some(watch) = &mut state.watch {
            watch.tell(Event::FileMiss { file, block, process: u32::from(space), pages });
            state.costs.policy_cycles += watch.sense.file_miss_cost;
            self.carry_out(core, space);
        }
    }

    /// Tells the policy of a space that it uses a cached block, if it wants to know.
    pub(super) fn tell_file_use(&mut self, core: usize, space: u16, file: u64, block: u64) {
        let pages = self.files.pages_of(file).max(block + 1);
        let state = &mut self.spaces[usize::from(space)];
        if let Some(watch) = &mut state.watch
            && let Some(cost) = watch.sense.file_use_cost
        {
            watch.tell(Event::FileUse { file, block, pages });
            state.costs.policy_cycles += cost;
            self.carry_out(core, space);
        }
    }

    /// Tells every policy that a file is gone; what they want done is done when they act next.
    pub(super) fn tell_file_gone(&mut self, file: u64) {
        let watches = self.spaces.iter_mut().filter_map(|state| state.watch.as_mut());
        watches.for_each(|watch| watch.tell(Event::FileGone { file }));
    }

    /// Tells the frames of each colour that can be had without touching pages in use.
    fn tell_stock(&mut self, space: u16) {
        for (color, frames) in (0..).map(Color).zip(self.stock_by_color()) {
            self.tell(space, Event::Stock { color, frames });
        }
        self.tell(space, Event::StockTold);
    }

    fn recolor_block_and_tell(
        &mut self,
        core: usize,
        space: u16,
        (file, block): (u64, u64),
        to: Color,
    ) {
        let event = match self.recolor_block(core, space, FilePage { file, block }, to) {
            Ok(()) => {
                self.charge(space, |sense, costs| costs.recolor_cycles += sense.recolor_cost);
                Event::BlockMoved { file, block }
            }
            Err(why) => Event::BlockRefused { file, block, why },
        };
        self.tell(space, event);
    }

    /// Tells of a translation that no TLB had; the cycles that this takes. Where software
    /// fills TLBs the policy hears of every one, else if it had its trap put in.
    pub(super) fn tell_tlb_miss(
        &mut self,
        page: TlbPage,
        victim: Option<TlbPage>,
        software: bool,
    ) -> u64 {
        let state = &mut self.spaces[usize::from(page.space)];
        let Some(watch) = &mut state.watch else { return 0 };
        let first = |page: TlbPage| Vpn(page.number << page.order);
        if watch.sense.access_scan.is_some() || watch.notes_accesses {
            // Bits are set when an entry is made, as hardware does it.
            watch.touched.insert(first(page).0, page.order);
        }
        let mut trap_cost = 0;
        if !watch.trapped.is_empty() && watch.trapped.remove(&first(page).0) {
            watch.tell(Event::Trapped { page: first(page) });
            (trap_cost, state.alarm) = (watch.sense.trap_cost, 0);
        }
        if watch.deaf {
            return trap_cost;
        }
        let cost = watch.sense.tlb_miss_cost;
        let Some(cost) = cost.or(software.then_some(0)) else { return trap_cost };
        let mine = victim.filter(|victim| victim.space == page.space);
        let victim = mine.map(|victim| (first(victim), victim.order));
        watch.tell(Event::TlbMiss { page: first(page), order: page.order, victim });
        state.alarm = 0;
        cost + trap_cost
    }

    /// Sensors that are due, and actions that wait.
    pub(super) fn watch_clock(&mut self, core: usize, record: &Record) {
        let at = usize::from(record.space);
        let now = self.spaces[at].costs.cycles();
        if now < self.spaces[at].alarm {
            return;
        }
        let sampled = record.kind == AccessKind::Load && self.last_depth > 0;
        while let Some((alarm, every)) = self.take_due(record.space, now, sampled) {
            self.sound(core, record, alarm, every);
        }
        self.carry_out(core, record.space);
        let state = &mut self.spaces[at];
        state.watch.iter_mut().for_each(|watch| watch.arm(now));
        state.alarm = state.watch.as_ref().map_or(u64::MAX, |watch| watch.next());
    }

    fn take_due(&mut self, space: u16, now: u64, sampled: bool) -> Option<(Alarm, Every)> {
        let watch = self.spaces[usize::from(space)].watch.as_mut()?;
        let sampled = watch.may_sample(sampled);
        watch.take_due(now, sampled)
    }

    fn sound(&mut self, core: usize, record: &Record, alarm: Alarm, every: Every) {
        let per_page = match alarm {
            Alarm::Sample => {
                self.sample(record);
                self.run_handler(core, record);
                1
            }
            Alarm::AccessScan => self.scan(core, record.space),
            Alarm::Audit => self.audit(record.space),
            Alarm::Progress => {
                self.tell_progress(record.space);
                1
            }
        };
        self.spaces[usize::from(record.space)].costs.policy_cycles += per_page * every.cost;
    }

    /// Tells the latest access and how far it went.
    fn sample(&mut self, record: &Record) {
        let depth = self.last_depth;
        let memory = depth + 1 == self.stalls[0].len();
        let missed = u32::try_from(depth).unwrap_or(u32::MAX);
        let page = VirtAddr(record.address.0).vpn();
        if let Some(watch) = &mut self.spaces[usize::from(record.space)].watch {
            watch.tell(Event::Sample { page, missed, memory });
        }
    }

    /// Touches what the handler of a sample does: lines of its own, and one of its table, which
    /// has 16 bytes for a page. Its cycles are the sensor's, so only caches are changed here.
    fn run_handler(&mut self, core: usize, record: &Record) {
        const PAGES_PER_FRAME: u64 = 256;
        let space = usize::from(record.space);
        let lines = self.spaces[space].watch.as_ref().map_or(0, |watch| watch.sense.handler_lines);
        if lines == 0 {
            return;
        }
        let page = VirtAddr(record.address.0).vpn().0;
        // Frame 0 is the handler's own.
        let table = (1 + page / PAGES_PER_FRAME, page % PAGES_PER_FRAME * 16);
        let bits = self.line_bits;
        let own = (0..lines).map(|line| (0, (line << bits) & 4095));
        for (part, offset) in own.chain([table]) {
            let Some(frame) = self.handler_frame(space, part) else { return };
            let path = &self.cores[core].paths[0];
            self.hierarchy.access(path, frame.base().0 | offset, AccessKind::Load);
            self.hierarchy.take_extra();
        }
    }

    /// A frame of the handler; none when memory is used up.
    fn handler_frame(&mut self, space: usize, part: u64) -> Option<Pfn> {
        let watch = self.spaces[space].watch.as_mut()?;
        if let Some(&frame) = watch.handler.get(&part) {
            return Some(frame);
        }
        let frame = self.frames.take_own().ok()?;
        watch.handler.insert(part, frame);
        Some(frame)
    }

    /// Tells which pages were touched, clears their bits, and drops their translations, so
    /// that the next touch is seen. Gives the pages looked at.
    fn scan(&mut self, core: usize, space: u16) -> u64 {
        let state = &mut self.spaces[usize::from(space)];
        let Some(watch) = &mut state.watch else { return 0 };
        let mut touched: Vec<(u64, u32)> = watch.touched.drain().collect();
        touched.sort_unstable();
        watch.tell(Event::AccessScan);
        for &(page, order) in &touched {
            watch.tell(Event::Accessed { page: Vpn(page), order });
        }
        let mapped = state.table.mapped();
        for (page, order) in touched {
            self.cores[core].tlbs.iter_mut().for_each(|tlb| {
                tlb.forget(TlbPage { space, number: page >> order, order });
            });
        }
        mapped
    }

    /// Tells every resident page, in order. Gives their number.
    fn audit(&mut self, space: u16) -> u64 {
        let state = &mut self.spaces[usize::from(space)];
        let mut pages: Vec<_> = state.table.pages().collect();
        pages.sort_unstable_by_key(|&(page, _)| page);
        let Some(watch) = &mut state.watch else { return 0 };
        watch.tell(Event::Audit);
        for &(page, at) in &pages {
            let color = self.frames.color(at.frame());
            let obstacle = (at.order() > 0).then_some(MoveRefusal::Huge);
            watch.tell(Event::Resident(ResidentPage {
                page,
                color,
                kind: AreaKind::Anonymous,
                obstacle,
            }));
        }
        watch.tell(Event::AuditOver);
        pages.len() as u64
    }

    /// Tells the policy of a space what a sensor elsewhere has seen; the policy acts at once.
    pub fn tell_event(&mut self, core: usize, space: u16, event: Event) {
        if usize::from(space) < self.spaces.len() {
            self.tell(space, event);
            self.carry_out(core, space);
        }
    }

    /// Audits a space at once; its policy acts at once.
    pub fn audit_now(&mut self, core: usize, space: u16) {
        if usize::from(space) < self.spaces.len() {
            let pages = self.audit(space);
            self.charge(space, |sense, costs| costs.policy_cycles += pages * sense.table_cost);
            self.carry_out(core, space);
        }
    }

    /// Tells of a page's next touch.
    fn trap(&mut self, space: u16, page: Vpn) {
        if self.mapping(space, page).is_none() {
            return;
        }
        self.shoot_down(space, page);
        if let Some(watch) = &mut self.spaces[usize::from(space)].watch {
            watch.trapped.insert(page.0);
        }
    }

    /// Forgets which pages were accessed, and remembers from now on. Translations go, so that the
    /// next touch of every page is seen.
    fn clear_accessed(&mut self, space: u16) {
        let cores = self.cores.iter_mut().flat_map(|core| &mut core.tlbs);
        cores.for_each(|tlb| _ = tlb.flush_space(space));
        let state = &mut self.spaces[usize::from(space)];
        let Some(watch) = &mut state.watch else { return };
        watch.touched.clear();
        watch.notes_accesses = true;
        state.costs.policy_cycles += state.table.mapped() * watch.sense.table_cost;
    }

    /// Tells which pages were accessed since they were cleared.
    fn read_accessed(&mut self, core: usize, space: u16) {
        let pages = self.scan(core, space);
        let state = &mut self.spaces[usize::from(space)];
        let Some(watch) = &mut state.watch else { return };
        watch.notes_accesses = false;
        watch.tell(Event::AccessedOver);
        state.costs.policy_cycles += pages * watch.sense.table_cost;
    }

    fn tell_progress(&mut self, space: u16) {
        let state = &mut self.spaces[usize::from(space)];
        let (cycles, instructions) = (state.costs.cycles(), state.costs.instructions);
        if let Some(watch) = &mut state.watch {
            watch.tell(Event::Progress { cycles, instructions });
        }
    }

    /// Does what the policy of a space wants done, and what it wants on hearing how that went.
    pub(super) fn carry_out(&mut self, core: usize, space: u16) {
        loop {
            let Some(watch) = &mut self.spaces[usize::from(space)].watch else { return };
            if watch.actions.is_empty() {
                return;
            }
            for action in std::mem::take(&mut watch.actions) {
                self.act(core, space, action);
            }
        }
    }

    fn act(&mut self, core: usize, space: u16, action: Action) {
        match action {
            Action::Recolour { page, to } => self.recolor_and_tell(core, space, page, to),
            Action::Promote { page, order } => self.promote_and_tell(core, space, page, order),
            Action::Quote { page, order } => self.quote(space, page, order),
            Action::Demote { page } => self.demote_and_tell(space, page),
            Action::TellTlbMisses(on) => {
                if let Some(watch) = &mut self.spaces[usize::from(space)].watch {
                    watch.deaf = !on;
                }
            }
            Action::FlushTlb => self.flush_tlb(core, space),
            Action::ForgetTranslation { page } => self.shoot_down(space, page),
            Action::ClearCml => self.clear_cml(space),
            Action::FixInCml { page } => self.fix_in_cml(space, page),
            Action::Prefetch(on) => self.switch_prefetchers(on),
            Action::TellSamples(on) => {
                let state = &mut self.spaces[usize::from(space)];
                let now = state.costs.cycles();
                state.watch.iter_mut().for_each(|watch| watch.sample(on, now));
            }
            Action::Trap { page } => self.trap(space, page),
            Action::ClearAccessed => self.clear_accessed(space),
            Action::ReadAccessed => self.read_accessed(core, space),
            Action::PlaceBlock { file, block, to } => self.place_next(FilePage { file, block }, to),
            Action::TellStock => self.tell_stock(space),
            Action::RefillStock { above } => {
                self.keep_stock(above);
                self.tell_stock(space);
            }
            Action::RecolourBlock { file, block, to } => {
                self.recolor_block_and_tell(core, space, (file, block), to);
            }
            _ => {}
        }
    }

    fn quote(&mut self, space: u16, page: Vpn, order: u32) {
        let construction = self.construction(space, page, order);
        let page = first_of(page, order);
        self.tell(space, Event::Quoted { page, order, construction });
    }

    fn flush_tlb(&mut self, core: usize, space: u16) {
        self.cores[core].tlbs.iter_mut().for_each(|tlb| _ = tlb.flush_space(space));
        self.charge(space, |sense, costs| costs.policy_cycles += sense.flush_cost);
        self.tell(space, Event::TlbFlushed);
    }

    fn recolor_and_tell(&mut self, core: usize, space: u16, page: Vpn, to: Color) {
        let event = match self.recolor(core, space, page, to) {
            Ok(()) => {
                self.charge(space, |sense, costs| costs.recolor_cycles += sense.recolor_cost);
                Event::Moved { page }
            }
            Err(why) => Event::Refused { page, why },
        };
        self.tell(space, event);
    }

    fn promote_and_tell(&mut self, core: usize, space: u16, page: Vpn, order: u32) {
        let done = self.promote(core, space, page, order);
        let page = first_of(page, order);
        let event = match done {
            Ok(()) => Event::Promoted { page, order },
            Err(why) => Event::NotPromoted { page, order, why },
        };
        self.tell(space, event);
    }

    /// Charges a program for what its policy had done.
    fn charge(&mut self, space: u16, how: impl Fn(&Sense, &mut ProgramCosts)) {
        let state = &mut self.spaces[usize::from(space)];
        if let Some(watch) = &state.watch {
            how(&watch.sense, &mut state.costs);
        }
    }

    /// Tells where the base pages of a new superpage are.
    pub(super) fn tell_places(&mut self, space: u16, first: Vpn, block: Pfn, order: u32) {
        for offset in 0..1_u64 << order {
            let (page, frame) = (Vpn(first.0 + offset), Pfn(block.0 + offset));
            self.note_owner(space, page, frame);
            let color = self.frames.color(frame);
            if let Some(watch) = &mut self.spaces[usize::from(space)].watch {
                watch.tell(Event::Placed { page, color });
            }
        }
    }

    /// Breaks a superpage and tells of it.
    pub(super) fn demote_and_tell(&mut self, space: u16, page: Vpn) {
        let order = self.mapping(space, page).map_or(0, |at| at.order());
        if order > 0 {
            self.demote(space, page);
            self.tell(space, Event::Demoted { page, order, interfering: false });
        }
    }

    /// A base page is not as its neighbours any more, for instance in its protection: no
    /// superpage can hold it until [`Self::restore`].
    pub fn interfere(&mut self, core: usize, space: u16, page: Vpn) {
        let Some(mapping) = self.mapping(space, page) else { return };
        let order = mapping.order();
        self.demote(space, page);
        self.forget_page(TlbPage { space, number: page.0, order: 0 });
        self.tell(space, Event::Demoted { page, order, interfering: true });
        self.carry_out(core, space);
    }

    /// A base page that stood in the way is as its neighbours again.
    pub fn restore(&mut self, core: usize, space: u16, page: Vpn) {
        if usize::from(space) < self.spaces.len() {
            self.tell(space, Event::Restored { page });
            self.carry_out(core, space);
        }
    }

    fn tell(&mut self, space: u16, event: Event) {
        let state = &mut self.spaces[usize::from(space)];
        let refused = matches!(
            event,
            Event::Refused { .. } | Event::NotPromoted { .. } | Event::BlockRefused { .. }
        );
        state.costs.refusals += u64::from(refused);
        if let Some(watch) = &mut state.watch {
            watch.tell(event);
        }
    }
}

/// The first base page of a superpage, of any order that a policy may have made up.
fn first_of(page: Vpn, order: u32) -> Vpn {
    Vpn(page.0.checked_shr(order).unwrap_or(0) << order.min(63))
}
