//! What experiments change: one thing each, of a workload or of a policy. Here is what that is, for which
//! workloads and policies, and why; the statements that do not hold are judged again with the outcomes of these
//! runs in the place of the others.

use super::made::MadeProgram;
use super::programs::RomerProgram;
use super::variants::{Initial, RomerChange, RomerPart, RomerVariant, SOFTWARE, variants};
use crate::engine::Named as _;

/// Times the accesses of [`RomerChange::Longer`].
const LONGER: u64 = 8;
/// Times the accesses to a pair in a row of [`RomerChange::Held`].
const HELD: u32 = 10;
/// Times the accesses of [`RomerChange::MuchLonger`]: vortex has 2,147 million instructions (table 6-1), and 160 here.
const MUCH_LONGER: u64 = 20;
/// Times the accesses of [`RomerChange::AllMappedLonger`].
const LONG: u64 = 4;
/// Pages of a piece of [`RomerChange::Pieces`]: 2 MB, of which TLBs hold as many as there are.
const PIECE: u64 = 512;
/// The streams of chapters 4 and 5, in the order of the thesis.
const STREAMS: &[&str] = &["gcc-a", "gcc-b", "cecil", "doduc", "nasa7-2", "nasa7-3", "splot", "gs"];

/// Those whose baselines are like the thesis's, but for nasa7-2, which the statement on page sizes excepts.
const SENSITIVE: &[&str] = &["gcc-a", "gcc-b", "cecil", "nasa7-3", "splot", "gs"];

impl RomerChange {
    /// Whether the TLBs hold all pages.
    pub const fn maps_all(self) -> bool {
        matches!(self, RomerChange::AllMapped | RomerChange::AllMappedLonger)
    }

    /// All that change something.
    pub fn experiments() -> impl Iterator<Item = RomerChange> {
        RomerChange::all().filter(|change| *change != RomerChange::Nothing)
    }

