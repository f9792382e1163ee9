//! The exhaustive search of ROCS (2008), section 6.2: every prefix of a miss-rate stack in steps is
//! confined at once, each on a machine of its own, and measured over the same accesses. Then looks
//! on with samples that cost nothing, under Linux and with the prefix that ROCS chose.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use huepage_color::{Color, ColorMap, PAGE_BYTES, Vpn};
use huepage_policy::{Action, Event, Policy};

use super::programs::RocsProgram;
use super::stream::{Blocks, FirstTouches};
use super::variants;
use super::window::{Lengths, Mark, PageSamples, Prefix, RegionSamples, Window};
use crate::run::{RunFailed, lock};
use huepage_sim::experiment::WishError;
use huepage_sim::feedback::{Every, Sense};
use huepage_sim::record::Record;
use huepage_sim::system::{RunError, System};
use huepage_sim::workloads::memory::HEAP;
use huepage_sim::workloads::{WorkloadSpec, art};

/// Every load that the nearest cache lacks is seen: samples by time would show more of what takes longer.
pub(super) const PERIOD: u64 = 1;
/// The first page of a workload's arrays.
const FIRST: u64 = HEAP / PAGE_BYTES;

/// Samples by page.
pub(super) type Samples = BTreeMap<Vpn, PageSamples>;

/// Looks on.
pub(super) struct Spy(pub(super) Arc<Mutex<Samples>>);

impl Policy for Spy {
    fn handle(&mut self, event: Event, _: &mut Vec<Action>) {
        if let Event::Sample { page, memory, .. } = event {
            let one = PageSamples { requests: 1, misses: u64::from(memory) };
            lock(&self.0).entry(page).or_default().add(one);
        }
    }
}

/// What came of it.
#[derive(Debug, Default)]
pub(super) struct Spied {
    /// Every prefix that was tried.
    pub(super) prefixes: Vec<Prefix>,
    before: Samples,
    after: Samples,
}

impl Spied {
    /// Art's weights, which come first in memory, and its layer.
    pub(super) fn regions(&self, spec: &WorkloadSpec, chosen: &[Vpn]) -> Vec<RegionSamples> {
        let chosen: BTreeSet<Vpn> = chosen.iter().copied().collect();
        let neurons = art::neurons(spec.parameters().size);
        let [weights, layer] =
            art::NEURON_BYTES.map(|bytes| (bytes * neurons) as u64 / PAGE_BYTES + 1);
        let pages = |from: u64, to: u64| -> Vec<Vpn> { (from..to).map(Vpn).collect() };
        let (weights, layer) =
            (pages(FIRST, FIRST + weights), pages(FIRST + weights, FIRST + weights + layer));
        let of =
            |samples: &Samples, pages: &[Vpn]| sum(pages.iter().filter_map(|p| samples.get(p)));
        let region = |name, pages: &[Vpn]| RegionSamples {
            name,
            pages: pages.len(),
            confined: pages.iter().filter(|page| chosen.contains(page)).count(),
            before: of(&self.before, pages),
            after: of(&self.after, pages),
        };
        vec![region("weights", &weights), region("layer", &layer)]
    }
}

fn sum<'a>(all: impl Iterator<Item = &'a PageSamples>) -> PageSamples {
    let mut sum = PageSamples::default();
    all.for_each(|seen| sum.add(*seen));
    sum
}

/// A machine with a prefix of the stack confined.
struct Run {
    pages: usize,
    system: System,
    samples: Option<Arc<Mutex<Samples>>>,
    begin: Option<Mark>,
    window: Window,
}

impl Run {
    fn new(program: &RocsProgram, pages: usize) -> Result<Run, WishError> {
        Ok(Run {
            pages,
            system: variants::system(program)?,
            samples: None,
            begin: None,
            window: Window::default(),
        })
    }

    fn begin(&mut self) {
        self.begin = Some(Mark::of(&self.system));
    }

    /// Looks on from now on, with the prefetchers off as in the paper's profiles (section 3.2.3).
    fn watch(&mut self) -> Result<(), RunError> {
        let samples: Arc<Mutex<Samples>> = Arc::default();
        let sample = Some(Every { every: PERIOD, cost: 0 });
        let sense = Sense { sample, sample_misses: true, ..Sense::default() };
        self.system.govern(0, Box::new(Spy(Arc::clone(&samples))), sense)?;
        self.system.switch_prefetchers(false);
        self.samples = Some(samples);
        Ok(())
    }

