//! `huepage verify`: whether the pages of a process compete for the colours of its partition and for no
//! others, timed now. Colours that were measured have names, so pages must be in those of the partition;
//! colours that are assumed have none that a measurement knows, so pages must compete as if there were no
//! more colours than the partition has.

use clap::Args;
use huepage_color::{Color, ColorSet};
use serde::Serialize;

use super::claim::{PartitionClaim, claim};
use crate::exit::{CmdError, ExitCode};
use crate::measured_colors::{ColorPages, MeasuredPages};
use crate::partition::{self, internal};
use crate::report::{self, ratio};
use crate::style;

/// Share of the pages that have to be inside.
const HOLDS: f64 = 0.95;
/// Pages for each colour of a partition, at least: of fewer, some would be in few colours by chance.
const LEAST: u64 = 8;

const EXAMPLES: &str = "\
Examples:
  huepage verify 4711                      does the partition hold? 1000 pages
  huepage verify --pages 10000 4711        more of them, some 20 us each
  huepage verify 4711 && echo it holds     status 114 where it does not
  huepage verify --json 4711 | jq .share

huepage times the pages through their physical addresses: the process is not touched. Of a process in \
no partition it shows pages by colour and ends with 111.";

/// Measure whether the pages of a process are in its colours
///
/// Times which pages compete for the same sets of the cache, whatever frame numbers or a supervisor say.
/// Ends with 114 if fewer than 95 % of them are in the colours of the partition.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub struct VerifyArgs {
    /// The process
    #[arg(value_name = "PID", value_parser = clap::value_parser!(u32).range(1..=0x40_0000))]
    pub pid: u32,

    /// Pages to time, at most
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = parse_pages)]
    pub pages: usize,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// A number of pages to time.
pub fn parse_pages(text: &str) -> Result<usize, String> {
    let pages = text.parse().ok().filter(|pages| (1..=1_000_000).contains(pages));
    pages.ok_or_else(|| format!("`{text}` is no number of pages from 1 to 1000000"))
}

/// What was measured, and what it says; its JSON form is the output of `--json`.
#[derive(Debug, Serialize)]
pub struct Verified {
    pid: i32,
    /// The partition; none where the process is in none.
    partition: Option<Claimed>,
    #[serde(flatten)]
    sampled: MeasuredPages,
    /// Pages in the colours of the partition, or in as many colours as it has if those are assumed.
    inside_pages: Option<u64>,
    /// The share of pages whose colour was told, 0 to 1.
    share: Option<f64>,
    /// What that would be for frames at random.
    share_at_random: Option<f64>,
    /// Whether the partition holds; none without one.
    pub holds: Option<bool>,
}

/// What a partition says of itself.
#[derive(Debug, Serialize)]
struct Claimed {
    colors: String,
    of: u16,
    level: String,
    colors_from: String,
}

/// Verifies one process.
pub fn run(args: &VerifyArgs) -> Result<u8, CmdError> {
    partition::check_privileges()?;
    let pid = args.pid.cast_signed();
    let verified = verify(pid, claim(pid)?.as_ref(), args.pages)?;
    let text = if args.json { report::json(&verified)? } else { verified.text() };
    style::print(&text).map_err(internal)?;
    let code = match verified.holds {
        Some(true) => ExitCode::Ok,
        Some(false) => ExitCode::Contradicted,
        None => ExitCode::NotAttached,
    };
    Ok(code.status())
}

/// Measures so many pages of a process for what is claimed of it.
pub fn verify(
    pid: i32,
    claim: Option<&PartitionClaim>,
    pages: usize,
) -> Result<Verified, CmdError> {
    let source = partition::reader("L2", "probed", None)?;
    let own = claim.map_or(&[][..], |claim| &claim.own);
    let sampled = MeasuredPages::of(pid, own, &*source, pages)?;
    let Some(claim) = claim else {
        // A distribution of a few pages says nothing of the others.
        enough(sampled.decided_pages(), sampled.sampled_pages / 2)?;
        let none = (None, None, None, None);
        let (inside_pages, share, share_at_random, holds) = none;
        let partition = None;
        return Ok(Verified {
            pid,
            partition,
            sampled,
            inside_pages,
            share,
            share_at_random,
            holds,
        });
    };
    comparable(claim, source.universe())?;
    if let Some(why) = source.method().private_because() {
        let what = format!(
            "colours of another process cannot be compared with ({why}); make room in /dev/shm and try again"
        );
        return Err(CmdError::new(ExitCode::Internal, what));
    }
    let colors = ColorSet::parse(&claim.colors, claim.of).map_err(internal)?;
    judged(pid, claim, &colors, sampled)
}

/// Colours of another cache than the measured one have nothing to be compared with.
fn comparable(claim: &PartitionClaim, measured: u16) -> Result<(), CmdError> {
    if claim.of == measured {
        return Ok(());
    }
    let PartitionClaim { of, level, .. } = claim;
    let what = format!(
        "timing tells the {measured} colours of the L2, the partition has some of the {of} of the {level}; \
         verify works for a partition of the L2"
    );
    Err(CmdError::new(ExitCode::Usage, what))
}

/// Refuses a verdict on fewer pages than `least`.
fn enough(decided: u64, least: u64) -> Result<(), CmdError> {
    if decided >= least {
        return Ok(());
    }
    let what = format!(
        "only {decided} pages could be measured, too few for a verdict; try again, give more --pages, or \
         wait until the machine is quieter"
    );
    Err(CmdError::new(ExitCode::Noisy, what))
}