    /// The parts whose runs are repeated.
    pub const fn parts(self) -> &'static [RomerPart] {
        match self {
            RomerChange::Nothing
            | RomerChange::Longer
            | RomerChange::Whole
            | RomerChange::Pieces => &[RomerPart::Superpages],
            RomerChange::Apart => &[RomerPart::PageSizes, RomerPart::Settings],
            RomerChange::Held
            | RomerChange::Thresholds
            | RomerChange::OneSnapshot
            | RomerChange::Twice => &[RomerPart::Conflicts],
            RomerChange::MuchLonger | RomerChange::Soon => &[RomerPart::Rests],
            RomerChange::ApartThresholds => &[RomerPart::Settings],
            RomerChange::AllMapped | RomerChange::AllMappedLonger => &[RomerPart::PageSizes],
        }
    }

    /// The change on top of which it is made.
    pub const fn on_top_of(self) -> RomerChange {
        match self {
            RomerChange::Whole => RomerChange::Longer,
            RomerChange::ApartThresholds => RomerChange::Apart,
            RomerChange::AllMappedLonger => RomerChange::AllMapped,
            _ => RomerChange::Nothing,
        }
    }

    /// How the statements begin that it is about; all if empty.
    pub const fn of_statements(self) -> &'static str {
        match self {
            RomerChange::OneSnapshot => {
                "Snapshot-Miss beats or equals every other software policy on 8 of 10 workloads, page"
            }
            RomerChange::Twice => "CML-Fit beats Snapshot-Fit",
            RomerChange::Soon => "with a target of THROTTLE of 0.005",
            RomerChange::Pieces => "only fft",
            RomerChange::ApartThresholds => "no way to choose",
            RomerChange::AllMapped | RomerChange::AllMappedLonger => {
                "CML is only slightly sensitive to page size"
            }
            _ => "",
        }
    }

    /// The workloads that are run again.
    pub const fn programs(self) -> &'static [&'static str] {
        match self {
            RomerChange::Nothing => &[],
            RomerChange::Longer => &["atom", "fft"],
            RomerChange::Whole => &["atom"],
            RomerChange::Held | RomerChange::Apart => &["gcc-a", "gcc-b", "cecil", "splot", "gs"],
            RomerChange::Thresholds => &["nasa7-2", "nasa7-3"],
            RomerChange::OneSnapshot => STREAMS,
            RomerChange::Twice => &["gs"],
            RomerChange::MuchLonger => &["vortex"],
            RomerChange::Pieces => &["coral", "fpga"],
            RomerChange::ApartThresholds => &["nasa7-2"],
            RomerChange::AllMapped | RomerChange::AllMappedLonger => SENSITIVE,
            RomerChange::Soon => &["winword"],
        }
    }

    /// Under what, in a part.
    pub fn variants(self, part: RomerPart) -> Vec<RomerVariant> {
        if part.tries_settings() {
            let all = variants(part).into_iter();
            return all.map(|variant| RomerVariant { change: self, ..variant }).collect();
        }
        let of = |initial, policy: &&str| RomerVariant {
            change: self,
            ..RomerVariant::new(part, initial, policy)
        };
        let coloring =
            |policies: &[&str]| policies.iter().map(|p| of(Initial::Coloring, p)).collect();
        match self {
            RomerChange::Pieces => coloring(&["FIXED 4 KB", "APPROX-ONLINE"]),
            RomerChange::Longer | RomerChange::Whole => coloring(&[
                "FIXED 4 KB",
                "FIXED 16 KB",
                "FIXED 64 KB",
                "ASAP",
                "ASAP-4-64",
                "ONLINE",
                "APPROX-ONLINE",
            ]),
            RomerChange::Held => {
                let all = [&SOFTWARE[..], &["DM", "A2", "CML", "CML-Fit"]].concat();
                coloring(&all)
            }
            RomerChange::Thresholds => coloring(&["CML", "CML-Fit"]),
            RomerChange::OneSnapshot => coloring(&["Snapshot-Miss"]),
            RomerChange::Twice => {
                let policies = ["DM", "A2", "Snapshot-Fit", "CML-Fit"];
                policies.iter().map(|policy| of(Initial::Random, policy)).collect()
            }
            _ => Vec::new(),
        }
    }

    /// A workload as it is then.
    pub fn of(self, program: RomerProgram) -> RomerProgram {
        match self {
            RomerChange::Longer => times_as_long(LONGER, program),
            RomerChange::Whole => {
                let longer = RomerChange::Longer.of(program);
                RomerProgram { made: longer.made.map(MadeProgram::in_whole_groups), ..longer }
            }
            RomerChange::Held => {
                let held = |made: MadeProgram| MadeProgram { hold: HELD * made.hold, ..made };
                RomerProgram { made: program.made.map(held), ..program }
            }
            RomerChange::Apart => {
                let apart = |made: MadeProgram| MadeProgram { apart: true, ..made };
                RomerProgram { made: program.made.map(apart), ..program }
            }
            RomerChange::Twice => times_as_long(2, program),
            RomerChange::MuchLonger => {
                RomerProgram { quick: program.quick, ..times_as_long(MUCH_LONGER, program) }
            }
            RomerChange::AllMappedLonger => {
                RomerProgram { quick: program.quick, ..times_as_long(LONG, program) }
            }
            RomerChange::Soon => {
                RomerProgram { limit: program.limit / 10, quick: program.quick / 10, ..program }
            }
            RomerChange::Pieces => {
                let pieces = |made: MadeProgram| made.in_pieces(PIECE);
                RomerProgram { made: program.made.map(pieces), ..program }
            }
            RomerChange::Nothing
            | RomerChange::Thresholds
            | RomerChange::OneSnapshot
            | RomerChange::ApartThresholds
            | RomerChange::AllMapped => program,
        }
    }

    /// Why that, for a page.
    pub const fn reason(self) -> &'static str {
        match self {
            RomerChange::Nothing => "",
            RomerChange::Longer => {
                "APPROX-ONLINE pays once: misses until it knows which superpages are worth it, and a copy \
                 of each size on the way. The streams visit all pages of atom and fft equally; in the thesis \
                 OFFLINE builds superpages of a twentieth of atom's memory, so most of its misses are of few pages, \
                 for which the price comes back sooner. Here it does in longer runs."
            }
            RomerChange::Whole => {
                "Table 3-1 gives memory to a tenth of a MB, which is 26 pages. For atom's 32.7 MB the workload has 8,371 \
                 pages, three more than fill pages of 64 KB. What is done about these three decides the statement, \
                 where times are equal to the two digits of the thesis: ASAP-4-64 leaves them alone, and \
                 APPROX-ONLINE builds 16 KB of them and so takes one page more. Here atom has 8,368 pages, which \
                 is 32.7 MB as well, and both run as long as in the experiment above."
            }
            RomerChange::Held => {
                "How long two pages conflict the thesis does not print, and no baseline depends on it: a pair \
                 is used for 30,000 accesses in a row here instead of 3,000, as often in all. What a move saves grows \
                 with that, and what it costs does not."
            }
            RomerChange::Thresholds => {
                "nasa7-2 misses because it is larger than the cache. CML takes such misses for conflicts as soon as \
                 two pages of a colour have a few more than a page has lines. The thesis says the same (section \
                 5.6.4): with a higher threshold nasa7-2 is not recoloured."
            }
            _ => self.reason_of_delay(),
        }
    }

    /// The same of those about what passes until a policy acts.
    const fn reason_of_delay(self) -> &'static str {
        match self {
            RomerChange::OneSnapshot => {
                "The second snapshot is there to spare moves for conflicts that are over by then, and theirs often are: \
                 Snapshot-Delay beats Snapshot on eight programs of the thesis (section 4.4.1), which does not print how long \
                 two pages conflict. Pairs of the workloads conflict longer than a second snapshot takes, so Snapshot-Miss \
                 loses what passes until then. The thesis chose its settings by trial on its programs (the same section). \
                 Here Snapshot-Miss moves by one snapshot, for which the whole analysis is charged, and moves have the \
                 price of the Alpha as above. Only this statement is judged."
            }
            RomerChange::Twice => {
                "CML-Fit begins with twelve moves and gets more as they prove right, so it sorts pages that begin at random \
                 out slowly. gs has an eighth of its length in the thesis. Here it has a quarter, and as above the \
                 second half of every run counts. Only this statement is judged."
            }
            _ => self.reason_of_time_and_place(),
        }
    }

    /// The same of those about how long a program runs, and where its memory is.
    const fn reason_of_time_and_place(self) -> &'static str {
        match self {
            RomerChange::MuchLonger => {
                "vortex has 2,147 million instructions in the thesis (table 6-1) and 160 million here. THROTTLE rests for what \
                 it has spent by its first look after ten million, and that rest takes most of the shorter run. How long it is \
                 depends on the setting. Here vortex runs twenty times as long, half as long again as in the thesis."
            }
            RomerChange::Soon => {
                "winword of the thesis misses often for longer than THROTTLE's window. The workload uses the same 64 pages from \
                 its start on and has its superpages far sooner: even a window of a million instructions finds little to stop \
                 (the table of section 6.5.2). Here THROTTLE looks after a hundredth of its window, and the run has a tenth of \
                 its length. Only this statement is judged."
            }
            RomerChange::Pieces => {
                "Under ASAP coral and fpga keep 99 % of their misses in the thesis (table 3-4): their address spaces have gaps, \
                 of which it prints no more. The workloads have one piece of memory with small holes. Here each 2 MB lie at \
                 the start of 8 MB of their own, which changes no baseline: superpages of 64 KB and less are the same. Only \
                 this statement is judged."
            }
            RomerChange::Apart => {
                "The lines of a page that pairs use are in part those that the working set uses of its pages, so a page that is \
                 moved to where the working set is conflicts there as well. The thesis prints no lines, and baselines hardly \
                 depend on them, since nearly all pairs lie where the working set is not until one is moved. Here they are \
                 other lines, so every such colour is a cool one, of which programs that fit always have many (section 5.6.3)."
            }
            RomerChange::ApartThresholds => {
                "nasa7-2 does not fit and is moved without end, to where others are. With higher thresholds, as above, it is not \
                 moved. The other workloads are those of the experiment above. Only this statement is judged."
            }
            _ => self.reason_of_mapping(),
        }
    }

    /// The same of those about what the TLB holds.
    const fn reason_of_mapping(self) -> &'static str {
        match self {
            RomerChange::AllMapped => {
                "L2 MCPI of the thesis has TLB misses in it (section 4.3.3). With their pairs cecil and splot use a few more \
                 pages of 8 KB than the TLB holds, and fewer of 16 KB. So they save TLB misses with larger pages, under CML as \
                 without it. The thesis prints these misses for 8 KB alone. Here the TLB holds all pages, whatever their size, \
                 so that what is left is of the cache and of CML. Only this statement is judged."
            }
            RomerChange::AllMappedLonger => {
                "A move is paid once, costs twice as much for pages twice as large, and comes after as many misses as a page \
                 has lines. So what is left above depends on how long a program goes on after its moves. splot and gs have \
                 a third and an eighth of their length in the thesis, the others theirs. Here all run four times as long \
                 as above. Only this statement is judged."
            }
            _ => "",
        }
    }
}

