//! What the screen is about: the latest moment, rates against the one before, what was decided lately,
//! and where the user is. Pure: moments and keys go in, rows and wishes come out.

use std::cmp::Ordering;
use std::collections::VecDeque;

use super::changes;
use super::columns::COLUMNS;
use super::keys::TopKey;
use super::snapshot::{GroupNow, ProcessNow, TopDecision, TopGroupId, TopSnapshot};

/// Decisions that are remembered.
const REMEMBERED: usize = 500;
/// Rows that a page key moves by.
const PAGE: isize = 10;

/// By what processes are sorted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sort {
    /// Pid, the smallest first.
    #[default]
    Pid,
    Name,
    /// A figure, by the place of its column.
    Column(usize),
}

impl Sort {
    /// What it is called.
    pub fn name(self) -> &'static str {
        match self {
            Sort::Pid => "pid",
            Sort::Name => "name",
            Sort::Column(at) => COLUMNS[at].title,
        }
    }

    fn of(key: char) -> Option<Sort> {
        match key {
            'p' => Some(Sort::Pid),
            'n' => Some(Sort::Name),
            _ => COLUMNS.iter().position(|column| column.key == key).map(Sort::Column),
        }
    }

    /// What is compared, so that small comes first; `None` comes last, whichever way round.
    fn value(self, process: &ProcessNow) -> Option<f64> {
        let Sort::Column(at) = self else { return Some(f64::from(process.pid)) };
        let value = (COLUMNS[at].figure.value)(process)?;
        Some(if COLUMNS[at].ascending { value } else { -value })
    }

    fn compare(self, a: &ProcessNow, b: &ProcessNow, inverted: bool) -> Ordering {
        let turn = |order: Ordering| if inverted { order.reverse() } else { order };
        let order = match (self, self.value(a), self.value(b)) {
            (Sort::Name, ..) => turn(a.name.cmp(&b.name)),
            (_, Some(a), Some(b)) => turn(a.total_cmp(&b)),
            (_, a, b) => b.is_some().cmp(&a.is_some()),
        };
        order.then(a.pid.cmp(&b.pid))
    }
}

/// A row of the table, by whose it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Id {
    /// Of a group; `None`: those in no partition.
    Group(Option<TopGroupId>),
    /// Of a process, by its pid.
    Process(i32),
}

/// A row of the table.
#[derive(Clone, Copy, Debug)]
pub enum TopRow<'a> {
    /// The head of a group; `None`: of those in no partition.
    Group(Option<&'a GroupNow>),
    Process(&'a ProcessNow),
}

impl TopRow<'_> {
    /// Whose it is.
    pub fn id(&self) -> Id {
        match self {
            TopRow::Group(group) => Id::Group(group.map(GroupNow::id)),
            TopRow::Process(process) => Id::Process(process.pid),
        }
    }
}

/// What is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TopPage {
    /// Groups and processes.
    #[default]
    List,
    /// Residency of a process by address, from this row on.
    Heat { pid: i32, from: usize },
    /// The keys.
    Help,
}

/// What a key asks for that the model cannot do itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TopRequest {
    Quit,
    /// To freeze all policies of the daemon, or let them go on.
    Freeze {
        frozen: bool,
    },
}

/// See the module's head.
#[derive(Clone, Debug, Default)]
pub struct TopModel {
    /// The moment that is shown.
    pub now: TopSnapshot,
    decisions: VecDeque<TopDecision>,
    /// By what processes are sorted, and whether the other way round.
    pub sort: (Sort, bool),
    selected: Option<Id>,
    /// What is shown.
    pub page: TopPage,
    /// Whether the screen stands still.
    pub paused: bool,
    /// What there is to tell the user about the last key.
    pub message: Option<String>,
    /// Whether any moment has come.
    pub begun: bool,
}

/// Fills in what two moments tell together: pages recoloured a second.
pub fn rates(before: &TopSnapshot, now: &mut TopSnapshot) {
    let seconds = now.at - before.at;
    for process in &mut now.processes {
        let same =
            |old: &&ProcessNow| (old.pid, old.group_id()) == (process.pid, process.group_id());
        let old = before.processes.iter().find(same).and_then(|old| old.counts.as_ref());
        let (Some(old), Some(counts)) = (old, &process.counts) else { continue };
        let moved = counts.recolored.saturating_sub(old.recolored);
        process.recolored_per_second = (seconds > 0.0).then(|| moved as f64 / seconds);
    }
}

impl TopModel {
    /// Another moment has come; while the screen is paused it is dropped.
    pub fn update(&mut self, mut now: TopSnapshot) {
        if self.paused {
            return;
        }
        if self.begun {
            rates(&self.now, &mut now);
            self.decisions.extend(changes::between(&self.now, &now));
        }
        self.decisions.extend(now.decisions.iter().cloned());
        let many = self.decisions.len().saturating_sub(REMEMBERED);
        self.decisions.drain(..many);
        (self.now, self.begun) = (now, true);
    }

    /// What was decided lately, the newest first.
    pub fn decisions(&self) -> impl Iterator<Item = &TopDecision> {
        self.decisions.iter().rev()
    }

