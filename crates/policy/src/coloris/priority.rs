//! By priority: the monitor made fit for running unattended on estimates instead of counters. In every round
//! it first looks at what came of its last changes, and takes back those that were a mistake; then whoever
//! wants more takes from what is free, from who can do with less, and from who has a lower priority, in
//! this order.

use super::history::{Lesson, Stuck, Trial};
use super::manager::App;
use super::{Manager, Settings, Want};

impl Manager {
    /// Takes back mistakes, then gives to who wants more.
    pub(super) fn exchange(&mut self) {
        for at in 0..self.apps.len() {
            self.forget_old_lessons(at);
            self.judge_growth(at);
            self.judge_shrinking(at);
        }
        let mut hungry: Vec<usize> =
            (0..self.apps.len()).filter(|&at| self.is_hungry(at)).collect();
        hungry.sort_by(|&a, &b| {
            let excess = |at: usize| self.apps[at].excess();
            let priority = |at: usize| self.apps[at].spec.priority;
            priority(b).cmp(&priority(a)).then(excess(b).total_cmp(&excess(a))).then(a.cmp(&b))
        });
        hungry.into_iter().for_each(|at| self.feed(at));
    }

    fn is_hungry(&self, at: usize) -> bool {
        let app = &self.apps[at];
        app.spec.bounds.is_some()
            && !app.rests(self.now, self.settings.rest)
            && app.gauge.want(self.settings.patience) == Want::More
    }

    fn forget_old_lessons(&mut self, at: usize) {
        let (own, now) = (&mut self.apps[at].history, self.now);
        let holds = |lesson: &Lesson| lesson.until > now;
        own.least = own.least.filter(holds);
        own.most = own.most.filter(holds);
        own.flat = own.flat.filter(|&until| until > now);
    }

    /// Whether more colours helped. Some growth without effect is allowed: programs that go round in
    /// their memory notice nothing until all of it fits.
    fn judge_growth(&mut self, at: usize) {
        let (settings, colors, now) = (self.settings, self.pool.len(), self.now);
        let app = &mut self.apps[at];
        let settled = app.is_settled(now, &settings);
        let Some(trial) = app.history.grown.take_if(|_| settled) else { return };
        let wants = app.gauge.want(settings.patience) == Want::More;
        let Some((worse, least)) = app.worse_by(trial, &settings) else { return };
        let (shown, size, own) = (app.shown(), app.colors.len(), &mut app.history);
        if -worse >= least || !wants {
            return own.helped(&settings);
        }
        own.useless += size.saturating_sub(trial.size);
        let first = own.again <= settings.again;
        let enough = if first { (colors / 4).max(2 * settings.unit) } else { own.step };
        if own.useless < enough {
            return;
        }
        let (useless, again) = (own.useless, own.again);
        let until = now + again;
        own.most = Some(Lesson { size: size - useless.min(size - 1), until });
        (own.flat, own.told) = (Some(until), Some(Stuck::Useless));
        own.learned(&settings);
        let what = format!("{useless} more colours changed nothing ({shown})");
        self.stays(at, format!("{what}; it needs none of them for {again:.0} s"));
    }

    /// Whether fewer colours harmed. Then they come back from who got them, unless that one goes first.
    fn judge_shrinking(&mut self, at: usize) {
        let (settings, now) = (self.settings, self.now);
        let app = &mut self.apps[at];
        let settled = app.is_settled(now, &settings);
        let Some(trial) = app.history.shrunk.take_if(|_| settled) else { return };
        let wants = app.gauge.want(settings.patience) == Want::More;
        let harmed = app.worse_by(trial, &settings).is_some_and(|(worse, least)| worse >= least);
        if !wants || !harmed {
            return;
        }
        let own = &mut app.history;
        own.flat = None;
        own.least = Some(Lesson { size: trial.size, until: now + own.again });
        own.learned(&settings);
        let missing = trial.size.saturating_sub(app.colors.len());
        let Some(partner) = trial.partner else { return };
        let (priority, until) = (app.spec.priority, now + app.history.again);
        let n = missing.min(self.spare(partner)).min(self.bucket.left());
        if n == 0 || self.apps[partner].spec.priority > priority {
            return;
        }
        let holder = &mut self.apps[partner];
        holder.history.most = Some(Lesson { size: holder.colors.len() - n, until });
        holder.history.learned(&settings);
        self.give_back(partner, at, n);
    }

    fn give_back(&mut self, holder: usize, at: usize, n: u16) {
        let [name, other] = [at, holder].map(|at| self.apps[at].spec.name.clone());
        let shown = self.apps[at].shown();
        self.give(holder, n, Some(at), &format!("gives {n} back to {name}, which misses them"));
        let why = format!("{shown} with {n} fewer, above its bound: takes them back from {other}");
        self.take(at, n, Some(holder), &why);
        // What was made good again is no experiment.
        (self.apps[at].history.grown, self.apps[holder].history.shrunk) = (None, None);
    }