/// So many times the accesses.
fn times_as_long(times: u64, program: RomerProgram) -> RomerProgram {
    RomerProgram { limit: times * program.limit, quick: times * program.quick, ..program }
}

#[cfg(test)]
mod tests {
    use super::super::measures;
    use super::super::programs::programs;
    use super::super::results::RomerResults;
    use super::super::run::RomerOutcome;
    use super::*;

    fn outcome(program: &str, change: RomerChange, pages: u64) -> RomerOutcome {
        let own = measures::tests::outcome(RomerPart::Superpages, "ASAP", 0, 0, pages);
        let variant = RomerVariant { change, ..own.variant };
        RomerOutcome { program: program.into(), variant, ..own }
    }

    #[test]
    fn a_change_on_top_of_another_has_what_that_one_changed() {
        let (nothing, longer, whole) =
            (RomerChange::Nothing, RomerChange::Longer, RomerChange::Whole);
        let all = [
            outcome("atom", nothing, 1),
            outcome("fft", nothing, 2),
            outcome("gcc", nothing, 3),
            outcome("atom", longer, 4),
            outcome("fft", longer, 5),
            outcome("atom", whole, 6),
        ];
        let pages = |change| {
            let changed = RomerResults(&all).changed(change).unwrap();
            let results = RomerResults(&changed);
            ["atom", "fft", "gcc"].map(|program| {
                results.colored(RomerPart::Superpages, program, "ASAP").map(|own| own.pages)
            })
        };
        assert_eq!(pages(longer), [Some(4), Some(5), Some(3)]);
        assert_eq!(pages(whole), [Some(6), Some(5), Some(3)]);
        assert!(RomerResults(&all[..5]).changed(whole).is_none());
    }

