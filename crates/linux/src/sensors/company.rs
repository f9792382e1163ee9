//! Who else uses the cache of a process: CPU time that other processes of this system spend on CPUs that share a
//! cache with those on which the process was seen. Processes outside of this system show nowhere here.

use std::collections::{BTreeSet, HashMap};

use serde::Serialize;

use crate::kernel::machine::CpuList;
use crate::kernel::procfs::{ProcError, ProcRoot};

/// Another process that shares the cache.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Sharer {
    /// Its number.
    pub pid: i32,
    /// What the kernel calls it.
    pub name: String,
    /// Nanoseconds of CPU time that it used there.
    pub cpu_ns: u64,
}

/// See the module's head. Costs about 2 us for each process there is, at each look.
#[derive(Debug)]
pub struct Company {
    root: ProcRoot,
    pid: i32,
    /// CPUs that share a cache.
    together: Vec<CpuList>,
    /// CPU time that each process had used when it was looked at last; none before the first look.
    ran: Option<HashMap<i32, u64>>,
    /// The others: their CPU time beside it.
    others: HashMap<i32, Sharer>,
    cpus: BTreeSet<u32>,
}

impl Company {
    /// Of a process; `together` says which CPUs share the cache.
    pub fn new(root: ProcRoot, pid: i32, together: Vec<CpuList>) -> Company {
        Company { root, pid, together, ran: None, others: HashMap::new(), cpus: BTreeSet::new() }
    }

    /// Looks; what others used since the look before counts.
    ///
    /// # Errors
    /// When the process has ended.
    pub fn look(&mut self) -> Result<(), ProcError> {
        let (root, own) = (&self.root, std::process::id().cast_signed());
        let here = cpus_of(root, self.pid)?;
        let mates = mates(&here, &self.together);
        self.cpus.extend(here);
        let pids = root.pids()?;
        let others = pids.into_iter().filter(|&pid| pid != self.pid && pid != own);
        let now: HashMap<i32, u64> =
            others.filter_map(|pid| Some((pid, root.run_time(pid)?))).collect();
        for (&pid, &time) in self.ran.iter().flat_map(|_| &now) {
            let before = self.ran.as_ref().and_then(|ran| ran.get(&pid)).unwrap_or(&0);
            let used = time.saturating_sub(*before);
            // Who has ended meanwhile is nowhere any more.
            let shares = used > 0 && cpus_of(root, pid).is_ok_and(|cpus| !cpus.is_disjoint(&mates));
            if shares {
                // It may have ended when somebody asks for its name.
                let name = || root.comm(pid).unwrap_or_else(|_| "(ended)".to_owned());
                let new = || Sharer { pid, name: name(), cpu_ns: 0 };
                self.others.entry(pid).or_insert_with(new).cpu_ns += used;
            }
        }
        self.ran = Some(now);
        Ok(())
    }

    /// CPUs on which the process was seen.
    pub const fn cpus(&self) -> &BTreeSet<u32> {
        &self.cpus
    }

    /// The others, those that used most first.
    pub fn sharers(&self) -> Vec<Sharer> {
        let mut all: Vec<Sharer> = self.others.values().cloned().collect();
        all.sort_by_key(|one| (std::cmp::Reverse(one.cpu_ns), one.pid));
        all
    }
}

/// CPUs on which the threads of a process ran last.
fn cpus_of(root: &ProcRoot, pid: i32) -> Result<BTreeSet<u32>, ProcError> {
    let tasks = root.tasks(pid)?;
    // A thread may end meanwhile.
    Ok(tasks.into_iter().filter_map(|tid| Some(root.stat(tid).ok()?.processor)).collect())
}

/// The CPUs that share a cache with some, those included.
fn mates(cpus: &BTreeSet<u32>, together: &[CpuList]) -> BTreeSet<u32> {
    let joined = together.iter().filter(|list| list.0.iter().any(|cpu| cpus.contains(cpu)));
    joined.flat_map(|list| &list.0).chain(cpus).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::procfs::fake::Fake;

    /// A process that has run for `ticks` hundredths of a second, now on a CPU.
    fn put(fake: &Fake, pid: i32, ticks: u64, cpu: u32) {
        let zeroes = |n: usize| vec!["0"; n].join(" ");
        let head = format!("{pid} (p{pid}) R 1 {}", zeroes(9));
        let stat = format!("{head} {ticks} 0 {} 7 {} {cpu} {}", zeroes(6), zeroes(16), zeroes(13));
        fake.put(&format!("{pid}/stat"), &stat);
        fake.put(&format!("{pid}/comm"), format!("p{pid}\n"));
        fake.put(&format!("{pid}/task/{pid}/stat"), &stat);
    }

    #[test]
    fn those_count_that_run_where_the_cache_is_shared() {
        let fake = Fake::new();
        for (pid, cpu) in [(1_000_001, 0), (1_000_002, 0), (1_000_003, 1), (1_000_004, 2)] {
            put(&fake, pid, 5, cpu);
        }
        let together = vec![CpuList(vec![0, 1]), CpuList(vec![2, 3])];
        let mut company = Company::new(fake.root.clone(), 1_000_001, together);
        company.look().unwrap();
        assert!(company.sharers().is_empty(), "what was before does not count");
        for (pid, ticks, cpu) in [(1_000_001, 50, 0), (1_000_002, 15, 0), (1_000_003, 45, 1)] {
            put(&fake, pid, ticks, cpu);
        }
        put(&fake, 1_000_004, 99, 2);
        company.look().unwrap();
        let found: Vec<(i32, u64)> =
            company.sharers().iter().map(|one| (one.pid, one.cpu_ns / 1_000_000)).collect();
        assert_eq!(found, [(1_000_003, 400), (1_000_002, 100)]);
        assert_eq!(company.sharers()[0].name, "p1000003");
        assert_eq!(company.cpus(), &BTreeSet::from([0]));
    }

    #[test]
    fn an_end_is_told() {
        let mut company = Company::new(Fake::new().root.clone(), 1_000_001, Vec::new());
        assert!(company.look().unwrap_err().is_gone());
    }
}