    /// The window ends.
    fn end(&mut self) {
        let end = Mark::of(&self.system);
        self.window = self.begin.map_or(Window::default(), |begin| begin.until(&end));
    }
}

/// Runs every prefix of a stack in steps, none and the one that was chosen among them.
pub(super) fn run<E>(
    program: &RocsProgram,
    lengths: Lengths,
    (stack, chosen): (&[Vpn], usize),
    mut blocks: Blocks<'_, E>,
    heard: &dyn Fn(u64),
) -> Result<Spied, RunFailed<E>> {
    let step = stack.len().div_ceil(lengths.steps).max(1);
    let sizes = (0..=lengths.steps).map(|n| (n * step).min(stack.len()));
    let sizes: BTreeSet<usize> = sizes.chain([chosen]).collect();
    let mut runs = sizes
        .into_iter()
        .map(|pages| Run::new(program, pages))
        .collect::<Result<Vec<_>, WishError>>()?;
    let colors = variants::colors()?;
    let measured = program.start + program.trial / 2;
    let (mut block, mut touches) = (Vec::new(), FirstTouches::default());
    while blocks.instructions < program.start && blocks.next(&mut block)? {
        each(runs.iter_mut(), &touches.of(&block), heard)?;
    }
    runs.iter_mut().for_each(|run| confine(&mut run.system, stack, run.pages, &colors));
    let end = measured + lengths.offline * program.trial;
    while blocks.instructions < end && blocks.next(&mut block)? {
        each(runs.iter_mut(), &block, heard)?;
        if runs[0].begin.is_none() && blocks.instructions >= measured {
            runs.iter_mut().for_each(Run::begin);
        }
    }
    runs.iter_mut().for_each(Run::end);
    let watched = |run: &&mut Run| [0, chosen].contains(&run.pages);
    runs.iter_mut().filter(watched).try_for_each(Run::watch)?;
    while blocks.instructions < end + program.trial && blocks.next(&mut block)? {
        each(runs.iter_mut().filter(watched), &block, heard)?;
    }
    runs.iter().try_for_each(|run| run.system.check()).map_err(RunFailed::Unsound)?;
    Ok(spied(&runs, chosen))
}

/// Does the same accesses on some machines.
fn each<'a, E>(
    runs: impl Iterator<Item = &'a mut Run>,
    block: &[Record],
    heard: &dyn Fn(u64),
) -> Result<(), RunFailed<E>> {
    for run in runs {
        run.system.run(0, block)?;
        heard(block.len() as u64);
    }
    Ok(())
}

fn spied(runs: &[Run], chosen: usize) -> Spied {
    let linux = runs[0].window;
    let samples = |run: &Run| run.samples.as_ref().map(|samples| lock(samples).clone());
    let after = runs.iter().find(|run| run.pages == chosen).and_then(samples);
    // A program that ended too soon has no prefixes.
    let prefixes = runs
        .iter()
        .filter(|_| linux.instructions > 0)
        .map(|run| Prefix { pages: run.pages, gain: run.window.gain(&linux) });
    Spied {
        prefixes: prefixes.collect(),
        before: samples(&runs[0]).unwrap_or_default(),
        after: after.unwrap_or_default(),
    }
}

/// Puts the first pages of a stack into the buffer, and the others out of it, as ROCS does. With no
/// page to confine everything stays.
fn confine(system: &mut System, stack: &[Vpn], pages: usize, colors: &ColorMap) {
    if pages == 0 {
        return;
    }
    let inside = variants::buffer();
    let outside = inside.complement();
    let mut turns = [inside.iter().last(), outside.iter().last()];
    for (at, &page) in stack.iter().enumerate() {
        let Some(mapping) = system.mapping(0, page) else { continue };
        let within = colors.color(mapping.frame()).is_some_and(|color| inside.contains(color));
        let wanted = at < pages;
        if within == wanted {
            continue;
        }
        let (set, turn) = if wanted { (&inside, &mut turns[0]) } else { (&outside, &mut turns[1]) };
        *turn = turn.and_then(|last: Color| set.next_after(last));
        if let Some(to) = *turn {
            // A page that has no frame to go to stays.
            let _ = system.recolor(0, 0, page, to);
        }
    }
}