    /// The table: each group with its processes below it, those in no partition last.
    pub fn rows(&self) -> Vec<TopRow<'_>> {
        let of = |group: Option<TopGroupId>| {
            let own = self.now.processes.iter().filter(move |p| p.group_id() == group);
            let mut own: Vec<&ProcessNow> = own.collect();
            own.sort_by(|a, b| self.sort.0.compare(a, b, self.sort.1));
            own
        };
        let mut groups: Vec<_> =
            self.now.groups.iter().map(|group| (group, of(Some(group.id())))).collect();
        // By their first processes; the order of pids where they have none.
        groups.sort_by(|(_, a), (_, b)| match (a.first(), b.first()) {
            (Some(a), Some(b)) => self.sort.0.compare(a, b, self.sort.1),
            (a, b) => b.is_some().cmp(&a.is_some()),
        });
        let mut rows = Vec::new();
        for (group, own) in groups {
            rows.push(TopRow::Group(Some(group)));
            rows.extend(own.into_iter().map(TopRow::Process));
        }
        let alone = of(None);
        if !alone.is_empty() && !rows.is_empty() {
            rows.push(TopRow::Group(None));
        }
        rows.extend(alone.into_iter().map(TopRow::Process));
        rows
    }

    /// The place of the selected row.
    pub fn selected(&self, rows: &[TopRow]) -> usize {
        let at = self.selected.as_ref();
        let at = at.and_then(|id| rows.iter().position(|row| row.id() == *id));
        let first = || rows.iter().position(|row| matches!(row, TopRow::Process(_)));
        at.or_else(first).unwrap_or(0)
    }

    /// The process that the user looks at: the selected one, or the first of the selected group.
    pub fn focus(&self) -> Option<&ProcessNow> {
        if let TopPage::Heat { pid, .. } = self.page {
            return self.process(pid);
        }
        let rows = self.rows();
        rows.get(self.selected(&rows)..)?.iter().find_map(|row| match row {
            TopRow::Process(process) => Some(*process),
            TopRow::Group(_) => None,
        })
    }

    pub fn process(&self, pid: i32) -> Option<&ProcessNow> {
        self.now.processes.iter().find(|process| process.pid == pid)
    }

    pub fn group_of(&self, process: &ProcessNow) -> Option<&GroupNow> {
        self.now.groups.iter().find(|group| Some(group.id()) == process.group_id())
    }

    pub fn press(&mut self, key: TopKey) -> Option<TopRequest> {
        self.message = None;
        match (key, self.page) {
            (TopKey::Quit | TopKey::Char('q'), _) => return Some(TopRequest::Quit),
            (TopKey::Char('?' | 'h'), _) => self.page = TopPage::Help,
            (TopKey::Char(' '), _) => self.paused = !self.paused,
            (TopKey::Char('f'), _) => return self.wish_freeze(),
            (TopKey::Back, _) | (_, TopPage::Help) => self.page = TopPage::List,
            (TopKey::Enter, TopPage::List) => self.drill(),
            (TopKey::Char('i'), TopPage::List) => self.sort.1 = !self.sort.1,
            (TopKey::Char(key), TopPage::List) => self.sort_by(key),
            (key, TopPage::List) => self.walk(key),
            (key, TopPage::Heat { pid, from }) => {
                self.page = TopPage::Heat { pid, from: moved(from, usize::MAX, key) };
            }
        }
        None
    }

    /// Keeps the scrolling of a map within its rows, of which so many are seen at a time.
    pub fn keep_within(&mut self, rows: usize, seen: usize) {
        if let TopPage::Heat { from, .. } = &mut self.page {
            *from = (*from).min(rows.saturating_sub(seen));
        }
    }

    fn drill(&mut self) {
        match self.focus().map(|process| process.pid) {
            Some(pid) => self.page = TopPage::Heat { pid, from: 0 },
            None => {
                self.message = Some("no process to look into; name one: huepage top PID".to_owned())
            }
        }
    }

    fn sort_by(&mut self, key: char) {
        if let Some(sort) = Sort::of(key) {
            self.sort = (sort, false);
        }
    }

    fn walk(&mut self, key: TopKey) {
        let rows = self.rows();
        let to = moved(self.selected(&rows), rows.len().saturating_sub(1), key);
        self.selected = rows.get(to).map(TopRow::id);
    }

    fn wish_freeze(&mut self) -> Option<TopRequest> {
        if let Some(why) = &self.now.no_daemon {
            self.message = Some(format!("{why}: no policy to freeze"));
            return None;
        }
        let mut known = self.now.groups.iter().filter_map(|group| group.frozen).peekable();
        if known.peek().is_none() {
            self.message =
                Some("the daemon has no group whose policies could be frozen".to_owned());
            return None;
        }
        Some(TopRequest::Freeze { frozen: !known.all(|frozen| frozen) })
    }
}

/// A place after a key, from 0 to `last`.
fn moved(at: usize, last: usize, key: TopKey) -> usize {
    match key {
        TopKey::Up => at.saturating_sub(1),
        TopKey::Down => at.saturating_add(1).min(last),
        TopKey::PageUp => at.saturating_add_signed(-PAGE),
        TopKey::PageDown => at.saturating_add_signed(PAGE).min(last),
        TopKey::Home => 0,
        TopKey::End => last,
        _ => at,
    }
}
