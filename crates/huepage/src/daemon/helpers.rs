//! What runs for a group besides the engine that confines it, as its file asks: a worker that builds
//! superpages, who looks for polluting pages, the service that places files. They are the same as those of `huepage attach`, and are told of processes that come and go and of
//! other colours. What they decide is not known here.

use huepage_color::{CacheGeometry, ColorSet, IndexFunction, Provenance};
use huepage_linux::engine::{Desk, Group};
use huepage_linux::filecache::kin::Heads;
use huepage_linux::pollute::{PolluteReport, Polluters};
use huepage_linux::superpages::{Report, Worker};

use super::config::GroupConfig;
use super::extras::Extras;
use super::files::Files;
use super::pending::drop_behind;
use super::plan::Opened;
use crate::args::{ColorsFrom, PartitionArgs};
use crate::cmd::page_cache::report::PageCacheReport;
use crate::superpages::{SuperpageArgs, index_of, obstacle_in};

/// See the module's head.
pub struct Helpers {
    /// What the log calls the group.
    name: String,
    extras: Extras,
    cache: CacheGeometry,
    /// By which colours are computed, where they are.
    index: Option<IndexFunction>,
    desk: Desk,
    worker: Option<Worker>,
    /// Why no superpages are built, where they were asked for.
    no_superpages: Option<String>,
    polluters: Option<Polluters>,
    files: Option<Files>,
    /// The partition as the service is told of it, but for the colours.
    partition: PartitionArgs,
    members: Vec<i32>,
}

/// What would be done for a group besides giving it colours, one line each.
pub fn intended(group: &GroupConfig, opened: &Opened, colors: Option<&ColorSet>) -> Vec<String> {
    let mut lines = group.extras.lines();
    let index = index(opened);
    let why = colors.and_then(|colors| refusal(&group.extras, index.as_ref(), colors));
    lines.extend(why.map(|why| format!("no superpages are built: {why}")));
    lines
}

fn index(opened: &Opened) -> Option<IndexFunction> {
    index_of(&opened.cache, opened.index.as_ref(), opened.source.reference().is_some())
}

/// Why no superpages would be built in these colours, if they are asked for.
fn refusal(extras: &Extras, index: Option<&IndexFunction>, colors: &ColorSet) -> Option<String> {
    let respects = |args: &&SuperpageArgs| !args.weighs();
    extras.superpages.as_ref().filter(respects).map(|_| obstacle_in(index, colors))
}

/// Which colours are meant, with everything said that the daemon has found out.
fn partition(opened: &Opened) -> PartitionArgs {
    let found = match opened.provenance {
        Provenance::Probed => ColorsFrom::Probe,
        _ => ColorsFrom::Pfn,
    };
    let colors_from = Some(opened.asked.colors_from.clone().unwrap_or(found));
    PartitionArgs { colors_from, ..opened.asked.clone() }
}

impl Helpers {
    /// Begins what a group asks for; it has these colours, and nobody is in it yet.
    pub fn start(group: &GroupConfig, opened: &Opened, desk: Desk, colors: &ColorSet) -> Helpers {
        let mut helpers = Helpers {
            name: group.name.clone(),
            extras: Extras::default(),
            cache: opened.cache.clone(),
            index: index(opened),
            desk: desk.reopened(),
            worker: None,
            no_superpages: None,
            polluters: None,
            files: None,
            partition: partition(opened),
            members: Vec::new(),
        };
        helpers.reconfigure(group, colors, &[]);
        helpers
    }

    /// Is told otherwise from now on: what is asked for as before goes on, all else begins anew.
    pub fn reconfigure(&mut self, group: &GroupConfig, colors: &ColorSet, members: &[i32]) {
        let before = std::mem::replace(&mut self.extras, group.extras.clone());
        if before.superpages != self.extras.superpages {
            if let Some(worker) = self.worker.take() {
                // Who built them knew which pay; nobody does any more.
                self.desk.give_up_all();
                self.desk = self.desk.reopened();
                // It may wait for a process.
                drop_behind(worker);
            }
            let args = self.extras.superpages.as_ref();
            self.worker = args.and_then(|args| {
                let costs = args.costs_in(&self.cache, colors);
                args.start_in(self.desk.clone(), costs, members)
            });
        }
        if before.buffer != self.extras.buffer {
            drop_behind(self.polluters.take());
            let model = self.model(colors);
            let settings = self.extras.buffer.as_ref().zip(model);
            let provenance = match self.partition.colors_from {
                Some(ColorsFrom::Probe) => Provenance::Probed,
                Some(ColorsFrom::Declared(_)) => Provenance::Declared,
                _ => Provenance::Pfn,
            };
            let settings =
                settings.map(|(of, model)| of.args.settings(model, &self.cache, provenance));
            let heads = Heads::With(members.to_vec());
            self.polluters = settings.map(|settings| Polluters::new(settings, heads));
        }
        if before.page_cache != self.extras.page_cache {
            self.place_files(colors);
        }
        self.no_superpages = refusal(&self.extras, self.index.as_ref(), colors);
    }

