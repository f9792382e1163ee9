//! What `huepage suits` prints: the figures, and for each of share and superpages a verdict with the command that
//! follows from it.

use std::fmt::Write as _;

use huepage_linux::color::doctor::siblings::CpuRelation;
use huepage_policy::suitability::{PartitionSuits, SuperpagesSuit};
use indicatif::HumanBytes;
use serde::Serialize;

use super::watch::Observed;
use crate::style::{self, Style};

/// Others that are named.
const NAMED: usize = 3;

/// What was seen and what it says; its JSON form is the output of `--json`.
#[derive(Debug, Serialize)]
pub struct Suits {
    #[serde(flatten)]
    pub observed: Observed,
    pub partition: PartitionSuits,
    pub superpages: SuperpagesSuit,
    /// Whether it is still there to be attached to.
    #[serde(skip)]
    pub lives_on: bool,
}

impl Suits {
    /// For a person.
    pub fn text(&self, style: Style) -> String {
        let seen = &self.observed;
        let mut table = style.table(&["", "seen"]);
        for (what, text) in [
            ("program", self.program()),
            ("L2", self.l2()),
            ("TLB", self.tlb()),
            ("beside it", self.beside()),
            ("core", self.core()),
            ("last level", self.last_level()),
        ] {
            table.add_row([what.to_owned(), text]);
        }
        let mut text = format!("process {} ({}), {:.1} s", seen.pid, seen.name, seen.seconds);
        text += if seen.ended { ", then it ended\n\n" } else { "\n\n" };
        text += &style::lay_out(table);
        if let Some(why) = &seen.unseen {
            let _ = writeln!(text, "its pages could not be looked at: {why}");
        }
        let verdict = |worth: bool, words: String| {
            if worth { style.green(words) } else { style.yellow(words) }
        };
        let share = verdict(self.partition.is_worth(), self.share_verdict());
        let pays = self.superpages == SuperpagesSuit::Worth;
        let superpages = verdict(pays, self.superpages_verdict());
        let _ = writeln!(text, "\nshare of the L2: {share}\nsuperpages: {superpages}");
        text
    }

    fn program(&self) -> String {
        let seen = &self.observed;
        let cpus: Vec<String> = seen.cpus.iter().map(ToString::to_string).collect();
        let huge = match seen.program.huge_bytes {
            0 => String::new(),
            bytes => format!(", {} of it in superpages", HumanBytes(bytes)),
        };
        let resident = HumanBytes(seen.program.resident_bytes);
        format!(
            "{} of CPU time, on CPU {}; {resident} resident{huge}",
            percent(seen.program.cpu),
            cpus.join(", ")
        )
    }

    fn l2(&self) -> String {
        let (seen, cache) = (&self.observed.program, &self.observed.cache);
        let of = format!("{} in {} colours", HumanBytes(cache.bytes), cache.colors);
        let reused = seen.reused_bytes.map_or_else(
            || "how much it reuses is not known".to_owned(),
            |bytes| format!("it reuses {} within milliseconds", HumanBytes(bytes)),
        );
        let streamed = seen.streamed_bytes_per_second.map_or_else(String::new, |bytes| {
            format!(
                ", and passes through {} of other memory in a second of its CPU time",
                HumanBytes(bytes)
            )
        });
        format!("{of}; {reused}{streamed}")
    }

    fn tlb(&self) -> String {
        let seen = &self.observed.program;
        if seen.blocks == Some(0) {
            return "it has no memory in which a page of 2 MiB fits".to_owned();
        }
        let Some(share) = seen.tlb_share else { return "misses could not be told".to_owned() };
        let built = style::count(seen.superpages, "superpage", "superpages");
        format!("misses take at most {} of its CPU time; {built} would be built", percent(share))
    }

    fn beside(&self) -> String {
        let seen = &self.observed;
        let share = |ns: u64| percent(ns as f64 / 1e9 / seen.seconds);
        let named = seen.sharers.iter().filter(|one| one.cpu_ns > 0).take(NAMED);
        let named: Vec<String> =
            named.map(|one| format!("{} ({}) {}", one.name, one.pid, share(one.cpu_ns))).collect();
        if named.is_empty() {
            return "nobody used CPUs that share its L2".to_owned();
        }
        let all = percent(seen.cache.others);
        format!("others used {all} of CPU time where its L2 is shared: {}", named.join(", "))
    }

