//! What can be done for processes besides giving them colours: superpages, a pollute buffer, recolouring of
//! conflicts, files, text. Each is a [`Service`] in a module of its own, with its options. Which of them a plan asks
//! for is in [`crate::running_services`], what cannot be combined in [`crate::plan::combine`]; [`policy`] reads options that take
//! a policy.

pub mod conflicts;
pub mod files;
pub mod policy;
pub mod pollute;
pub mod superpages;
pub mod text;

use std::time::Duration;

use huepage_color::{CacheGeometry, IndexFunction, Provenance};
use huepage_linux::color::partition_registry::Registry;
use huepage_linux::color::sources::ColorSource;
use huepage_linux::engine::{Group, PromotionHandle};
use huepage_linux::kernel::process_tree::ProcessRoots;
use huepage_linux::services::conflicts::ConflictReport;
use huepage_linux::services::pollute::PolluteReport;
use huepage_linux::services::superpages::Report as SuperpageReport;
use huepage_linux::services::text::TextReport;
use serde::{Deserialize, Serialize};

use crate::partition::{DividedColors, PartitionArgs, Prepared};
use files::PageCacheReport;

/// How soon the next turn of a service comes that asks the engine for moves: while some are under way, and else. What a
/// policy asks for comes every few hundred milliseconds.
const MOVE_TURNS: [Duration; 2] = [Duration::from_millis(5), Duration::from_millis(50)];

/// The next turn of a service that asks the engine for moves.
fn move_turn(moving: bool) -> Option<Duration> {
    Some(MOVE_TURNS[usize::from(!moving)])
}

/// What a service needs to know of its group.
pub struct Context<'a> {
    /// Which colours of which cache were asked for.
    pub partition: &'a PartitionArgs,
    /// The cache.
    pub cache: &'a CacheGeometry,
    /// How colours are known.
    pub provenance: Provenance,
    /// By which colours are computed, if a file says it.
    pub index: Option<&'a IndexFunction>,
    /// Where colours come from.
    pub source: &'a dyn ColorSource,
    /// Where partitions are announced.
    pub registry: &'a Registry,
    /// The colours of the group.
    pub colors: &'a DividedColors,
    /// Where superpages in members are asked for.
    pub promotion_handle: PromotionHandle,
    /// Whose processes: those that descend from the supervisor, or members, of which there may be none yet.
    pub roots: ProcessRoots,
    /// Whether only errors are printed.
    pub quiet: bool,
}

impl<'a> Context<'a> {
    /// Of a group in a cache that was prepared.
    pub fn new(
        partition: &'a PartitionArgs,
        prepared: &'a Prepared,
        colors: &'a DividedColors,
        promotion_handle: PromotionHandle,
        roots: ProcessRoots,
    ) -> Context<'a> {
        Context {
            partition,
            cache: &prepared.cache,
            provenance: prepared.provenance,
            index: prepared.index.as_ref(),
            source: &*prepared.source,
            registry: &prepared.registry,
            colors,
            promotion_handle,
            roots,
            quiet: true,
        }
    }
}

/// Something that is done for the processes of a group.
pub trait Service: Send {
    /// The processes of the group are these from now on.
    fn admit(&mut self, members: &[i32]);

    /// One turn; the next one comes after [`Self::turn`] or sooner.
    fn tick(&mut self, _group: &mut Group, _members: &[i32]) {}

    /// A process is let go.
    fn release(&mut self, _pid: i32) {}

    /// A process is about to run its first instruction; it waits until this returns, `limit` at most.
    fn prepare(&mut self, _pid: i32, _limit: Duration) {}

    /// The group has these colours from now on.
    fn recolor(&mut self, _colors: &DividedColors) {}

    /// Writes down what was done so far.
    fn report(&self, into: &mut Reports);

    /// Ends it, and writes down what was done. By default it ends when it is dropped.
    fn finish(self: Box<Self>, into: &mut Reports) {
        self.report(into);
    }

    /// Ends it while the processes stay in the group: what it did that cannot stay is undone.
    fn withdraw(self: Box<Self>);

    /// What keeps it from its work.
    fn trouble(&self) -> Option<String> {
        None
    }

    /// Whether it has ended before its time and will not begin again.
    fn is_over(&self) -> bool {
        false
    }

    /// How soon its next turn is to come, where it asks the engine for moves.
    fn turn(&self) -> Option<Duration> {
        None
    }
}

/// What services did, each that there is.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Reports {
    /// Text and libraries.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<TextReport>,
    /// Files that were opened.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub page_cache: Option<PageCacheReport>,
    /// Superpages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub superpages: Option<SuperpageReport>,
    /// Why no superpages are built, where they were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_superpages: Option<String>,
    /// Pages that pollute the cache.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pollute: Option<PolluteReport>,
    /// Pages that conflict.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conflicts: Option<ConflictReport>,
}

impl Reports {
    /// For a person, in lines.
    pub fn text(&self) -> Vec<String> {
        let parts = [
            self.text.as_ref().map(|report| format!("huepage: {}", text::line(report))),
            self.page_cache.as_ref().map(PageCacheReport::text),
            self.superpages.as_ref().map(SuperpageReport::text),
            self.pollute.as_ref().map(PolluteReport::text),
            self.conflicts.as_ref().map(ConflictReport::text),
        ];
        parts.into_iter().flatten().collect()
    }

    /// What was done, one short line each.
    pub fn summary(&self) -> Vec<String> {
        let superpages = self.superpages.as_ref().map(|report| {
            let (built, broken) = (report.promoted, report.demoted);
            format!("{built} superpages built, {broken} broken ({})", report.policy)
        });
        let files = self.page_cache.as_ref().map(|report| {
            let gate = &report.gate;
            format!("{} files placed, {} of {} pages", gate.files, gate.placed, gate.pages)
        });
        let refused = self.no_superpages.iter();
        let refused = refused.map(|why| format!("no superpages are built: {why}"));
        superpages.into_iter().chain(refused).chain(files).collect()
    }
}
