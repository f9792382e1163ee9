//! Beside which thread the agent of a growing process works: beside the one that does nearly all of what the process
//! does, on its CPU, or beside none.
//!
//! Frames that a program gives back wait on its CPU, and are found again by who takes memory there: their colours
//! are known. No other CPU has to be told when pages move, and who waits for a page is not waited for by an idle
//! processor. A process of which several threads are busy has no such CPU.

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
}