    fn core(&self) -> String {
        let seen = &self.observed;
        let own = |cpu: &usize| u32::try_from(*cpu).is_ok_and(|cpu| seen.cpus.contains(&cpu));
        let pairs = seen.siblings.iter().filter(|pair| pair.cpus.iter().any(own));
        let words = pairs.filter_map(|pair| {
            let ([one, other], share) = (pair.cpus, &pair.share);
            let how = match pair.relation {
                CpuRelation::Siblings => "share a core",
                CpuRelation::AtTimes => "share a core at times",
                CpuRelation::Unclear => "may share a core",
                CpuRelation::Apart => return None,
            };
            let (low, high) = (share.low * 100.0, share.high * 100.0);
            Some(format!("CPUs {one} and {other} {how} ({low:.0}-{high:.0} % of the time)"))
        });
        let words: Vec<String> = words.collect();
        let shared = match words.is_empty() {
            true => "no CPU of this system shares its core, as measured".to_owned(),
            false => words.join("; "),
        };
        let felt = seen.neighbors.map_or_else(String::new, |one| {
            format!(
                "; another thread on the core was felt {} of the time",
                percent(one.felt.estimate)
            )
        });
        shared + &felt
    }

    fn last_level(&self) -> String {
        let Some(cache) = &self.observed.last_level else { return "none".to_owned() };
        let by = match cache.shared_by.len() {
            0 => String::new(),
            1 => format!(", of CPU {}", cache.shared_by),
            _ => format!(", shared by CPUs {}", cache.shared_by),
        };
        let guests =
            if cache.guest { ", and by guests of the host that nobody sees here" } else { "" };
        let divided = match cache.divided_by_hardware {
            true => "; resctrl divides it at no cost: use that for it",
            false => "",
        };
        format!("{} of {}{by}{guests}{divided}", cache.level, HumanBytes(cache.size_bytes))
    }

    fn share_verdict(&self) -> String {
        match self.partition {
            PartitionSuits::Idle => "not worth it: it hardly ran; watch it when it is busy".into(),
            PartitionSuits::Unknown => {
                "not known: too little was seen of its memory; `huepage profile` measures it".into()
            }
            PartitionSuits::Superpages => {
                "not known: most of its memory lies in superpages, which a share would break; \
                 `huepage profile` measures what that costs"
                    .into()
            }
            PartitionSuits::Alone => {
                "not worth it: nobody of this system used its L2 beside it".into()
            }
            PartitionSuits::Confine { colors } => format!(
                "worth it, for the others: it streams through the L2 and reuses little\n-> {}",
                self.confine(colors)
            ),
            PartitionSuits::Protect { colors } => format!(
                "worth it, if the others are kept out: it reuses a part of the L2\n-> {}{}",
                self.confine(colors),
                self.keep_out()
            ),
            PartitionSuits::TooLarge => "not worth it for itself: it uses more than the L2 holds within milliseconds. A small \
                 share would keep it out of the others' way; `huepage profile` measures what that costs it"
                .into(),
            PartitionSuits::Small => {
                "not worth it: it uses little of the L2 and brings little in".into()
            }
        }
    }

    /// The command that gives it so many colours.
    fn confine(&self, colors: u16) -> String {
        let share = 100.0 * f64::from(colors) / f64::from(self.observed.cache.colors);
        match self.lives_on {
            true => format!("huepage attach --share {share}% {}", self.observed.pid),
            false => format!("huepage run --share {share}% -- PROGRAM"),
        }
    }

    /// The command that keeps out whoever uses most of the cache beside it.
    fn keep_out(&self) -> String {
        let first = self.observed.sharers.first();
        let out = |one: &huepage_linux::sensors::company::Sharer| {
            format!("\n-> huepage attach --colors rest {}    # {}", one.pid, one.name)
        };
        first.map_or_else(String::new, out)
    }

    fn superpages_verdict(&self) -> String {
        match self.superpages {
            SuperpagesSuit::Idle => "not worth it: it hardly ran; watch it when it is busy".into(),
            SuperpagesSuit::NoRoom => "not worth it: it has no memory in which one fits".into(),
            SuperpagesSuit::Unknown => "not known: TLB misses could not be told".into(),
            SuperpagesSuit::HasThem => {
                "not worth it: most of its memory lies in them already".into()
            }
            SuperpagesSuit::FewMisses => "not worth it: TLB misses take little of its time".into(),
            SuperpagesSuit::Sparse => {
                "not worth it: no block of 2 MiB has misses enough to pay for a superpage".into()
            }
            SuperpagesSuit::Worth if self.lives_on => {
                format!("worth it\n-> huepage superpages {}", self.observed.pid)
            }
            SuperpagesSuit::Worth => {
                "worth it\n-> huepage run --superpages approx-online -- PROGRAM".into()
            }
        }
    }
}