    /// Gives a program that wants more some colours, if there are any for it.
    fn feed(&mut self, at: usize) {
        let (app, room) = (&self.apps[at], self.room(at));
        let most = app.history.most.map(|most| most.size.saturating_sub(app.colors.len()));
        let wanted = room.min(most.unwrap_or(room)).min(app.history.step);
        if wanted == 0 {
            return self.tell(at, if room == 0 { Stuck::Ceiling } else { Stuck::Useless });
        }
        let left = self.bucket.left();
        if left == 0 {
            return;
        }
        let Some((giver, spare, why)) = self.source(at) else {
            return self.tell(at, Stuck::Nobody);
        };
        let n = wanted.min(spare).min(left);
        let (shown, name) = (self.apps[at].shown(), self.apps[at].spec.name.clone());
        let from = giver.map_or("free ones".to_owned(), |at| self.apps[at].spec.name.clone());
        let high = self.apps[at].spec.bounds.map_or(0.0, |bounds| bounds.high);
        self.apps[at].history.told = None;
        if let Some(giver) = giver {
            self.give(giver, n, Some(at), &format!("{why}: gives {n} to {name}"));
        }
        self.take(at, n, giver, &format!("{shown}, above {high}: takes {n} from {from} ({why})"));
    }

    /// Where colours are to be had for a program: whose, how many, and why there.
    fn source(&self, at: usize) -> Option<(Option<usize>, u16, String)> {
        let free = self.free().len();
        if free > 0 {
            return Some((None, free, "nobody has them".to_owned()));
        }
        // Willing ones first, then those of low priority, then those that want least, then the richest.
        let mut best: Option<((bool, u8, Want, u16), usize)> = None;
        for giver in (0..self.apps.len()).filter(|&giver| giver != at) {
            let Some((spare, willing, want)) = self.offer(giver, at) else { continue };
            let key = (willing, u8::MAX - self.apps[giver].spec.priority, want, spare);
            if best.is_none_or(|(known, _)| key > known) {
                best = Some((key, giver));
            }
        }
        let ((willing, _, _, spare), giver) = best?;
        Some((Some(giver), spare, self.apps[giver].why_it_gives(willing)))
    }

    /// What a program can give to another, whether it does so willingly, and what it wants.
    fn offer(&self, giver: usize, taker: usize) -> Option<(u16, bool, Want)> {
        let app = &self.apps[giver];
        let (want, own) = (app.gauge.want(self.settings.patience), &app.history);
        let willing = matches!(want, Want::Less | Want::Nothing) || own.flat.is_some();
        let asked = willing || app.spec.priority < self.apps[taker].spec.priority;
        // Who goes first does not ask what others learned, nor does it matter where nobody is.
        let learned = own.least.filter(|_| willing && want != Want::Nothing);
        let above = app.colors.len().saturating_sub(learned.map_or(0, |least| least.size));
        let spare = self.spare(giver).min(above);
        let gives = asked && spare > 0 && !app.rests(self.now, self.settings.rest);
        gives.then_some((spare, willing, want))
    }

    /// Says once why a program does not get what it wants.
    fn tell(&mut self, at: usize, why: Stuck) {
        if self.apps[at].history.told == Some(why) {
            return;
        }
        self.apps[at].history.told = Some(why);
        let app = &self.apps[at];
        let because = match why {
            Stuck::Ceiling => format!("it has its ceiling of {} colours", app.spec.ceiling),
            Stuck::Useless => "more changed nothing the last time".to_owned(),
            Stuck::Nobody => {
                "nobody can spare any and nobody of a lower priority has any".to_owned()
            }
        };
        self.stays(at, format!("{} and gets no more: {because}", app.shown()));
    }
}

impl App {
    /// Whether what came of the last change is known.
    fn is_settled(&self, now: f64, settings: &Settings) -> bool {
        !self.rests(now, settings.rest) && self.gauge.is_settled(settings.patience)
    }

    /// How far it is above its upper bound.
    fn excess(&self) -> f64 {
        let bounds = self.spec.bounds.zip(self.gauge.last);
        bounds
            .map_or(0.0, |(bounds, last)| (last.value - bounds.high) / bounds.high.abs().max(1e-9))
    }

    /// How much worse it became by a trial, and how much of that counts; none where it had no readings.
    fn worse_by(&self, trial: Trial, settings: &Settings) -> Option<(f64, f64)> {
        let (before, after) = (trial.before?, self.gauge.last?);
        let least = (before.margin + after.margin).max(settings.gain * before.value.abs());
        Some((after.value - before.value, least))
    }

    fn why_it_gives(&self, willing: bool) -> String {
        let (low, shown) = (self.spec.bounds.map_or(0.0, |bounds| bounds.low), self.shown());
        match (willing, self.gauge.last) {
            (true, None) => shown,
            (true, _) if self.history.flat.is_some() => {
                format!("{shown}, and more changed nothing")
            }
            (true, _) => format!("{shown}, below {low}"),
            (false, _) => format!("priority {}", self.spec.priority),
        }
    }
}
