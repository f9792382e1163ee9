//! The state machine that decides; see the [module](super). In every round it first looks at what came of
//! its last changes, and takes back those that were a mistake; then whoever wants more takes from what is
//! free, from who can do with less, and from who has a lower priority, in this order.

use huepage_color::ColorSet;

use super::utility::{Better, Part, better};
use super::{
    Bucket, Decision, Engine, Gauge, GroupId, LONGEST_AGAIN, Reading, Settings, Spec, Want, divide,
};

/// Share of all misses that another division has to save.
const MARGIN: f64 = 0.05;

/// A change whose effect is not known yet.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Trial {
    /// Colours before it.
    size: u16,
    /// What was read before it.
    before: Option<Reading>,
    /// Who got or gave the colours; none: they were free.
    partner: Option<usize>,
}

/// A limit learned from a mistake, and how long it holds.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Lesson {
    size: u16,
    until: f64,
}

#[derive(Clone, Debug)]
struct Group {
    spec: Spec,
    colors: ColorSet,
    gauge: Gauge,
    changed: Option<f64>,
    grown: Option<Trial>,
    shrunk: Option<Trial>,
    /// It does worse with fewer than this.
    least: Option<Lesson>,
    /// More than this did nothing for it, or others missed it.
    most: Option<Lesson>,
    /// Its readings do not depend on its colours; until when that is believed.
    flat: Option<f64>,
    /// Colours that came since the last that helped.
    useless: u16,
    /// Seconds until the next mistake may be tried again.
    again: f64,
    /// Colours that it takes at a time.
    step: u16,
    /// Why it did not get what it wants, as it was said last.
    told: Option<Stuck>,
    /// Its miss rates by the number of colours, as foretold.
    curve: Option<Vec<f64>>,
}

/// Why a group that wants more does not get it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stuck {
    Ceiling,
    Useless,
    Nobody,
}

/// Decides who has which colours; see the [module](super).
#[derive(Clone, Debug)]
pub struct Governor {
    settings: Settings,
    pool: ColorSet,
    groups: Vec<Group>,
    bucket: Bucket,
    /// Decisions in a row that wanted another division.
    wished: u32,
}

impl Governor {
    /// For groups that share the colours of `pool`, with those that each had `before` where that is known.
    /// None if their floors do not fit.
    pub fn new(
        settings: Settings,
        pool: ColorSet,
        specs: Vec<Spec>,
        before: &[Option<ColorSet>],
    ) -> Option<Governor> {
        let all = divide(&pool, &specs, before)?;
        let (unit, again) = (settings.unit.max(1), settings.again);
        let group = |(spec, colors)| Group {
            spec,
            colors,
            gauge: Gauge::default(),
            changed: None,
            grown: None,
            shrunk: None,
            least: None,
            most: None,
            flat: None,
            useless: 0,
            again,
            step: unit,
            told: None,
            curve: None,
        };
        let groups = specs.into_iter().zip(all).map(group).collect();
        let bucket = Bucket::new(settings.cap.0, settings.cap.1);
        Some(Governor { settings, pool, groups, bucket, wished: 0 })
    }

    /// The colours of a group; none if there is no such group.
    pub fn colors(&self, group: GroupId) -> Option<&ColorSet> {
        Some(&self.groups.get(group.0)?.colors)
    }

    /// What a group wants as far as is known.
    pub fn want(&self, group: GroupId) -> Want {
        let patience = self.settings.patience;
        self.groups.get(group.0).map_or(Want::Same, |group| group.gauge.want(patience))
    }

    /// How a group is doing at `now`; none while it has nobody. A reading while its pages are still on
    /// their way to other colours does not count.
    pub fn observe(&mut self, group: GroupId, reading: Option<Reading>, now: f64) {
        let rest = self.settings.rest;
        let Some(group) = self.groups.get_mut(group.0) else { return };
        let Some(bounds) = group.spec.bounds else { return };
        if !group.rests(now, rest) {
            group.gauge.note(reading, bounds);
        }
    }

    /// Miss rates of a group by the number of colours, from 0 to all, as they are foretold now; see
    /// [`utility::curve`](super::utility::curve). Without them a group keeps its size under
    /// [`Engine::Utility`].
    pub fn foretell(&mut self, group: GroupId, rates: Vec<f64>, now: f64) {
        let rest = self.settings.rest;
        if let Some(group) = self.groups.get_mut(group.0).filter(|group| !group.rests(now, rest)) {
            group.curve = Some(rates);
        }
    }

