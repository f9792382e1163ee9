//! What a profile says: a table with bars, a verdict, JSON, a drawing.

use huepage_policy::cache_need::{CacheNeed, SENSITIVE, SharePoint, need};
use serde::Serialize;

use super::args::ProfileArgs;
use crate::demo::stats::{Repeated, outliers};
use crate::drawing::{PlotCurve, PlotPoint as Place};
use crate::exit::CmdError;
use crate::html;
use crate::partition::internal;
use crate::report;
use crate::style::{self, Style};
use crate::whole_file;

/// Spread of the runs in a share beyond which knee and share are rough, as a share of the median.
const ROUGH: f64 = 0.1;
/// Characters of the longest bar.
const BAR: f64 = 16.0;

/// A share of the cache and what was measured in it.
#[derive(Debug, Serialize)]
pub struct ProfiledShare {
    pub colors: u16,
    /// Median and spread.
    pub time: Repeated,
    pub all: Vec<f64>,
    /// The shortest run and the longest.
    pub min: f64,
    pub max: f64,
    /// Runs that lie far from all others.
    pub outliers: usize,
    /// Median over that in the whole cache.
    pub slowdown: f64,
    /// Misses of the last level in percent of references to it; none where nothing counts them.
    pub miss_rate: Option<f64>,
    /// Whether a run had more than a twentieth of its pages, or a process, in other colours: then
    /// its time is not that of this share.
    pub outside: bool,
}

impl ProfiledShare {
    /// Of some runs, where the median in the whole cache is `full`.
    pub fn of(colors: u16, runs: &[f64], full: f64) -> ProfiledShare {
        let time = Repeated::of(runs);
        ProfiledShare {
            colors,
            time,
            all: runs.to_vec(),
            min: runs.iter().copied().fold(f64::INFINITY, f64::min),
            max: runs.iter().copied().fold(0.0, f64::max),
            outliers: outliers(runs),
            slowdown: time.median / full,
            miss_rate: None,
            outside: false,
        }
    }
}

/// The curve of a program.
#[derive(Debug, Serialize)]
pub struct ProgramCurve {
    pub program: String,
    /// Unit of times.
    pub unit: &'static str,
    /// Colours there are.
    pub of: u16,
    /// Growing shares, the whole cache last.
    pub shares: Vec<ProfiledShare>,
    /// Outside of any partition.
    pub native: Option<Repeated>,
    /// Time in the whole cache, as a partition, over that outside of any.
    pub beside_native: Option<f64>,
    /// What ran beside.
    pub co_run: Option<String>,
    /// How colours were known; none of a simulated machine.
    pub colors_from: Option<String>,
    /// What the curve says.
    pub need: Option<CacheNeed>,
}

impl ProgramCurve {
    /// A curve with what it says.
    pub fn new(
        program: String,
        unit: &'static str,
        of: u16,
        shares: Vec<ProfiledShare>,
    ) -> ProgramCurve {
        let point =
            |share: &ProfiledShare| SharePoint { colors: share.colors, time: share.time.median };
        let need = need(&shares.iter().map(point).collect::<Vec<_>>());
        let (native, beside_native, co_run, colors_from) = (None, None, None, None);
        ProgramCurve { program, unit, of, shares, native, beside_native, co_run, colors_from, need }
    }
}

/// Hands the profile over as was asked for.
pub fn show(args: &ProfileArgs, profile: &ProgramCurve) -> Result<(), CmdError> {
    let text = if args.json { report::json(profile)? } else { words(profile, Style::stdout()) };
    // Hours of runs are not lost for a file that cannot be written.
    style::print(&text).map_err(internal)?;
    if let Some(path) = &args.svg {
        whole_file::save(path, &drawn(profile)?)?;
    }
    if let Some(path) = &args.html {
        let printed = words(profile, Style::plain());
        whole_file::save(path, &html::report(&profile.program, &printed, &[drawn(profile)?]))?;
    }
    Ok(())
}

fn drawn(profile: &ProgramCurve) -> Result<String, CmdError> {
    let full = profile.shares.last().map_or(f64::NAN, |share| share.time.median);
    let point = |share: &ProfiledShare| {
        let times: Vec<f64> = share.all.iter().map(|time| time / full).collect();
        Place::of(f64::from(share.colors), &times)
    };
    let lines = vec![(profile.program.clone(), profile.shares.iter().map(point).collect())];
    let across = format!("colours of {}", profile.of);
    let curve = PlotCurve {
        title: &profile.program,
        across: &across,
        up: "time over that in the whole cache",
        log_up: false,
        lines,
        knee: profile.need.and_then(|need| need.knee).map(f64::from),
    };
    curve.draw().map_err(internal)
}

