//! Looks after the superpages of a few processes: whose turn it is to be looked at, what that may
//! cost, and when what is wanted is built. Runs in one thread, in turns; starts none.

use std::time::{Duration, Instant};

use huepage_policy::combined::Costs;
use huepage_policy::pace::{CpuBudget, MayStall, StallBound};
use huepage_policy::registry;

use super::confined::{Confined, Partition};
use super::live_policy::{PACING, needs_misses, usual_policy};
use super::member::{self, Bounds, Member};
use super::report::Report;
use super::spare::Spares;
use crate::kernel::pressure::Pressure;
use crate::kernel::process_memory::thread_time;
use crate::kernel::procfs::ProcRoot;
use crate::sensors::tlb::sensor_set::SensorSet;
use crate::sensors::tlb::{MissSensorKind, TlbShape};
use fastrand::Rng;

/// Longest sleep between two turns.
const LONGEST_SLEEP: Duration = Duration::from_millis(100);
/// Sleep after a look, at least.
const SHORTEST_SLEEP: Duration = Duration::from_millis(10);

/// How superpages are looked after.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Who decides.
    pub policy: registry::Settings,
    /// Memory that superpages may add, as a share of what is resident without them.
    pub memory_overhead: f64,
    /// What sensing and deciding may cost, as a share of one CPU.
    pub cpu: f64,
    /// Where misses are to come from; the best there is if not said.
    pub source: Option<MissSensorKind>,
    /// How long a program may have to wait for one at most; without a bound as long as it takes.
    pub stall: Option<Duration>,
}

impl Default for Settings {
    /// APPROX-ONLINE, 4 % of memory, 1 % of a CPU.
    fn default() -> Settings {
        let policy = usual_policy();
        Settings { policy, memory_overhead: 0.04, cpu: 0.01, source: None, stall: None }
    }
}

/// See the module's head.
pub struct SuperpageManager {
    settings: Settings,
    partition: Option<Partition>,
    root: ProcRoot,
    shape: TlbShape,
    sensors: SensorSet,
    members: Vec<Member>,
    next: usize,
    budget: CpuBudget,
    spares: Spares,
    stalls: Option<StallBound>,
    pressure: Pressure,
    random: Rng,
    report: Report,
    began: Instant,
    /// CPU time of this thread before.
    cpu_then: Duration,
    /// Policy CPU seconds that the credit knows of.
    charged: f64,
}

impl SuperpageManager {
    /// Of no process yet, for the thread that calls; with the partition that they are in, if there
    /// is one.
    pub fn new(settings: Settings, partition: Option<Partition>) -> SuperpageManager {
        let cpu_then = thread_time();
        let (root, shape) = (ProcRoot::default(), TlbShape::read());
        let sensors = SensorSet::open(needs_misses(&settings.policy), settings.source);
        let mut report = Report::new(settings.policy.clone(), shape.entries);
        (report.source, report.source_because) = (sensors.source(), sensors.because());
        let mut spares = Spares::default();
        if settings.stall.is_some() {
            spares.use_always();
        }
        SuperpageManager {
            budget: CpuBudget::new(settings.cpu * PACING.credit, Duration::ZERO),
            spares,
            stalls: settings.stall.map(StallBound::new),
            pressure: Pressure::on_memory(&root),
            settings,
            partition,
            root,
            shape,
            sensors,
            members: Vec::new(),
            next: 0,
            random: Rng::with_seed(1),
            report,
            began: Instant::now(),
            cpu_then,
            charged: 0.0,
        }
    }

    /// Looks after these processes from now on, and no others.
    pub fn set_members(&mut self, pids: &[i32]) {
        member::keep(&mut self.members, &mut self.report, |member| pids.contains(&member.pid));
        for &pid in pids {
            if self.members.iter().all(|member| member.pid != pid) {
                self.admit(pid);
            }
        }
    }

    /// Superpages cost so much in the partition from now on; without one nothing changes.
    pub fn set_costs(&mut self, costs: Costs) {
        let Some(partition) = &mut self.partition else { return };
        partition.costs = costs;
        self.members.iter_mut().for_each(|member| member.reprice_partition(costs));
    }

    fn admit(&mut self, pid: i32) {
        // Who ends just now, or may not be looked at, is left alone.
        let Ok(sensor) = self.sensors.sensor(pid) else { return };
        let policy = self.settings.policy.clone();
        let Ok(mut member) = Member::admit(&self.root, pid, policy, &self.shape, sensor) else {
            return;
        };
        member.confine(self.partition.as_ref().map(|partition| Confined::new(partition, pid)));
        self.members.push(member);
    }