    /// What changes now, and what remarkable does not. Call it once after every round of readings; takes
    /// time in proportion to groups times colours.
    pub fn decide(&mut self, now: f64) -> Vec<Decision> {
        self.bucket.pass(now);
        let mut decisions = Vec::new();
        if self.settings.engine == Engine::Utility {
            self.divide_better(now, &mut decisions);
            return decisions;
        }
        for at in 0..self.groups.len() {
            self.forget_old_lessons(at, now);
            self.judge_growth(at, now, &mut decisions);
            self.judge_shrinking(at, now, &mut decisions);
        }
        let mut hungry: Vec<usize> =
            (0..self.groups.len()).filter(|&at| self.is_hungry(at, now)).collect();
        hungry.sort_by(|&a, &b| {
            let excess = |at: usize| self.groups[at].excess();
            let priority = |at: usize| self.groups[at].spec.priority;
            priority(b).cmp(&priority(a)).then(excess(b).total_cmp(&excess(a))).then(a.cmp(&b))
        });
        for at in hungry {
            self.feed(at, now, &mut decisions);
        }
        decisions
    }

    /// Moves towards the best division by what is foretold, once some decisions in a row wanted another.
    fn divide_better(&mut self, now: f64, decisions: &mut Vec<Decision>) {
        let rest = self.settings.rest;
        let known = |at: &usize| {
            let group = &self.groups[*at];
            group.spec.bounds.is_some() && group.curve.is_some() && !group.rests(now, rest)
        };
        let at: Vec<usize> = (0..self.groups.len()).filter(known).collect();
        let Some(found) = self.better_of(&at) else {
            self.wished = 0;
            return;
        };
        self.wished = self.wished.saturating_add(1);
        if self.wished < self.settings.patience {
            return;
        }
        self.wished = 0;
        let mended = if found.mended > 0 {
            format!(", {} bounds mended", found.mended)
        } else {
            String::new()
        };
        let why = format!("{:.0} % fewer misses in all{mended}, as foretold", 100.0 * found.saved);
        let sizes: Vec<(usize, u16)> = at.into_iter().zip(found.sizes).collect();
        for &(taker, size) in &sizes {
            let missing = size.saturating_sub(self.groups[taker].colors.len());
            self.fill(taker, missing.min(self.settings.unit.max(1)), &sizes, now, &why, decisions);
        }
    }

    fn better_of(&self, at: &[usize]) -> Option<Better> {
        let part = |&at: &usize| {
            let group = &self.groups[at];
            let (spec, rates) = (&group.spec, group.curve.as_deref().unwrap_or_default());
            Part { spec, rates, size: group.colors.len() }
        };
        let parts: Vec<Part<'_>> = at.iter().map(part).collect();
        let colors = parts.iter().map(|part| part.size).sum::<u16>() + self.free().len();
        if parts.is_empty() { None } else { better(&parts, colors, MARGIN) }
    }

    /// Gives a group `n` colours: free ones, then of those that are to have fewer.
    fn fill(
        &mut self,
        taker: usize,
        mut n: u16,
        sizes: &[(usize, u16)],
        now: f64,
        why: &str,
        decisions: &mut Vec<Decision>,
    ) {
        let too_many =
            |of: &Governor, at: usize, size: u16| of.groups[at].colors.len().saturating_sub(size);
        let givers: Vec<Option<usize>> =
            std::iter::once(None).chain(sizes.iter().map(|of| Some(of.0))).collect();
        for giver in givers {
            let spare = match giver {
                None => self.free().len(),
                Some(at) => {
                    sizes.iter().find(|of| of.0 == at).map_or(0, |of| too_many(self, at, of.1))
                }
            };
            let moved = n.min(spare).min(self.bucket.left());
            if moved == 0 || giver == Some(taker) {
                continue;
            }
            let foretold = |at: usize, size: u16| {
                let rates = self.groups[at].curve.as_deref().unwrap_or_default();
                let rate = |n: u16| rates.get(usize::from(n)).copied().unwrap_or(1.0);
                format!(
                    "miss rate {:.3} -> {:.3}: {why}",
                    rate(self.groups[at].colors.len()),
                    rate(size)
                )
            };
            let taken = foretold(taker, self.groups[taker].colors.len() + moved);
            let given = giver
                .map_or(String::new(), |at| foretold(at, self.groups[at].colors.len() - moved));
            self.transfer(giver, taker, moved, now, [given, taken], decisions);
            n -= moved;
        }
    }