fn judged(
    pid: i32,
    claim: &PartitionClaim,
    colors: &ColorSet,
    sampled: MeasuredPages,
) -> Result<Verified, CmdError> {
    let decided = sampled.decided_pages();
    enough(decided, LEAST * u64::from(colors.len()))?;
    let inside = inside(&sampled.pages_by_color, colors, claim.is_measured());
    let share = ratio(inside, decided);
    Ok(Verified {
        pid,
        partition: Some(Claimed {
            colors: claim.colors.clone(),
            of: claim.of,
            level: claim.level.clone(),
            colors_from: claim.colors_from.clone(),
        }),
        sampled,
        inside_pages: Some(inside),
        share: Some(share),
        share_at_random: Some(f64::from(colors.len()) / f64::from(claim.of)),
        holds: Some(share >= HOLDS),
    })
}

/// Pages in these colours; where their names are assumed, in as many colours, those with most pages.
fn inside(found: &[ColorPages], colors: &ColorSet, named: bool) -> u64 {
    if named {
        let own = found.iter().filter(|entry| colors.contains(Color(entry.color)));
        return own.map(|entry| entry.pages).sum();
    }
    let mut pages: Vec<u64> = found.iter().map(|entry| entry.pages).collect();
    pages.sort_unstable_by(|a, b| b.cmp(a));
    pages.iter().take(usize::from(colors.len())).sum()
}

impl Verified {
    /// A few lines for a person.
    pub fn text(&self) -> String {
        let (pid, pages) = (self.pid, self.sampled.text());
        let Some(Claimed { colors, of, level, colors_from }) = &self.partition else {
            return format!("process {pid}: in no partition\n{pages}");
        };
        let known = report::known(colors_from);
        let [share, random] = [self.share, self.share_at_random].map(|s| s.unwrap_or(0.0) * 100.0);
        let verdict = match (self.holds, colors_from.as_str()) {
            (Some(true), _) => "the partition holds",
            (_, "probed") => "the partition does not hold; see `huepage inspect`",
            _ => {
                "the partition does not hold: frame numbers do not tell colours here; use --colors-from probe"
            }
        };
        format!(
            "process {pid}: colours {colors} of {of} ({level}, {known})\n{pages}\
             timed now: {} of {} pages in the partition, {share:.1} % (at random {random:.1} %)\n{verdict}\n",
            self.inside_pages.unwrap_or(0),
            self.sampled.decided_pages(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measured_colors::listed;

    fn claimed(from: &str) -> PartitionClaim {
        PartitionClaim {
            colors: "0-3".to_owned(),
            of: 16,
            level: "L2".to_owned(),
            colors_from: from.to_owned(),
            own: Vec::new(),
        }
    }

    fn verdict(from: &str, counts: &[u64]) -> Result<Verified, CmdError> {
        let pages_by_color = listed(counts);
        let sampled_pages = counts.iter().sum();
        let sampled = MeasuredPages { sampled_pages, pages_by_color, ..MeasuredPages::default() };
        judged(7, &claimed(from), &ColorSet::parse("0-3", 16).unwrap(), sampled)
    }

    #[test]
    fn a_partition_holds_where_pages_are_in_its_colours() {
        let found = verdict("probed", &[250, 250, 250, 240, 10]).unwrap();
        assert_eq!(
            (found.holds, found.inside_pages, found.share),
            (Some(true), Some(990), Some(0.99))
        );
        assert_eq!(found.share_at_random, Some(0.25));
        assert!(
            found.text().contains("99.0 % (at random 25.0 %)\nthe partition holds"),
            "{}",
            found.text()
        );
        let found = verdict("probed", &[0, 0, 0, 0, 250, 250, 250, 250]).unwrap();
        assert_eq!(found.holds, Some(false), "four colours, and none of the partition's");
    }

    #[test]
    fn assumed_colours_hold_where_pages_compete_in_as_few() {
        let found = verdict("pfn", &[0, 0, 0, 0, 250, 250, 250, 250]).unwrap();
        assert_eq!(found.holds, Some(true), "under whatever names");
        let text = found.text();
        assert!(text.contains("assumed by frame number, not measured"), "{text}");
        let found = verdict("declared", &[60; 16]).unwrap();
        assert_eq!((found.holds, found.share), (Some(false), Some(0.25)));
        assert!(found.text().contains("use --colors-from probe"), "{}", found.text());
    }

    #[test]
    fn few_pages_and_other_caches_are_no_verdict() {
        let few = verdict("pfn", &[1, 1, 1]).unwrap_err();
        assert!(few.code == ExitCode::Noisy && few.message.contains("3 pages"), "{few}");
        let other = PartitionClaim { of: 64, level: "L3".to_owned(), ..claimed("pfn") };
        assert!(comparable(&other, 16).unwrap_err().message.contains("64 of the L3"));
        assert!(comparable(&claimed("pfn"), 16).is_ok());
    }

    #[test]
    fn json_has_a_version_and_named_fields() {
        let text = report::json(&verdict("probed", &[250, 250, 250, 240, 10]).unwrap()).unwrap();
        let found: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&found["schema"], &found["holds"]), (&1.into(), &true.into()));
        assert_eq!(found["pages_by_color"][4]["color"], 4);
        assert_eq!(found["pages_by_color"][4]["pages"], 10);
        assert_eq!(found["partition"]["colors"], "0-3");
    }
}