    /// Does what is due; how long nothing will be.
    pub fn run_turn(&mut self) -> Duration {
        let busy = self.look_after();
        self.charge();
        let (now, rest) = (Instant::now(), if busy { SHORTEST_SLEEP } else { LONGEST_SLEEP });
        let look = self.budget.wait(self.began.elapsed()).clamp(rest, LONGEST_SLEEP);
        let may = self
            .stalls
            .as_ref()
            .is_none_or(|bound| bound.may(self.began.elapsed()) != MayStall::No);
        let build = self.members.iter().filter_map(|member| member.builds_in(now));
        build.min().filter(|_| may).map_or(look, |build| look.min(build))
    }

    /// Tells the credit of all that this thread has done since the last call but build.
    fn charge(&mut self) {
        let all = self.policy_cpu_seconds();
        let spent = Duration::try_from_secs_f64(all - self.charged).unwrap_or_default();
        self.budget.spend(spent);
        self.charged = all;
    }

    fn policy_cpu_seconds(&self) -> f64 {
        let all = thread_time().saturating_sub(self.cpu_then).as_secs_f64();
        all - (self.report.construction_cpu_seconds - self.report.agent_cpu_seconds)
    }

    /// Whether anybody was looked at.
    fn look_after(&mut self) -> bool {
        self.build();
        // While memory is short, nobody's pages should look cold, and no memory is to be had.
        if self.budget.wait(self.began.elapsed()) > Duration::ZERO || self.pressure.is_short() {
            return false;
        }
        let SuperpageManager { root, members, report, .. } = self;
        member::keep(members, report, |member| member.is_alive(root));
        let count = self.members.len();
        let turn = (0..count).map(|i| (self.next + i) % count);
        let Some(at) = turn.into_iter().find(|&at| self.members[at].has_worked()) else {
            return false;
        };
        self.next = at + 1;
        let bounds = bounds(&self.settings, &self.shape, &self.report);
        let member = &mut self.members[at];
        let done = member
            .survey(&self.root, &bounds, &mut self.report)
            .and_then(|()| member.look(&self.root, &mut self.random, &bounds, &mut self.report));
        done.unwrap_or_else(|error| {
            // It has ended, or executes another program: then it is taken anew.
            self.report.saved_misses += self.members.swap_remove(at).saved();
            if !error.is_gone() {
                self.report.trouble = Some(error.to_string());
            }
            false
        })
    }

    /// Builds some of what is wanted, with rests in between in which the programs run.
    fn build(&mut self) {
        for _ in 0..PACING.builds_per_turn {
            let now = Instant::now();
            let ready = |member: &Member| member.builds_in(now) == Some(Duration::ZERO);
            let Some(at) = self.members.iter().position(ready) else { return };
            if !self.may_stall() {
                return;
            }
            let bounds = bounds(&self.settings, &self.shape, &self.report);
            let wait = self.members[at].build(&bounds, &mut self.spares, &mut self.report);
            wait.into_iter().for_each(|wait| _ = self.stalled(wait, true));
        }
    }

    /// Whether a program may be made to wait now; tries how long it would be, if nobody knows.
    fn may_stall(&mut self) -> bool {
        let may =
            self.stalls.as_ref().map_or(MayStall::Yes, |bound| bound.may(self.began.elapsed()));
        match may {
            MayStall::Yes => true,
            MayStall::No => false,
            MayStall::TryElsewhere => {
                let began = thread_time();
                let took = self.spares.time_one().unwrap_or(Duration::MAX);
                let cpu = thread_time().saturating_sub(began).as_secs_f64();
                self.report.construction_cpu_seconds += cpu;
                self.stalled(took, false)
            }
        }
    }

    /// Notes how long building one took; whether that is within the bound.
    fn stalled(&mut self, took: Duration, waited: bool) -> bool {
        let (now, Some(bound)) = (self.began.elapsed(), &mut self.stalls) else { return true };
        let within = bound.took(now, took, waited);
        if !within {
            let how = match took {
                Duration::MAX => "could not be built in memory of our own".to_owned(),
                took => format!("took {} us, longer than --stall allows", took.as_micros()),
            };
            self.report.trouble =
                Some(format!("a superpage {how}; tried again later, in memory of huepage's own"));
        }
        within
    }

    /// What was done so far.
    pub fn report(&self) -> Report {
        let saved: f64 = self.members.iter().map(Member::saved).sum();
        Report {
            saved_misses: self.report.saved_misses + saved,
            policy_cpu_seconds: self.policy_cpu_seconds(),
            seconds: self.began.elapsed().as_secs_f64(),
            ..self.report.clone()
        }
    }
}

fn bounds<'a>(settings: &Settings, shape: &'a TlbShape, report: &Report) -> Bounds<'a> {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "nanoseconds")]
    let known = (report.construction_us * 1000.0) as u64;
    let price = if known > 0 { known } else { PACING.first_price_ns };
    Bounds { overhead: settings.memory_overhead, shape, price }
}