    fn is_hungry(&self, at: usize, now: f64) -> bool {
        let group = &self.groups[at];
        group.spec.bounds.is_some()
            && !group.rests(now, self.settings.rest)
            && group.gauge.want(self.settings.patience) == Want::More
    }

    fn forget_old_lessons(&mut self, at: usize, now: f64) {
        let group = &mut self.groups[at];
        let holds = |lesson: &Lesson| lesson.until > now;
        group.least = group.least.filter(holds);
        group.most = group.most.filter(holds);
        group.flat = group.flat.filter(|&until| until > now);
    }

    /// Whether more colours helped. Some growth without effect is allowed: programs that go round in
    /// their memory notice nothing until all of it fits.
    fn judge_growth(&mut self, at: usize, now: f64, decisions: &mut Vec<Decision>) {
        let (settings, colors) = (self.settings, self.pool.len());
        let group = &mut self.groups[at];
        let Some(trial) = group.grown.filter(|_| group.is_settled(now, &settings)) else { return };
        group.grown = None;
        let (Some(before), Some(after)) = (trial.before, group.gauge.last()) else { return };
        let least = (before.margin + after.margin).max(settings.gain * before.value.abs());
        if before.value - after.value >= least || group.gauge.want(settings.patience) != Want::More
        {
            group.useless = 0;
            group.step = (group.step * 2).min(settings.unit.max(1));
            group.again = settings.again;
            return;
        }
        group.useless += group.colors.len().saturating_sub(trial.size);
        let first = group.again <= settings.again;
        let enough = if first { (colors / 4).max(2 * settings.unit) } else { group.step };
        if group.useless < enough {
            return;
        }
        let size = group.colors.len() - group.useless.min(group.colors.len() - 1);
        let reason = format!(
            "{} more colours changed nothing ({}); it needs none of them for {:.0} s",
            group.useless,
            group.shown(),
            group.again
        );
        let until = now + group.again;
        (group.most, group.flat) = (Some(Lesson { size, until }), Some(until));
        group.learned(&settings);
        group.told = Some(Stuck::Useless);
        decisions.push(self.stays(at, reason));
    }

    /// Whether fewer colours harmed. Then they come back from who got them, unless that one goes first.
    fn judge_shrinking(&mut self, at: usize, now: f64, decisions: &mut Vec<Decision>) {
        let settings = self.settings;
        let group = &mut self.groups[at];
        let Some(trial) = group.shrunk.filter(|_| group.is_settled(now, &settings)) else { return };
        group.shrunk = None;
        if group.gauge.want(settings.patience) != Want::More {
            return;
        }
        if !group.got_worse(trial, &settings) {
            return;
        }
        group.flat = None;
        group.least = Some(Lesson { size: trial.size, until: now + group.again });
        group.learned(&settings);
        let missing = trial.size.saturating_sub(group.colors.len());
        let Some(partner) = trial.partner else { return };
        let (priority, seconds) = (group.spec.priority, group.again);
        let holder = &self.groups[partner];
        let spare = holder.colors.len().saturating_sub(holder.spec.floor);
        let n = missing.min(spare).min(self.bucket.left());
        if n == 0 || holder.spec.priority > priority {
            return;
        }
        let kept = self.groups[partner].colors.len() - n;
        self.groups[partner].most = Some(Lesson { size: kept, until: now + seconds });
        self.groups[partner].learned(&settings);
        let (name, other) =
            (self.groups[at].spec.name.clone(), self.groups[partner].spec.name.clone());
        let shown = self.groups[at].shown();
        let taken =
            format!("{shown} with {n} fewer, above its bound: takes them back from {other}");
        let given = format!("gives {n} back to {name}, which misses them");
        self.transfer(Some(partner), at, n, now, [given, taken], decisions);
        // What was made good again is no experiment.
        (self.groups[at].grown, self.groups[partner].shrunk) = (None, None);
    }

