//! Runs a case: the page cache is filled, programs run beside each other, and each of them has an
//! account of its own. Filling takes one access for each block, as only the order counts in which
//! blocks come; reads of the disk cost nothing, as the paper measures with a warm page cache.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::cases::{FileLoad, SrmCase, SrmPart};
use super::changes::SrmChange;
use super::place::PaperMachine;
use super::programs::SrmProgram;
use super::variants::{LINUX, Placement, SrmVariant, machine};
use super::waits::bus;
use crate::run::RunFailed;
use huepage_sim::cost::ProgramCosts;
use huepage_sim::experiment::WishError;
use huepage_sim::pagecache::PageCacheSpec;
use huepage_sim::record::{AccessKind, Record};
use huepage_sim::schedule::{BoxedSource, Schedule, ScheduleError, SchedulePlan};
use huepage_sim::system::{MemoryWait, RunError, System, file_number};
use huepage_sim::workloads::file::tree;
use huepage_sim::workloads::file_access::MAX_FILES;
use huepage_sim::workloads::{FileAccess, FileNumber, FileOp, WorkloadSpec};

/// Blocks that Linux reads ahead at most: 128 KiB.
const READ_AHEAD: u64 = 32;

/// What came of one program of a case.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SrmOutcome {
    /// The part that asked for it first.
    pub part: SrmPart,
    /// Where.
    pub place: PaperMachine,
    /// The program.
    pub program: String,
    /// The programs that counted in its run, it among them.
    pub among: Vec<String>,
    /// What ran beside them.
    pub beside: String,
    /// How frames were chosen.
    pub variant: SrmVariant,
    /// What an experiment did otherwise.
    pub change: SrmChange,
    /// Whether it is one of those that count, or one beside them.
    pub counts: bool,
    /// Instructions after the warm-up.
    pub instructions: u64,
    /// Cycles for them.
    pub cycles: u64,
    /// Requests that memory answered: misses of the last cache.
    pub misses: u64,
    /// Of the cycles, those of the policy and of moving blocks.
    pub policy_cycles: u64,
    /// Blocks moved, the warm-up not included.
    pub moved: u64,
    /// Uses of blocks that were in the page cache.
    pub file_hits: u64,
    /// Blocks that had to be read from the disk.
    pub file_reads: u64,
    /// Memory in MiB, for [`SrmPart::Hits`]; 0 elsewhere.
    pub memory: u64,
}

impl SrmOutcome {
    /// Whether both are of the same programs on the same machine and kernel.
    pub(super) fn is_same_case(&self, other: &SrmOutcome) -> bool {
        (self.place, self.variant, self.memory) == (other.place, other.variant, other.memory)
            && (&self.among, &self.beside) == (&other.among, &other.beside)
    }

    /// Cycles per instruction.
    pub fn cpi(&self) -> f64 {
        self.cycles as f64 / self.instructions.max(1) as f64
    }

    /// Misses of the last cache per million instructions (figure 2b).
    pub fn misses_per_million(&self) -> f64 {
        1e6 * self.misses as f64 / self.instructions.max(1) as f64
    }

    /// Percent of the uses of blocks, but for new ones, that need no disk; none without uses.
    pub fn hit_ratio(&self) -> Option<f64> {
        let uses = self.file_hits + self.file_reads;
        (uses > 0).then(|| 100.0 * self.file_hits as f64 / uses as f64)
    }
}

