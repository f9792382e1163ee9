//! What decides over colours in a co-run, whatever it is: nobody, the paper's manager, or ours;
//! and when it hears of which program. It gives assignments; what becomes of them is not known
//! here.

use huepage_color::ColorSet;
use huepage_frames::Sections;
use huepage_policy::coloris::{
    AppId, Assignment, CurveSettings, Manager, ManagerSettings, UtilityManager, UtilitySettings,
};

use super::cases::{Case, Placing, Times, UNIT};
use super::outcome::Sums;

/// Requests of a period below which a program does not use the cache: one in 2000 cycles.
const IDLE: u64 = 2000;

enum Over {
    Nobody,
    Manager(Manager),
    Utility(Box<UtilityManager>),
}

/// A manager and its clock.
pub(super) struct Managed {
    over: Over,
    /// When each program is observed next, and what it had done the last time.
    due: Vec<(u64, Sums)>,
    period: u64,
    ids: Vec<AppId>,
}

impl Managed {
    /// For the programs of a case, in their order. The monitor begins after two periods. The
    /// paper's looks at programs one after the other, evenly within a period, ours at all at once.
    pub(super) fn new(case: &Case, times: Times, sections: Sections, lines: u64) -> Managed {
        let least_requests = times.period / IDLE;
        let mut over = match case.placing {
            Placing::Manager { thresholds, .. } => {
                let settings =
                    ManagerSettings { thresholds, unit: UNIT, floor: UNIT, least_requests };
                Over::Manager(Manager::new(sections, settings))
            }
            Placing::Utility => {
                let curve = CurveSettings::new(sections.colors(), lines);
                let settings =
                    UtilitySettings { unit: UNIT, least_requests, ..UtilitySettings::new(curve) };
                Over::Utility(Box::new(UtilityManager::new(sections, settings)))
            }
            _ => Over::Nobody,
        };
        let ids = case.programs.iter().map(|&(_, core, own)| match &mut over {
            Over::Nobody => AppId(0),
            Over::Manager(manager) => manager.admit_on(core, own),
            Over::Utility(manager) => manager.admit_on(core, own.map(|own| own.high)),
        });
        let ids: Vec<AppId> = ids.collect();
        let n = ids.len().max(1) as u64;
        let apart = if matches!(over, Over::Manager(_)) { times.period / n } else { 0 };
        let due = (0..n).map(|at| (2 * times.period + at * apart, Sums::default())).collect();
        Managed { over, due, period: times.period, ids }
    }

    /// The colours that a program begins with; none if that is not for a manager to say.
    pub(super) fn first_colors(&self, at: usize) -> Option<ColorSet> {
        match &self.over {
            Over::Nobody => None,
            Over::Manager(manager) => manager.colors(self.ids[at]).cloned(),
            Over::Utility(manager) => manager.colors(self.ids[at]).cloned(),
        }
    }

    /// Whether a program is to be observed by now.
    pub(super) fn is_due(&self, at: usize, now: u64) -> bool {
        !matches!(self.over, Over::Nobody) && now >= self.due[at].0
    }

    /// What a program has done so far.
    pub(super) fn observe(&mut self, at: usize, sums: Sums) -> Vec<Assignment> {
        let (due, before) = &mut self.due[at];
        *due += self.period;
        let Sums { misses, requests, .. } = sums.since(*before);
        *before = sums;
        match &mut self.over {
            Over::Nobody => Vec::new(),
            Over::Manager(manager) => {
                manager.observe(self.ids[at], misses, requests).into_iter().collect()
            }
            Over::Utility(manager) => {
                manager.observe(self.ids[at], misses, requests);
                let last = at + 1 == self.ids.len();
                if last { manager.decide() } else { Vec::new() }
            }
        }
    }

    /// Whether the lines that a program requests are wanted.
    pub(super) fn wants_requests(&self, at: usize) -> bool {
        match &self.over {
            Over::Utility(manager) => manager.wants_requests(self.ids[at]),
            _ => false,
        }
    }

    /// Lines that a program requested.
    pub(super) fn requested(&mut self, at: usize, lines: &[u64]) {
        if let Over::Utility(manager) = &mut self.over {
            lines.iter().for_each(|&line| manager.request(self.ids[at], line));
        }
    }
}