    /// Gives a group that wants more some colours, if there are any for it.
    fn feed(&mut self, at: usize, now: f64, decisions: &mut Vec<Decision>) {
        let group = &self.groups[at];
        let room = group.spec.ceiling.saturating_sub(group.colors.len());
        let useful = group.most.map_or(room, |most| most.size.saturating_sub(group.colors.len()));
        let wanted = room.min(useful).min(group.step);
        if wanted == 0 {
            let why = if room == 0 { Stuck::Ceiling } else { Stuck::Useless };
            return self.tell(at, why, decisions);
        }
        let left = self.bucket.left();
        if left == 0 {
            return;
        }
        let source = self.source(at, now);
        let Some((giver, spare, why)) = source else {
            return self.tell(at, Stuck::Nobody, decisions);
        };
        let n = wanted.min(spare).min(left);
        let shown = self.groups[at].shown();
        let from =
            giver.map_or("free ones".to_owned(), |giver| self.groups[giver].spec.name.clone());
        let high = self.groups[at].spec.bounds.map_or(0.0, |bounds| bounds.high);
        let taken = format!("{shown}, above {high}: takes {n} from {from} ({why})");
        let given = format!("{why}: gives {n} to {}", self.groups[at].spec.name);
        self.groups[at].told = None;
        self.transfer(giver, at, n, now, [given, taken], decisions);
    }

    /// Where colours are to be had for a group: whose, how many, and why there.
    fn source(&self, at: usize, now: f64) -> Option<(Option<usize>, u16, String)> {
        let free = self.free().len();
        if free > 0 {
            return Some((None, free, "nobody has them".to_owned()));
        }
        let priority = self.groups[at].spec.priority;
        let mut best: Option<((bool, u8, Want, u16), usize)> = None;
        for (giver, group) in self.groups.iter().enumerate().filter(|(giver, _)| *giver != at) {
            let Some((spare, rank)) = self.spare(group, priority, now) else { continue };
            let (willing, want) = rank;
            let key = (willing, u8::MAX - group.spec.priority, want, spare);
            if best.is_none_or(|(known, _)| gives_rather(key, known)) {
                best = Some((key, giver));
            }
        }
        let ((willing, ..), giver) = best?;
        let group = &self.groups[giver];
        let spare = self.spare(group, priority, now)?.0;
        Some((Some(giver), spare, group.why_it_gives(willing)))
    }

    /// What a group can give to one of some priority, and whether it does so willingly.
    fn spare(&self, group: &Group, priority: u8, now: f64) -> Option<(u16, (bool, Want))> {
        if group.spec.bounds.is_none() || group.rests(now, self.settings.rest) {
            return None;
        }
        let want = group.gauge.want(self.settings.patience);
        let willing = matches!(want, Want::Less | Want::Nothing) || group.flat.is_some();
        if !willing && group.spec.priority >= priority {
            return None;
        }
        // Who goes first does not ask what others learned, nor does it matter where nobody is.
        let learned = group.least.filter(|_| willing && want != Want::Nothing);
        let floor = group.spec.floor.max(learned.map_or(0, |least| least.size));
        let spare = group.colors.len().saturating_sub(floor);
        (spare > 0).then_some((spare, (willing, want)))
    }

    /// Colours of the pool that no group has.
    pub fn free(&self) -> ColorSet {
        self.groups.iter().fold(self.pool.clone(), |free, group| free.difference(&group.colors))
    }

    /// Moves `n` colours, the last of the giver's, and says so of both.
    fn transfer(
        &mut self,
        giver: Option<usize>,
        taker: usize,
        n: u16,
        now: f64,
        [given, taken]: [String; 2],
        decisions: &mut Vec<Decision>,
    ) {
        let source = giver.map_or_else(|| self.free(), |giver| self.groups[giver].colors.clone());
        let own = &self.groups[taker].colors;
        let mut moving = ColorSet::empty(self.pool.universe());
        let mut left = source;
        for _ in 0..n {
            // Beside its own if there is one: partitions stay in few runs.
            let near =
                left.iter().find(|color| is_beside(own, color.0) || is_beside(&moving, color.0));
            let Some(color) = near.or_else(|| left.iter().last()) else { break };
            left.remove(color);
            moving.insert(color);
        }
        self.bucket.take(moving.len());
        if let Some(giver) = giver {
            let to = self.groups[giver].colors.difference(&moving);
            decisions.push(self.change(giver, to, Some(taker), now, given));
        }
        let to = self.groups[taker].colors.union(&moving);
        decisions.push(self.change(taker, to, giver, now, taken));
    }