/// Runs a case; `open` gives a program's accesses, `heard` gets numbers of accesses simulated.
///
/// # Errors
/// When a source or the machine cannot.
pub fn run<'a, E>(
    case: &SrmCase,
    open: &dyn Fn(&SrmProgram) -> Result<BoxedSource<'a, E>, E>,
    heard: &dyn Fn(u64),
) -> Result<Vec<SrmOutcome>, RunFailed<E>> {
    let mut machine = machine(case.place)?;
    if case.part == SrmPart::Queries {
        machine.page_cache =
            Some(PageCacheSpec { read_ahead: READ_AHEAD, ..PageCacheSpec::default() });
    }
    let (mut system, placement) = case.variant.build(machine, LINUX)?;
    let placement = case.change.of_placement(placement);
    system.share_bus(case.change.of_bus(bus(case.place)));
    let mut first = 0;
    for load in &case.loads {
        fill(&mut system, &placement, first, load)?;
        first += 1;
    }
    let plan =
        SchedulePlan { quantum: u64::MAX, restart: true, warm_up: case.warm_up, limit: case.limit };
    let mut schedule = Schedule::new(system.cores(), plan).with_spaces_from(first);
    for program in &case.programs {
        schedule.add(open(program).map_err(RunFailed::Source)?);
    }
    for program in &case.others {
        schedule.add_beside(open(program).map_err(RunFailed::Source)?);
    }
    let programs: Vec<&SrmProgram> = case.programs.iter().chain(&case.others).collect();
    let waits = programs.iter().map(|program| case.change.wait(case.place, program)).collect();
    let ready = Ready { placement: &placement, waits };
    go(&mut schedule, &mut system, &ready, heard)?;
    system.finish();
    system.check().map_err(RunFailed::Unsound)?;
    Ok(outcomes(case, &system, &schedule.spaces()))
}

/// What is done for each program before its first access.
struct Ready<'a> {
    placement: &'a Placement,
    /// What each waits for of memory.
    waits: Vec<MemoryWait>,
}

impl Ready<'_> {
    fn prepare(&self, system: &mut System, program: usize, space: u16) -> Result<(), RunError> {
        let wait = self.waits.get(program).copied().unwrap_or_default();
        system.wait_for(space, wait)?;
        self.placement.prepare(system, space)
    }
}

/// Runs the programs; errors that the machine has while a program is prepared are kept apart from
/// those of sources.
fn go<'a, E>(
    schedule: &mut Schedule<'a, E>,
    system: &mut System,
    ready: &Ready<'_>,
    heard: &dyn Fn(u64),
) -> Result<(), RunFailed<E>> {
    let (mut failed, mut before) = (None, 0);
    let announce = |system: &mut System, program: usize, space: u16| {
        failed = failed.or(ready.prepare(system, program, space).err());
        Ok(())
    };
    let progress = |accesses: u64| {
        // Now and then is often enough.
        if accesses - before >= 1 << 20 {
            heard(accesses - before);
            before = accesses;
        }
    };
    schedule.run(system, announce, progress).map_err(|error| match error {
        ScheduleError::Run(error) => RunFailed::Machine(error),
        ScheduleError::Source(error) => RunFailed::Source(error),
    })?;
    Ok(failed.map_or(Ok(()), Err)?)
}

fn outcomes(case: &SrmCase, system: &System, spaces: &[Vec<u16>]) -> Vec<SrmOutcome> {
    let programs = case.programs.iter().map(|program| (program, true));
    let others = case.others.iter().map(|program| (program, false));
    let among: Vec<String> = case.programs.iter().map(|program| program.name.clone()).collect();
    let account = |((program, counts), own): ((&SrmProgram, bool), &Vec<u16>)| {
        let costs: Vec<ProgramCosts> = own.iter().map(|&space| system.costs(space)).collect();
        let sum = |of: fn(&ProgramCosts) -> u64| costs.iter().map(of).sum::<u64>();
        SrmOutcome {
            part: case.part,
            place: case.place,
            program: program.name.clone(),
            among: among.clone(),
            beside: case.beside.clone(),
            variant: case.variant,
            change: case.change,
            counts,
            instructions: sum(|costs| costs.instructions),
            cycles: sum(ProgramCosts::cycles),
            misses: sum(|costs| costs.memory),
            policy_cycles: sum(ProgramCosts::management_cycles),
            moved: sum(|costs| costs.recolorings),
            file_hits: sum(|costs| costs.file_hits),
            file_reads: sum(|costs| costs.file_misses),
            memory: 0,
        }
    };
    programs.chain(others).zip(spaces).map(account).collect()
}

