//! Where the agent of a growing process works: beside the thread that does nearly all of what the process does, on
//! its CPU, or wherever it may.
//!
//! Who serves faults is best there: no idle processor has to be woken for a program that waits, and none has to be told
//! when pages move. Of a process of which several threads are busy there is no such CPU. Who fills the stock works at
//! the same time on another CPU, unless the program gives memory back: those frames, whose colours are known, are
//! found on the CPU of who gave them back.

/// Numbers of a [`LeadingThread`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeadSettings {
    /// It leads that has run for all but this part of the time of all threads.
    pub others_part: u64,
    /// Of more threads none is looked for, as each look at one takes some microseconds.
    pub most_threads: usize,
}

impl Default for LeadSettings {
    fn default() -> LeadSettings {
        LeadSettings { others_part: 8, most_threads: 16 }
    }
}

/// A thread of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadRun {
    /// Its number.
    pub id: i32,
    /// Nanoseconds that it has run since it began.
    pub ran: u64,
}

/// The thread that does nearly all.
#[derive(Clone, Debug, Default)]
pub struct LeadingThread {
    settings: LeadSettings,
    before: Vec<ThreadRun>,
    leader: Option<i32>,
}

impl LeadingThread {
    /// None leads until threads were seen twice, unless there is only one.
    pub fn new(settings: LeadSettings) -> LeadingThread {
        LeadingThread { settings, ..LeadingThread::default() }
    }

    /// With more threads than these none leads.
    pub const fn most_threads(&self) -> usize {
        self.settings.most_threads
    }

    /// All threads that the program has now; which one leads. While none of them has run that is as before.
    pub fn update(&mut self, threads: &[ThreadRun]) -> Option<i32> {
        if threads.len() > self.settings.most_threads {
            (self.leader, self.before) = (None, Vec::new());
            return None;
        }
        let since =
            |thread: &ThreadRun| (thread.ran.saturating_sub(self.ran_before(thread.id)), thread.id);
        let all: u64 = threads.iter().map(|thread| since(thread).0).sum();
        if let Some((most, id)) = threads.iter().map(since).max().filter(|_| all > 0) {
            self.leader = ((all - most) * self.settings.others_part <= all).then_some(id);
        }
        self.before = threads.to_vec();
        self.leader
    }

    fn ran_before(&self, id: i32) -> u64 {
        self.before.iter().find(|thread| thread.id == id).map_or(0, |thread| thread.ran)
    }
}

/// Whether a program gives back what it takes.
#[derive(Clone, Copy, Debug)]
pub struct Turnover {
    settings: TurnoverSettings,
    /// Pages that it had been given, and that it had, at the last look.
    given: u64,
    own: u64,
    /// Pages given, and pages that it has more, of late.
    recent: [u64; 2],
}

/// Numbers of a [`Turnover`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TurnoverSettings {
    /// It gives back what it takes when it is given so many times as much as it grows.
    pub factor: u64,
    /// Pages given below which that is not told: 1 MiB.
    pub fewest: u64,
    /// This part of what was before is forgotten with each look.
    pub forgotten_part: u64,
}

impl Default for TurnoverSettings {
    fn default() -> TurnoverSettings {
        TurnoverSettings { factor: 2, fewest: 256, forgotten_part: 8 }
    }
}

impl Turnover {
    /// Of a program that was given nothing yet.
    pub const fn new(settings: TurnoverSettings) -> Turnover {
        Turnover { settings, given: 0, own: 0, recent: [0; 2] }
    }

    /// The program was given so many pages since it began, and has so many of its `own` now; whether it gives back
    /// what it takes.
    pub fn update(&mut self, given: u64, own: u64) -> bool {
        let news = [given.saturating_sub(self.given), own.saturating_sub(self.own)];
        (self.given, self.own) = (given, own);
        for (recent, new) in self.recent.iter_mut().zip(news) {
            *recent = *recent - *recent / self.settings.forgotten_part + new;
        }
        let [given, grown] = self.recent;
        given >= self.settings.fewest && given >= grown * self.settings.factor
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn threads(ran: &[u64]) -> Vec<ThreadRun> {
        (7..).zip(ran).map(|(id, &ran)| ThreadRun { id, ran }).collect()
    }

    #[test]
    fn who_does_nearly_all_leads_and_of_several_nobody() {
        let mut lead = LeadingThread::new(LeadSettings::default());
        let turns: [(&[u64], Option<i32>); 7] = [
            (&[1000], Some(7)),
            (&[1000], Some(7)),
            (&[1000, 5000], Some(8)),
            (&[1400, 8000], Some(8)),
            (&[2400, 9000], None),
            (&[9400, 10_000], Some(7)),
            (&[9400, 10_000], Some(7)),
        ];
        for (ran, leader) in turns {
            assert_eq!(lead.update(&threads(ran)), leader, "{ran:?}");
        }
    }

    #[test]
    fn of_many_threads_none_is_looked_for() {
        let mut lead = LeadingThread::new(LeadSettings::default());
        let mut ran = [0; 17];
        ran[3] = 1 << 30;
        assert_eq!(lead.update(&threads(&ran[..16])), Some(10));
        assert_eq!(lead.update(&threads(&ran)), None);
    }

    #[test]
    fn who_grows_does_not_give_back_and_who_frees_what_it_maps_does() {
        let turnover = || Turnover::new(TurnoverSettings::default());
        let last = |given: fn(u64) -> u64, own: fn(u64) -> u64| {
            let mut turnover = turnover();
            (1..=40).map(|look| turnover.update(given(look), own(look))).collect::<Vec<bool>>()
        };
        assert!(last(|look| look * 500, |look| look * 500).iter().all(|back| !back), "grows");
        assert!(last(|look| look * 500, |_| 300)[3..].iter().all(|back| *back), "frees");
        assert!(last(|look| look, |_| 300).iter().all(|back| !back), "takes next to nothing");
        let mut changes = turnover();
        (1..=20).for_each(|look| _ = changes.update(look * 500, look * 500));
        let looks = (21..).take_while(|look| !changes.update(look * 500, 10_000)).count();
        assert!((3..=8).contains(&looks), "{looks} looks");
    }
}