    fn change(
        &mut self,
        at: usize,
        to: ColorSet,
        partner: Option<usize>,
        now: f64,
        reason: String,
    ) -> Decision {
        let group = &mut self.groups[at];
        let trial = Trial { size: group.colors.len(), before: group.gauge.last(), partner };
        let grows = to.len() > group.colors.len();
        (group.grown, group.shrunk) = if grows { (Some(trial), None) } else { (None, Some(trial)) };
        let from = std::mem::replace(&mut group.colors, to.clone());
        group.changed = Some(now);
        group.gauge.forget();
        group.curve = None;
        Decision { group: GroupId(at), from, to, reason }
    }

    fn stays(&self, at: usize, reason: String) -> Decision {
        let colors = self.groups[at].colors.clone();
        Decision { group: GroupId(at), from: colors.clone(), to: colors, reason }
    }

    /// Says once why a group does not get what it wants.
    fn tell(&mut self, at: usize, why: Stuck, decisions: &mut Vec<Decision>) {
        if self.groups[at].told == Some(why) {
            return;
        }
        self.groups[at].told = Some(why);
        let group = &self.groups[at];
        let because = match why {
            Stuck::Ceiling => format!("it has its ceiling of {} colours", group.spec.ceiling),
            Stuck::Useless => "more changed nothing the last time".to_owned(),
            Stuck::Nobody => {
                "nobody can spare any and nobody of a lower priority has any".to_owned()
            }
        };
        let reason = format!("{} and gets no more: {because}", group.shown());
        decisions.push(self.stays(at, reason));
    }
}

impl Group {
    fn rests(&self, now: f64, rest: f64) -> bool {
        self.changed.is_some_and(|at| now >= at && now - at < rest)
    }

    /// Whether what came of the last change is known.
    fn is_settled(&self, now: f64, settings: &Settings) -> bool {
        !self.rests(now, settings.rest) && self.gauge.is_settled(settings.patience)
    }

    /// How far it is above its upper bound.
    fn excess(&self) -> f64 {
        let bounds = self.spec.bounds.zip(self.gauge.last());
        bounds
            .map_or(0.0, |(bounds, last)| (last.value - bounds.high) / bounds.high.abs().max(1e-9))
    }

    fn got_worse(&self, trial: Trial, settings: &Settings) -> bool {
        let (Some(before), Some(after)) = (trial.before, self.gauge.last()) else { return false };
        let least = (before.margin + after.margin).max(settings.gain * before.value.abs());
        after.value - before.value >= least
    }

    /// A mistake was made: smaller steps, and a longer time until the next.
    fn learned(&mut self, settings: &Settings) {
        self.again = (self.again * 2.0).min(LONGEST_AGAIN.max(settings.again));
        self.step = (self.step / 2).max(1);
        self.useless = 0;
    }

    /// Its last reading, for a reason.
    fn shown(&self) -> String {
        let what = self.spec.measure;
        match self.gauge.last() {
            Some(last) => format!("{what} {:.3} +- {:.3}", last.value, last.margin),
            None => "nobody there".to_owned(),
        }
    }

    fn why_it_gives(&self, willing: bool) -> String {
        let (low, shown) = (self.spec.bounds.map_or(0.0, |bounds| bounds.low), self.shown());
        match (willing, self.gauge.last()) {
            (true, None) => shown,
            (true, _) if self.flat.is_some() => format!("{shown}, and more changed nothing"),
            (true, _) => format!("{shown}, below {low}"),
            (false, _) => format!("priority {}", self.spec.priority),
        }
    }
}

/// Willing ones first, then those of low priority, then those that want least, then the richest.
fn gives_rather(a: (bool, u8, Want, u16), b: (bool, u8, Want, u16)) -> bool {
    let rank = |want| match want {
        Want::Nothing => 3_u8,
        Want::Less => 2,
        Want::Same => 1,
        Want::More => 0,
    };
    (a.0, a.1, rank(a.2), a.3) > (b.0, b.1, rank(b.2), b.3)
}

fn is_beside(colors: &ColorSet, color: u16) -> bool {
    use huepage_color::Color;
    let below = color.checked_sub(1).is_some_and(|color| colors.contains(Color(color)));
    below || colors.contains(Color(color.saturating_add(1)))
}