fn words(profile: &ProgramCurve, style: Style) -> String {
    let mut text = format!("{}\n", style.bold(&profile.program));
    if let Some(beside) = &profile.co_run {
        text += &format!(
            "beside `{beside}`, which has the colours that are left, and all in the last row\n"
        );
    }
    text += &table(profile, style);
    text += &repeated(profile);
    if let (Some(native), Some(ratio)) = (profile.native, profile.beside_native) {
        text += &format!(
            "in no partition {} {}, spread {:.1} %; in a partition of all colours {ratio:.3} times that\n",
            figure_of(native.median),
            profile.unit,
            100.0 * native.spread,
        );
    }
    text + &verdict(profile)
}

fn table(profile: &ProgramCurve, style: Style) -> String {
    let unit = format!("median {}", profile.unit);
    let counted = profile.shares.iter().any(|share| share.miss_rate.is_some());
    let misses = counted.then_some("LLC misses");
    let headings = ["colours", "share", &unit, "min … max", "slowdown"].into_iter();
    let headings: Vec<&str> = headings.chain(misses).chain([""]).collect();
    let mut table = style.table(&headings);
    let most = profile.shares.iter().map(|share| share.slowdown).fold(1.0, f64::max);
    for share in &profile.shares {
        let cells = [
            share.colors.to_string(),
            format!("{:.1} %", 100.0 * f64::from(share.colors) / f64::from(profile.of)),
            figure_of(share.time.median),
            range(share),
            format!("{:.2}", share.slowdown),
        ];
        let rate = || share.miss_rate.map_or("-".to_owned(), |rate| format!("{rate:.1} %"));
        let misses = counted.then(rate);
        table.add_row(cells.into_iter().chain(misses).chain([bar(share.slowdown / most)]));
    }
    style::lay_out(table)
}

/// One run has none.
fn range(share: &ProfiledShare) -> String {
    match share.all.len() {
        0 | 1 => "-".to_owned(),
        _ => format!("{} … {}", figure_of(share.min), figure_of(share.max)),
    }
}

/// How often each share was run, how much runs differ, and those that do not belong.
fn repeated(profile: &ProgramCurve) -> String {
    let runs = profile.shares.iter().map(|share| share.all.len()).min().unwrap_or(0);
    if runs < 2 {
        return String::new();
    }
    let spread = profile.shares.iter().map(|share| share.time.spread).fold(0.0, f64::max);
    let mut text = format!("{runs} runs of each share; spread at most {:.1} %\n", 100.0 * spread);
    let strays = profile.shares.iter().filter(|share| share.outliers > 0);
    let strays: Vec<String> = strays.map(|share| share.colors.to_string()).collect();
    if !strays.is_empty() {
        let shares = strays.join(", ");
        text += &format!(
            "outliers in shares of {shares}: something else was at work; run it again on a calm machine\n"
        );
    }
    text
}