/// A share of a CPU or of a time.
fn percent(share: f64) -> String {
    let percent = 100.0 * share;
    if percent < 9.95 { format!("{percent:.1} %") } else { format!("{percent:.0} %") }
}

#[cfg(test)]
mod tests {
    use huepage_color::CacheLevel;
    use huepage_linux::color::doctor::Interval;
    use huepage_linux::color::doctor::siblings::Pair;
    use huepage_linux::kernel::machine::CpuList;
    use huepage_linux::sensors::company::Sharer;
    use huepage_policy::suitability::{CacheSeen, ProgramSeen};

    use super::super::watch::LastLevel;
    use super::*;

    fn example(partition: PartitionSuits, superpages: SuperpagesSuit) -> Suits {
        let program = ProgramSeen {
            cpu: 0.42,
            resident_bytes: 64 << 20,
            huge_bytes: 2 << 20,
            reused_bytes: Some(256 << 10),
            streamed_bytes_per_second: Some(3_000_000),
            tlb_share: Some(0.031),
            blocks: Some(32),
            superpages: 30,
        };
        let share = Interval { low: 0.97, estimate: 0.99, high: 1.0 };
        let relation = CpuRelation::Siblings;
        let sharer = |pid, name: &str| Sharer { pid, name: name.into(), cpu_ns: 2_000_000_000 };
        let observed = Observed {
            pid: 4711,
            name: "solver".into(),
            seconds: 10.0,
            ended: false,
            program,
            cache: CacheSeen { bytes: 1 << 20, colors: 32, others: 0.4 },
            cpus: vec![0],
            sharers: vec![sharer(4712, "gzip"), sharer(4713, "cc1")],
            siblings: vec![Pair { cpus: [0, 1], relation, share, claimed: Some(false) }],
            neighbors: None,
            last_level: Some(LastLevel {
                level: CacheLevel::L3,
                size_bytes: 32 << 20,
                shared_by: CpuList(vec![0, 1]),
                divided_by_hardware: true,
                guest: true,
            }),
            unseen: None,
        };
        Suits { observed, partition, superpages, lives_on: true }
    }

    #[test]
    fn figures_and_commands_are_in_the_text() {
        let suits = example(PartitionSuits::Protect { colors: 8 }, SuperpagesSuit::Worth);
        let text = suits.text(Style::plain());
        for part in [
            "process 4711 (solver), 10.0 s\n",
            "42 % of CPU time, on CPU 0; 64.00 MiB resident, 2.00 MiB of it in superpages",
            "it reuses 256.00 KiB within milliseconds, and passes through 2.86 MiB",
            "misses take at most 3.1 % of its CPU time; 30 superpages would be built",
            "others used 40 % of CPU time where its L2 is shared: gzip (4712) 20 %, cc1",
            "CPUs 0 and 1 share a core (97-100 % of the time)",
            "L3 of 32.00 MiB, shared by CPUs 0-1, and by guests of the host that nobody sees",
            "resctrl divides it at no cost",
            "-> huepage attach --share 25% 4711\n-> huepage attach --colors rest 4712    # gzip",
            "superpages: worth it\n-> huepage superpages 4711",
        ] {
            assert!(text.contains(part), "{part}:\n{text}");
        }
        let json = serde_json::to_value(&suits).unwrap();
        assert_eq!(json["partition"], serde_json::json!({"verdict": "protect", "colors": 8}));
        assert_eq!(json["superpages"]["verdict"], "worth");
    }

    #[test]
    fn each_verdict_has_words_and_what_has_ended_is_started_again() {
        use {PartitionSuits as P, SuperpagesSuit as S};
        let shares = [P::Idle, P::Unknown, P::Superpages, P::Alone, P::TooLarge, P::Small];
        let huge = [S::Idle, S::Unknown, S::HasThem, S::FewMisses, S::Sparse, S::NoRoom];
        let mut texts = std::collections::BTreeSet::new();
        for (share, huge) in shares.into_iter().zip(huge) {
            let text = example(share, huge).text(Style::plain());
            assert!(
                text.matches("not worth it").count() + text.matches("not known: ").count() == 2
            );
            assert!(!text.contains("->"), "{text}");
            texts.insert(text);
        }
        assert_eq!(texts.len(), 6);
        let mut over = example(P::Confine { colors: 1 }, S::Worth);
        over.lives_on = false;
        let text = over.text(Style::plain());
        assert!(text.contains("-> huepage run --share 3.125% -- PROGRAM"), "{text}");
        assert!(text.contains("-> huepage run --superpages approx-online -- PROGRAM"), "{text}");
    }
}