    /// The cache as the group has it: so many colours, of which the last are the buffer.
    fn model(&self, colors: &ColorSet) -> Option<ColorSet> {
        let all = ColorSet::all(colors.len().max(1));
        self.extras.buffer.as_ref().map(|buffer| buffer.part.choose(&all, None))
    }

    /// Has files placed in these colours, if they are to be.
    fn place_files(&mut self, colors: &ColorSet) {
        // The old one ends before the new one begins.
        self.files = None;
        let partition =
            PartitionArgs { colors: Some(colors.to_string()), ..self.partition.clone() };
        self.files =
            self.extras.page_cache.clone().map(|args| Files::new(&self.name, args, partition));
    }

    /// The group has these colours from now on.
    pub fn recolor(&mut self, colors: &ColorSet) {
        let costs = self.extras.superpages.as_ref().and_then(|s| s.costs_in(&self.cache, colors));
        if let (Some(worker), Some(costs)) = (&self.worker, costs) {
            worker.set_costs(costs);
        }
        let model = self.model(colors);
        if let Some((polluters, model)) = self.polluters.as_mut().zip(model) {
            polluters.set_buffer(model);
        }
        if self.files.is_some() {
            self.place_files(colors);
        }
        self.no_superpages = refusal(&self.extras, self.index.as_ref(), colors);
    }

    /// These processes are in the group now.
    pub fn set_members(&mut self, members: &[i32]) {
        if let Some(worker) = &self.worker {
            worker.set_heads(Heads::With(members.to_vec()));
        }
        if let Some(polluters) = &mut self.polluters {
            polluters.set_heads(Heads::With(members.to_vec()));
            let gone = self.members.iter().filter(|pid| !members.contains(pid));
            gone.for_each(|&pid| polluters.release(pid));
        }
        self.members = members.to_vec();
    }

    /// One turn.
    pub fn tend(&mut self, group: &mut Group, members: &[i32]) {
        if let Some(polluters) = &mut self.polluters {
            polluters.tend(group);
            // Its figures are in the engine's; the rest of it is over.
            drop(polluters.take_ended());
        }
        if let Some(files) = &mut self.files {
            files.tend(members);
        }
    }

    /// Ends all of it.
    pub fn end(&mut self) {
        self.extras = Extras::default();
        drop_behind((self.worker.take(), self.polluters.take(), self.files.take()));
    }

    /// What was found about polluting pages of processes that run, if they are looked for; `buffer` are its
    /// colours.
    pub fn pollute(&self, buffer: Option<&ColorSet>) -> Option<PolluteReport> {
        let report = self.polluters.as_ref()?.report();
        // Who decides knows only how many colours there are.
        buffer.map(|colors| PolluteReport {
            buffer: colors.to_string(),
            of: colors.universe(),
            ..report
        })
    }

    /// What became of files, if they are placed and somebody was there.
    pub fn page_cache(&self) -> Option<PageCacheReport> {
        self.files.as_ref().and_then(Files::report)
    }

    /// What is the matter.
    pub fn trouble(&self) -> Option<String> {
        self.files.as_ref().and_then(Files::trouble)
    }

    /// What was done about superpages, if they are built.
    pub fn superpages(&self) -> Option<Report> {
        self.worker.as_ref().and_then(Worker::report)
    }

    /// Why none are, though they were asked for.
    pub fn no_superpages(&self) -> Option<&str> {
        self.no_superpages.as_deref()
    }

    /// What is asked for, and what will not be done of it; one line each.
    pub fn intentions(&self) -> Vec<String> {
        let refused = self.no_superpages.iter();
        let refused = refused.map(|why| format!("no superpages are built: {why}"));
        self.extras.lines().into_iter().chain(refused).collect()
    }

    /// What was done, one line each.
    pub fn done(&self) -> Vec<String> {
        let superpages = self.superpages().map(|report| {
            let (built, broken) = (report.promoted, report.demoted);
            format!("{built} superpages built, {broken} broken ({})", report.policy.text())
        });
        let refused = self.no_superpages.iter();
        let refused = refused.map(|why| format!("no superpages are built: {why}"));
        let files = self.page_cache().map(|report| {
            let gate = report.gate;
            format!("{} files placed, {} of {} pages", gate.files, gate.placed, gate.pages)
        });
        superpages.into_iter().chain(refused).chain(files).collect()
    }
}