/// What keeps the figures from saying what they seem to.
fn doubts(profile: &ProgramCurve, need: &CacheNeed) -> String {
    let mut text = String::new();
    if let Some(from) = profile.colors_from.as_deref().filter(|from| *from != "probed") {
        text += &format!(
            "colours {}: if they are others, so are these shares; `huepage verify` measures\n",
            report::known(from)
        );
    }
    let outside: Vec<_> =
        profile.shares.iter().filter(|s| s.outside).map(|s| s.colors.to_string()).collect();
    if !outside.is_empty() {
        let shares = outside.join(", ");
        text += &format!(
            "in {shares} colours some of its pages or processes were outside, so these times are not those \
             of these shares;\n`huepage run --share … --report r.json` has the reason\n"
        );
    }
    let ends = [profile.shares.first(), profile.shares.last()];
    let swing: f64 = ends.into_iter().flatten().map(|share| share.time.spread).sum();
    if (need.slowdown - SENSITIVE).abs() < swing * need.slowdown {
        text += "runs differ by more than what decides between sensitive and not; give a larger --repeat\n";
    }
    let spread = profile.shares.iter().map(|share| share.time.spread).fold(0.0, f64::max);
    if spread > ROUGH {
        text += &format!(
            "runs of one share differ by {:.0} %, and knee and share are no better than that; run it on a \
             calm machine,\nor with a larger --repeat\n",
            100.0 * spread
        );
    }
    text
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most a line")]
fn bar(share: f64) -> String {
    "#".repeat((share * BAR).round().clamp(0.0, BAR) as usize)
}

/// Three digits at least.
fn figure_of(value: f64) -> String {
    if value >= 1000.0 { format!("{value:.0}") } else { format!("{value:.3}") }
}

fn verdict(profile: &ProgramCurve) -> String {
    let Some(need) = profile.need else {
        return "one share is no curve; give --sizes\n".to_owned();
    };
    let share = |colors: u16| {
        let percent = 100.0 * f64::from(colors) / f64::from(profile.of);
        format!("{colors} of {} colours ({percent:.0} %)", profile.of)
    };
    let slower = 100.0 * (need.slowdown - 1.0);
    let word = if slower < 0.0 { "faster" } else { "slower" };
    let is = if need.sensitive { "sensitive" } else { "not sensitive" };
    let mut text =
        format!("{is} to the cache: {:.0} % {word} in the smallest share\n", slower.abs());
    if let Some(knee) = need.knee {
        text += &format!("the knee is at {}: more cache brings less from there on\n", share(knee));
    }
    text += &format!("within 5 % of the whole cache from {} on\n", share(need.enough));
    text + &doubts(profile, &need)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile(times: &[(u16, f64)]) -> ProgramCurve {
        let full = times.last().unwrap().1;
        let share = |&(colors, time): &(u16, f64)| ProfiledShare::of(colors, &[time], full);
        ProgramCurve::new("walk".into(), "s", 16, times.iter().map(share).collect())
    }

    #[test]
    fn the_verdict_names_the_knee_and_what_is_enough() {
        let text = words(&profile(&[(1, 4.0), (4, 3.9), (8, 1.02), (16, 1.0)]), Style::plain());
        assert!(text.contains("sensitive to the cache: 300 % slower"), "{text}");
        assert!(text.contains("knee is at 8 of 16 colours (50 %)"), "{text}");
        assert!(text.contains("from 8 of 16 colours (50 %)"), "{text}");
        let text = words(&profile(&[(1, 1.1), (16, 1.0)]), Style::plain());
        assert!(text.starts_with("walk\n") && text.contains("not sensitive"), "{text}");
        assert!(words(&profile(&[(16, 1.0)]), Style::plain()).contains("no curve"));
        let text = words(&profile(&[(1, 0.9), (16, 1.0)]), Style::plain());
        assert!(text.contains("10 % faster in the smallest share"), "{text}");
    }

    #[test]
    fn runs_their_range_and_outliers_are_shown() {
        let mut found = profile(&[(1, 2.0), (16, 1.0)]);
        found.shares[0] = ProfiledShare::of(1, &[2.0, 2.01, 1.99, 2.0, 9.0], 1.0);
        found.shares[1] = ProfiledShare::of(16, &[1.0, 1.1, 0.9, 1.0, 1.05], 1.0);
        let text = words(&found, Style::plain());
        for part in ["1.990 … 9.000", "5 runs of each share", "outliers in shares of 1:"] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }

    #[test]
    fn colours_that_were_not_measured_are_a_caveat() {
        let mut found = profile(&[(1, 2.0), (16, 1.0)]);
        found.colors_from = Some("probed".to_owned());
        assert!(!words(&found, Style::plain()).contains("not measured"));
        found.colors_from = Some("declared".to_owned());
        let text = words(&found, Style::plain());
        assert!(text.contains("colours declared, not measured: if they are"), "{text}");
    }

    #[test]
    fn what_the_figures_do_not_say_is_told() {
        let mut doubtful = profile(&[(1, 1.31), (16, 1.0)]);
        assert!(!words(&doubtful, Style::plain()).contains("--repeat"));
        doubtful.shares[0] =
            ProfiledShare { outside: true, ..ProfiledShare::of(1, &[1.2, 1.31, 1.5], 1.0) };
        let text = words(&doubtful, Style::plain());
        assert!(text.contains("larger --repeat") && text.contains("in 1 colours some"), "{text}");
        assert!(text.contains("no better than that"), "{text}");
    }
}
