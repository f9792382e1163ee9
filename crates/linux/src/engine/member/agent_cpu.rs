//! Where the agent's threads run while the process takes new memory (`huepage_policy::agent_cpu`): the one that serves
//! faults on the CPU of the thread that does nearly all, the one that fills the stock there as well if memory is
//! given back; otherwise wherever the process may. Only where the agent goes before the program on a CPU: behind it, it would
//! be late for every fault.

use std::time::{Duration, Instant};

use huepage_policy::agent_cpu::{
    LeadSettings, LeadingThread, ThreadRun, Turnover, TurnoverSettings,
};
use rustix::process::{Pid, setpriority_process};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::Member;

/// Niceness of threads that the program may have to wait for.
const NICENESS: i32 = -10;
/// Time between two looks at who runs where, at least, and in times of what the last one took: a process may have
/// ten thousand threads.
const LOOK_INTERVAL: Duration = Duration::from_millis(10);
const LOOK_SHARE: u32 = 100;

/// Where the agent runs.
pub(super) struct AgentCpu {
    leading: LeadingThread,
    turnover: Turnover,
    next_look: Instant,
    /// Faults served at the last look.
    faults: u64,
    /// The only CPUs that the agent's threads may use; none: those of the process.
    only: [Option<usize>; 2],
    /// Whether the agent's threads go before the program's.
    goes_first: bool,
}

impl Default for AgentCpu {
    fn default() -> AgentCpu {
        AgentCpu {
            leading: LeadingThread::new(LeadSettings::default()),
            turnover: Turnover::new(TurnoverSettings::default()),
            next_look: Instant::now(),
            faults: 0,
            only: [None; 2],
            goes_first: false,
        }
    }
}

impl Member {
    /// This thread and the agent's go first when a CPU is short: the program waits for them, or
    /// outruns them, and what they take is bounded. Without the right to it, so be it. Where only some
    /// pages are moved nobody waits for them, and they go where the program does not run.
    pub(super) fn hurry(&mut self) {
        let ours = self.agent.threads().iter().map(|&thread| Pid::from_raw(thread));
        if self.config.scope.is_some() {
            let cpus = elsewhere(self.pid);
            ours.for_each(|thread| _ = cpus.map(|cpus| sched_setaffinity(thread, &cpus)));
            return;
        }
        let _ = setpriority_process(None, NICENESS);
        let refused = ours.filter(|&thread| setpriority_process(thread, NICENESS).is_err()).count();
        self.agent_cpu.goes_first = refused == 0;
    }

    /// Has the agent run where the program does, while that is `busy` taking memory.
    pub(super) fn follow_program(&mut self, busy: bool) {
        let faults = self.agent.counts().faults;
        let grows = busy || faults != self.agent_cpu.faults;
        let began = Instant::now();
        if !grows || !self.agent_cpu.goes_first || began < self.agent_cpu.next_look {
            return;
        }
        self.agent_cpu.faults = faults;
        let leader = self.leading_thread();
        let only = leader.and_then(|thread| self.cpu_of(thread));
        let gives_back = self.gives_memory_back();
        self.run_agent_on([only, only.filter(|_| gives_back)]);
        let pause = LOOK_INTERVAL.max(began.elapsed() * LOOK_SHARE);
        self.agent_cpu.next_look = Instant::now() + pause;
    }

    /// The agent may run wherever the process may.
    pub(super) fn leave_program(&mut self) {
        self.run_agent_on([None; 2]);
    }

    fn gives_memory_back(&mut self) -> bool {
        let ours = self.agent.stock() + self.pool_filler.held();
        let resident = self.root.statm(self.pid).map_or(0, |statm| statm.resident);
        let placed = self.agent.counts().placed;
        self.agent_cpu.turnover.update(placed, resident.saturating_sub(ours))
    }

    fn leading_thread(&mut self) -> Option<i32> {
        let ours = self.agent.threads();
        let threads = self.root.tasks(self.pid).ok()?;
        let its = threads.into_iter().filter(|thread| !ours.contains(thread));
        let run = |id| Some(ThreadRun { id, ran: self.root.thread_run_time(self.pid, id)? });
        let most = self.agent_cpu.leading.most_threads();
        let runs: Vec<ThreadRun> = its.take(most + 1).filter_map(run).collect();
        self.agent_cpu.leading.update(&runs)
    }

    /// The CPU that a thread has run on last, unless it goes before the agent there.
    fn cpu_of(&self, thread: i32) -> Option<usize> {
        let stat = self.root.stat(thread).ok()?;
        (!stat.realtime).then_some(stat.processor as usize)
    }

    /// Which CPU each of the agent's threads may use. One that is gone by now, or that the process may not use any more, is
    /// refused: all is as before.
    fn run_agent_on(&mut self, only: [Option<usize>; 2]) {
        let before = self.agent_cpu.only;
        for (i, &thread) in self.agent.threads().iter().enumerate().take(only.len()) {
            if only[i] != before[i]
                && let Some(cpus) = self.cpus(only[i])
                && sched_setaffinity(Pid::from_raw(thread), &cpus).is_ok()
            {
                self.agent_cpu.only[i] = only[i];
            }
        }
    }

    /// One CPU, or those that the process may use.
    fn cpus(&self, only: Option<usize>) -> Option<CpuSet> {
        let Some(cpu) = only else { return sched_getaffinity(Pid::from_raw(self.pid)).ok() };
        let mut cpus = CpuSet::new();
        (cpu < CpuSet::MAX_CPU).then(|| cpus.set(cpu))?;
        Some(cpus)
    }
}

/// The CPUs that this thread may use and the process's first thread does not, or all of them if there is
/// no other; none where that cannot be found out.
fn elsewhere(pid: i32) -> Option<CpuSet> {
    let own = sched_getaffinity(None).ok()?;
    let its = sched_getaffinity(Pid::from_raw(pid)).ok()?;
    let mut others = CpuSet::new();
    (0..CpuSet::MAX_CPU)
        .filter(|&cpu| own.is_set(cpu) && !its.is_set(cpu))
        .for_each(|cpu| others.set(cpu));
    Some(if others.count() > 0 { others } else { own })
}