/// Fills the page cache on behalf of a process.
fn fill<E>(
    system: &mut System,
    placement: &Placement,
    space: u16,
    load: &FileLoad,
) -> Result<(), RunFailed<E>> {
    let (FileLoad::Run { volume, .. } | FileLoad::GrepBoth { volume, .. }) = *load;
    system.use_files(space, volume)?;
    placement.prepare(system, space)?;
    for (file, bytes) in sizes(load)? {
        system.set_file_size(file_number(volume, file), bytes);
    }
    let mut failed = None;
    calls(load, &mut |call| {
        if failed.is_none() {
            failed = touch_blocks(system, space, volume, call).err();
        }
    })?;
    Ok(failed.map_or(Ok(()), Err)?)
}

/// Sizes of the files that are there from the beginning: up to what is read of them.
fn sizes(load: &FileLoad) -> Result<BTreeMap<FileNumber, u64>, WishError> {
    let (mut sizes, mut made) = (BTreeMap::new(), BTreeSet::new());
    calls(load, &mut |call: FileAccess| match call.op {
        FileOp::Create => _ = made.insert(call.file),
        FileOp::Read if !made.contains(&call.file) => {
            let size = sizes.entry(call.file).or_default();
            *size = call.end().max(*size);
        }
        _ => {}
    })?;
    Ok(sizes)
}

/// Tells the calls of who loads.
fn calls(load: &FileLoad, note: &mut dyn FnMut(FileAccess)) -> Result<(), WishError> {
    match load {
        FileLoad::Run { spec, .. } => {
            let spec: WorkloadSpec = spec.parse().map_err(|e| WishError::new(format!("{e}")))?;
            spec.run_files(note);
        }
        FileLoad::GrepBoth { bytes, .. } => {
            // Seed 1 is that of a workload that names none.
            let trees = [0, MAX_FILES / 2].map(|first| tree(first, bytes / 2, 1));
            for file in trees.iter().flatten() {
                let (op, bytes) = (FileOp::Read, file.bytes as u64);
                note(FileAccess { file: file.id, op, offset: 0, bytes });
            }
        }
    }
    Ok(())
}

