//! SRM-buffer (Ding, Wang and Zhang, EuroSys 2011): the page cache's frames by colour, so that
//! a program that goes through files takes a small part of the shared cache at a time.
//!
//! Blocks that are read for the first time in a row are a *sequence* and get frames of one colour:
//! blocks of the same file, if it is larger than the threshold, else blocks that the same process
//! asks for (section 3.2). After a threshold of blocks a sequence goes on in another colour, so
//! that no colour of memory is used up. A colour that a sequence uses is *marked*, and no other
//! sequence takes it. Colours are taken in turns from those with more frames in stock than the
//! threshold; if there are none, the engine refills its stock from the old end of the inactive
//! list (figure 7).
//!
//! The feedback it needs: [`Event::FileMiss`] of all processes, [`Event::FileGone`], and answers
//! to what it asks about stock; for [`Rescan`] also [`Event::FileUse`]. Process memory is no part of
//! it: the engine hands out all colours in turns there (`huepage_frames::RoundRobin`).
//!
//! A miss takes constant time, and the colours once in a sequence. It keeps a few words for
//! each file above the threshold that was read, for each process, and for each colour.
//!
//! *Ours*, where the paper is silent: a sequence that began nothing new while as many others began as there
//! are colours loses its mark, though not its colour. Marks of files that were read, to their end or in part,
//! would stay for ever otherwise, and who goes on would find the colour that it has just left.

mod rescan;

use std::cmp::Reverse;
use std::collections::HashMap;

use huepage_color::{Color, NumberHash};

pub use rescan::Rescan;
use rescan::Watched;

use crate::event::{Action, Event, Policy};
use crate::input::InputKind;

/// What the policy goes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SrmSettings {
    /// Colours of the last shared cache, at least 1 (128 in figure 7, 64 on its Xeon 5355).
    pub colors: u16,
    /// Blocks of a sequence in one colour, at least 1; also the pages above which a file is a
    /// sequence of its own (Tl, section 3.2).
    pub threshold: u64,
    /// Finds files that would fit the cache and are scanned again and again, and spreads them; not
    /// in the paper.
    pub rescan: Option<Rescan>,
}

impl SrmSettings {
    /// Tl of the paper (section 4.1).
    pub const THRESHOLD: u64 = 256;

    /// The paper's policy for a cache of so many colours.
    pub const fn paper(colors: u16) -> SrmSettings {
        SrmSettings { colors, threshold: SrmSettings::THRESHOLD, rescan: None }
    }
}

/// Whose sequence it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    File(u64),
    Process(u32),
}

#[derive(Clone, Copy, Debug)]
struct Sequence {
    color: Color,
    /// Blocks placed in this colour.
    blocks: u64,
}

/// A sequence uses a colour.
#[derive(Clone, Copy, Debug)]
struct Mark {
    owner: Owner,
    since: u64,
}

/// A block that waits for its sequence to get a colour.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    file: u64,
    block: u64,
    pages: u64,
    owner: Owner,
}

/// The policy, for all processes of a machine together; see the [module](self).
#[derive(Clone, Debug)]
pub struct SrmBuffer {
    settings: SrmSettings,
    files: HashMap<u64, Sequence, NumberHash>,
    processes: HashMap<u32, Sequence, NumberHash>,
    marks: Vec<Option<Mark>>,
    stock: Vec<u64>,
    /// The colour that was taken last; the search goes on behind it.
    latest: usize,
    taken: u64,
    waiting: Vec<Waiting>,
    /// The stock was refilled for those who wait.
    refilled: bool,
    watched: Option<Watched>,
}

impl SrmBuffer {
    /// What it hears of.
    pub const NEEDS: &'static [InputKind] = &[InputKind::FileMisses, InputKind::Stock];
    /// The same with [`Rescan`].
    pub const NEEDS_OF_RESCAN: &'static [InputKind] =
        &[InputKind::FileMisses, InputKind::FileUses, InputKind::Stock];

    /// With nothing placed yet.
    ///
    /// # Panics
    /// Without colours, or with a threshold of 0.
    pub fn new(settings: SrmSettings) -> SrmBuffer {
        assert!(settings.colors > 0 && settings.threshold > 0, "no colours, or no sequences");
        let colors = usize::from(settings.colors);
        SrmBuffer {
            settings,
            files: HashMap::default(),
            processes: HashMap::default(),
            marks: vec![None; colors],
            stock: vec![0; colors],
            latest: colors - 1,
            taken: 0,
            waiting: Vec::new(),
            refilled: false,
            watched: settings.rescan.map(|rescan| Watched::new(rescan, settings.colors)),
        }
    }

    /// A process has ended: its mark and its sequence go. Its number may be another's now.
    pub fn forget_process(&mut self, process: u32) {
        self.processes.remove(&process);
        self.unmark(Owner::Process(process));
    }

    /// The colour in which the sequence of a file's next blocks would go on, for whoever looks.
    pub fn color_of_file(&self, file: u64) -> Option<Color> {
        self.files.get(&file).map(|sequence| sequence.color)
    }