    #[test]
    fn atom_in_whole_pages_has_as_much_memory_to_the_digit_of_the_thesis() {
        let all = programs(RomerPart::Superpages, &[]);
        let atom = all.into_iter().find(|program| program.name == "atom").expect("a workload");
        let pages = |program: &RomerProgram| program.made.map_or(0, |made| made.set.pages);
        let whole = RomerChange::Whole.of(atom.clone());
        assert_eq!((pages(&atom) % 16, pages(&whole) % 16), (3, 0));
        let tenths = |pages: usize| (pages as f64 / 25.6).round();
        assert!((tenths(pages(&whole)) - tenths(pages(&atom))).abs() < 0.5);
        assert_eq!(whole.limit, LONGER * atom.limit);
    }

    #[test]
    fn what_is_changed_is_there_and_other_than_before() {
        for change in RomerChange::experiments() {
            let changes_policy =
                [RomerChange::Thresholds, RomerChange::OneSnapshot, RomerChange::ApartThresholds]
                    .contains(&change);
            let of_part = |part| programs(part, &[]).into_iter();
            let all: Vec<RomerProgram> = change.parts().iter().copied().flat_map(of_part).collect();
            for name in change.programs() {
                let before = all.iter().find(|program| program.name == *name).expect("a workload");
                let after = change.of(before.clone());
                let is_same = after == *before;
                let may_be = changes_policy || change == RomerChange::AllMapped;
                assert_eq!(may_be, is_same, "{change:?} of {name}");
            }
            let all = change.parts().iter().flat_map(|part| change.variants(*part));
            let all: Vec<RomerVariant> = all.collect();
            assert!(!all.is_empty() && change.reason().len() > 100);
            for variant in all {
                let plain = RomerVariant { change: RomerChange::Nothing, ..variant.clone() };
                let [after, before] = [&variant, &plain].map(|own| own.ready().unwrap().watch);
                let [after, before] = [after, before].map(|watch| watch.map(|(_, sense)| sense));
                assert_eq!(after == before, !changes_policy, "{variant:?}");
                let [after, before] = [&variant, &plain].map(|own| own.alpha().unwrap());
                assert_eq!(after != before, change.maps_all(), "{variant:?}");
            }
        }
    }
}