/// One access to each block that a call uses.
///
/// # Errors
/// As [`System::access`].
pub(super) fn touch_blocks(
    system: &mut System,
    space: u16,
    volume: u32,
    call: FileAccess,
) -> Result<(), RunError> {
    let kind = match call.op {
        FileOp::Create => return Ok(()),
        FileOp::Delete => {
            system.delete_file(file_number(volume, call.file));
            return Ok(());
        }
        FileOp::Read => AccessKind::Load,
        FileOp::Write => AccessKind::Store,
    };
    let mut offset = call.offset;
    while offset < call.end() {
        let address = call.file.address(offset);
        let record = Record { address, space, bytes: 1, ..Record::plain(0, kind) };
        system.run(0, &[record])?;
        offset = (offset | 4095) + 1;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use huepage_sim::schedule::AccessSource;

    use super::*;
    use crate::srm::cases::ALONE;

    /// Loads in a row over so many bytes, again and again.
    struct Sweep {
        bytes: u64,
        at: u64,
        left: u64,
        from: u64,
        volume: Option<u32>,
    }

    impl AccessSource<()> for Sweep {
        fn next(&mut self, batch: &mut Vec<Record>) -> Result<bool, ()> {
            batch.clear();
            while self.left > 0 && batch.len() < 1000 {
                batch.push(Record::plain(self.from + self.at, AccessKind::Load));
                (self.at, self.left) = ((self.at + 64) % self.bytes, self.left - 1);
            }
            Ok(!batch.is_empty())
        }

        fn restart(&mut self) -> Result<(), ()> {
            (self.at, self.left) = (0, 400_000);
            Ok(())
        }

        fn volume(&self) -> Option<u32> {
            self.volume
        }
    }

    /// 3 MiB of memory beside a scan of a file of 32 MiB.
    fn open(program: &SrmProgram) -> Result<BoxedSource<'static, ()>, ()> {
        let file = FileNumber(0).address(0).0;
        let (bytes, from, volume) =
            if program.name == "scan" { (32 << 20, file, Some(1)) } else { (3 << 20, 4096, None) };
        Ok(Box::new(Sweep { bytes, at: 0, left: 400_000, from, volume }))
    }

    fn outcomes(variant: SrmVariant, beside: bool) -> Vec<SrmOutcome> {
        outcomes_of(SrmPart::Traces, variant, beside)
    }

    fn outcomes_of(part: SrmPart, variant: SrmVariant, beside: bool) -> Vec<SrmOutcome> {
        let load = FileLoad::Run { spec: "rescan:size=32M,rounds=1".into(), volume: 1 };
        let case = SrmCase {
            part,
            place: PaperMachine::Xeon,
            beside: if beside { "scan" } else { ALONE }.into(),
            variant,
            programs: vec![SrmProgram::trace("sweep", 0)],
            others: if beside { vec![SrmProgram::trace("scan", 1)] } else { Vec::new() },
            loads: vec![load],
            warm_up: 100_000,
            limit: 400_000,
            change: SrmChange::Nothing,
        };
        run(&case, &open, &|_| ()).expect("a sound case")
    }

    #[test]
    fn a_scan_pollutes_less_in_one_colour_at_a_time() {
        let alone = outcomes(SrmVariant::SRM, false);
        assert_eq!((alone.len(), alone[0].misses), (1, 0), "3 MiB in colours in turn fit");
        let with = |variant| outcomes(variant, true);
        let (linux, turns, srm) =
            (with(SrmVariant::Linux), with(SrmVariant::Turns), with(SrmVariant::SRM));
        let misses = [&linux, &turns, &srm].map(|all| all[0].misses);
        // Colours in turn alone do not keep a scan that is larger than the cache from its sets.
        assert!(10 * misses[2] < misses[0].min(misses[1]), "{misses:?}");
        assert!(srm[0].misses > 0 && srm[0].misses_per_million() > 0.0);
        assert!(linux[0].cpi() > srm[0].cpi() && srm[0].cpi() > alone[0].cpi());
        for all in [linux, turns, srm] {
            assert!(all[0].counts && !all[1].counts);
            assert_eq!((all[1].file_reads, all[1].hit_ratio()), (0, Some(100.0)), "it was loaded");
        }
    }

    /// Files are read from start to end before anything runs, so that their blocks come in the same
    /// order, and are in memory afterwards.
    #[test]
    fn read_ahead_changes_nothing_where_all_files_are_in_memory() {
        for variant in [SrmVariant::Linux, SrmVariant::SRM] {
            let with = outcomes_of(SrmPart::Queries, variant, true);
            let without = outcomes_of(SrmPart::Traces, variant, true);
            let part = SrmPart::Traces;
            let with: Vec<_> = with.into_iter().map(|own| SrmOutcome { part, ..own }).collect();
            assert_eq!(with, without, "{variant:?}");
        }
    }

    #[test]
    fn loads_know_sizes_before_they_read() {
        let spec = "tar:size=1M,rounds=1".into();
        let sizes = sizes(&FileLoad::Run { spec, volume: 1 }).expect("a workload");
        assert_eq!(sizes.values().sum::<u64>(), 1 << 20, "the tree without the archive");
        let both = FileLoad::GrepBoth { bytes: 2 << 20, volume: 1 };
        let spec = "diff:size=2M,rounds=1".into();
        let by_diff = super::sizes(&FileLoad::Run { spec, volume: 1 }).expect("a workload");
        assert_eq!(super::sizes(&both).expect("trees"), by_diff, "the same files");
    }
}