    /// The colours that sequences use now.
    pub fn marked(&self) -> impl Iterator<Item = Color> + '_ {
        (0..).map(Color).zip(&self.marks).filter(|(_, mark)| mark.is_some()).map(|(c, _)| c)
    }

    fn sequence(&mut self, owner: Owner) -> Option<&mut Sequence> {
        match owner {
            Owner::File(file) => self.files.get_mut(&file),
            Owner::Process(process) => self.processes.get_mut(&process),
        }
    }

    fn missed(&mut self, miss: Waiting, actions: &mut Vec<Action>) {
        if let Some(to) = self.watched.as_mut().and_then(|w| w.spread_color(miss.file)) {
            self.place(miss, to, actions);
            return;
        }
        let threshold = self.settings.threshold;
        if let Some(sequence) = self.sequence(miss.owner)
            && sequence.blocks < threshold
        {
            sequence.blocks += 1;
            let to = sequence.color;
            self.place(miss, to, actions);
            return;
        }
        if self.waiting.is_empty() {
            actions.push(Action::TellStock);
        }
        self.waiting.push(miss);
    }

    fn place(&mut self, miss: Waiting, to: Color, actions: &mut Vec<Action>) {
        let Waiting { file, block, pages, .. } = miss;
        if let Some(watched) = &mut self.watched {
            watched.placed(file, block, pages, to);
        }
        actions.push(Action::PlaceBlock { file, block, to });
    }

    fn unmark(&mut self, owner: Owner) {
        let own = |mark: &&mut Option<Mark>| mark.is_some_and(|mark| mark.owner == owner);
        self.marks.iter_mut().filter(own).for_each(|mark| *mark = None);
    }

    /// Whoever waits gets a colour, after a refill if there is none to choose.
    fn choose(&mut self, actions: &mut Vec<Action>) {
        while let Some(&miss) = self.waiting.first() {
            // The sequence may have got its colour for a block that waited before this one.
            let threshold = self.settings.threshold;
            if self.sequence(miss.owner).is_none_or(|sequence| sequence.blocks >= threshold) {
                let found = self.unmarked();
                if found.is_none() && !self.refilled {
                    self.refilled = true;
                    actions.push(Action::RefillStock { above: threshold });
                    return;
                }
                self.begin(miss.owner, found.unwrap_or_else(|| self.least_bad()));
            }
            self.waiting.remove(0);
            self.missed(miss, actions);
        }
        self.refilled = false;
    }

    fn begin(&mut self, owner: Owner, at: usize) {
        self.unmark(owner);
        self.latest = at;
        self.taken += 1;
        self.marks[at] = Some(Mark { owner, since: self.taken });
        let color = Color(u16::try_from(at).unwrap_or(0));
        let sequence = Sequence { color, blocks: 0 };
        match owner {
            Owner::File(file) => _ = self.files.insert(file, sequence),
            Owner::Process(process) => _ = self.processes.insert(process, sequence),
        }
    }

    /// The next colour that nobody uses with more in stock than a sequence takes.
    fn unmarked(&self) -> Option<usize> {
        let n = self.stock.len();
        let mut turns = (1..=n).map(|step| (self.latest + step) % n);
        turns.find(|&at| self.mark(at).is_none() && self.stock[at] > self.settings.threshold)
    }

    /// Who uses a colour; nobody whose mark is as old as all colours in turn.
    fn mark(&self, at: usize) -> Option<Mark> {
        self.marks[at].filter(|mark| self.taken - mark.since < self.stock.len() as u64)
    }

    /// Where even a refill left no such colour: one that nobody uses, with most in stock; else the one that
    /// was marked first. A sequence's own colour counts as used: it would stay there for ever where files
    /// that were read in part have marked all others.
    fn least_bad(&self) -> usize {
        let n = self.stock.len();
        let enough = self.settings.threshold + 1;
        let turns = (1..=n).map(|step| (self.latest + step) % n);
        let rank = |&at: &usize| {
            let (stock, mark) = (self.stock[at], self.marks[at]);
            let since = mark.map_or(0, |mark| mark.since);
            (stock > 0, mark.is_none(), stock.min(enough), Reverse(since), stock)
        };
        // Of equals the first in turn.
        turns.rev().max_by_key(rank).unwrap_or(0)
    }

    fn used(&mut self, file: u64, block: u64, actions: &mut Vec<Action>) {
        let moves = self.watched.as_mut().map_or(Vec::new(), |w| w.used(file, block));
        let recolor = |(block, to)| Action::RecolourBlock { file, block, to };
        actions.extend(moves.into_iter().map(recolor));
    }

    fn gone(&mut self, file: u64) {
        self.unmark(Owner::File(file));
        self.files.remove(&file);
        self.waiting.retain(|miss| miss.file != file);
        self.watched.iter_mut().for_each(|watched| watched.gone(file));
    }
}

impl Policy for SrmBuffer {
    fn handle(&mut self, event: Event, actions: &mut Vec<Action>) {
        match event {
            Event::FileMiss { file, block, process, pages } => {
                let large = pages > self.settings.threshold;
                let owner = if large { Owner::File(file) } else { Owner::Process(process) };
                self.watched.iter_mut().for_each(|watched| watched.missed(file, block));
                self.missed(Waiting { file, block, pages, owner }, actions);
            }
            Event::FileUse { file, block, .. } => self.used(file, block, actions),
            Event::FileGone { file } => self.gone(file),
            Event::Stock { color, frames } => {
                if let Some(stock) = self.stock.get_mut(usize::from(color.0)) {
                    *stock = frames;
                }
            }
            Event::StockTold => self.choose(actions),
            Event::BlockRefused { file, block, .. } => {
                self.watched.iter_mut().for_each(|watched| watched.refused(file, block));
            }
            _ => {}
        }
    }
}
