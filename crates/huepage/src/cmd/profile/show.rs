//! What a profile says: a table with bars, a verdict, JSON, a drawing.

use std::path::Path;

use huepage_policy::need::{Need, Point, SENSITIVE, need};
use huepage_sim::experiments::report::{Shape, figure};
use serde::Serialize;

use super::args::ProfileArgs;
use crate::cmd::experiment::svg;
use crate::demo::stats::Repeated;
use crate::exit::{CmdError, ExitCode};
use crate::partition::internal;
use crate::style::{self, Style};

/// Characters of the longest bar.
const BAR: f64 = 40.0;

/// A share of the cache and what was measured in it.
#[derive(Debug, Serialize)]
pub struct Share {
    /// Colours.
    pub colors: u16,
    /// Median and spread.
    pub time: Repeated,
    /// Every run.
    pub all: Vec<f64>,
    /// Median over that in the whole cache.
    pub slowdown: f64,
    /// Misses of the last level in percent of references to it; none where nothing counts them.
    pub miss_rate: Option<f64>,
    /// Whether a run had more than a twentieth of its pages, or a process, in other colours: then
    /// its time is not that of this share.
    pub outside: bool,
}

/// The curve of a program.
#[derive(Debug, Serialize)]
pub struct Profile {
    /// The program or trace.
    pub program: String,
    /// Unit of times.
    pub unit: &'static str,
    /// Colours there are.
    pub of: u16,
    /// Growing shares, the whole cache last.
    pub shares: Vec<Share>,
    /// Outside of any partition.
    pub native: Option<Repeated>,
    /// Time in the whole cache, as a partition, over that outside of any.
    pub beside_native: Option<f64>,
    /// What ran beside.
    pub co_run: Option<String>,
    /// What the curve says.
    pub need: Option<Need>,
}

impl Profile {
    /// A curve with what it says.
    pub fn new(program: String, unit: &'static str, of: u16, shares: Vec<Share>) -> Profile {
        let point = |share: &Share| Point { colors: share.colors, time: share.time.median };
        let need = need(&shares.iter().map(point).collect::<Vec<_>>());
        Profile { program, unit, of, shares, native: None, beside_native: None, co_run: None, need }
    }
}

/// Hands the profile over as was asked for.
pub fn show(args: &ProfileArgs, profile: &Profile) -> Result<(), CmdError> {
    if let Some(path) = &args.svg {
        draw(profile, path)?;
    }
    let text = if args.json {
        serde_json::to_string_pretty(profile).map_err(internal)? + "\n"
    } else {
        words(profile, Style::stdout())
    };
    style::print(&text).map_err(internal)
}

fn draw(profile: &Profile, path: &Path) -> Result<(), CmdError> {
    let points = profile.shares.iter().map(|s| (f64::from(s.colors), s.slowdown)).collect();
    let series = vec![(profile.program.clone(), points)];
    let (across, up) = ("colours", "time over that in the whole cache");
    let shape = Shape::Points { across, up, joined: true, series };
    let text = svg::draw(&figure("profile", &profile.program, shape)).map_err(internal)?;
    std::fs::write(path, text).map_err(|error| {
        let what = format!("{}: {error}; name a place that can be written", path.display());
        CmdError::new(ExitCode::Usage, what)
    })
}

fn words(profile: &Profile, style: Style) -> String {
    let mut text = format!("{}\n", style.bold(&profile.program));
    if let Some(beside) = &profile.co_run {
        text += &format!(
            "beside `{beside}`, which has the colours that are left, and all in the last row\n"
        );
    }
    text += &format!("{}\n", table(profile, style));
    if let (Some(native), Some(ratio)) = (profile.native, profile.beside_native) {
        text += &format!(
            "outside of any partition {} {}, spread {:.1} %; in all colours {:.3} times that\n",
            figure_of(native.median),
            profile.unit,
            100.0 * native.spread,
            ratio
        );
    }
    text + &verdict(profile)
}

fn table(profile: &Profile, style: Style) -> String {
    let unit = format!("median {}", profile.unit);
    let mut table =
        style.table(&["colours", "share", &unit, "spread", "slowdown", "LLC misses", ""]);
    let most = profile.shares.iter().map(|share| share.slowdown).fold(1.0, f64::max);
    for share in &profile.shares {
        table.add_row([
            share.colors.to_string(),
            format!("{:.1} %", 100.0 * f64::from(share.colors) / f64::from(profile.of)),
            figure_of(share.time.median),
            spread(share),
            format!("{:.2}", share.slowdown),
            share.miss_rate.map_or("-".to_owned(), |rate| format!("{rate:.1} %")),
            bar(share.slowdown / most),
        ]);
    }
    table.to_string()
}

/// One run has none.
fn spread(share: &Share) -> String {
    if share.all.len() < 2 { "-".to_owned() } else { format!("{:.1} %", 100.0 * share.time.spread) }
}

/// What keeps the figures from saying what they seem to.
fn doubts(profile: &Profile, need: &Need) -> String {
    let mut text = String::new();
    let outside: Vec<_> =
        profile.shares.iter().filter(|s| s.outside).map(|s| s.colors.to_string()).collect();
    if !outside.is_empty() {
        let shares = outside.join(", ");
        text += &format!(
            "much of the program was outside of its colours in shares of {shares}: see `huepage run --report`\n"
        );
    }
    let ends = [profile.shares.first(), profile.shares.last()];
    let swing: f64 = ends.into_iter().flatten().map(|share| share.time.spread).sum();
    if (need.slowdown - SENSITIVE).abs() < swing * need.slowdown {
        text += "runs differ by more than what decides between sensitive and not; give a larger --repeat\n";
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

fn verdict(profile: &Profile) -> String {
    let Some(need) = profile.need else {
        return "one share is no curve; give --sizes\n".to_owned();
    };
    let share = |colors: u16| {
        let percent = 100.0 * f64::from(colors) / f64::from(profile.of);
        format!("{colors} of {} colours ({percent:.0} %)", profile.of)
    };
    let slower = 100.0 * (need.slowdown - 1.0);
    let mut text = if need.sensitive {
        format!("sensitive to the cache: {slower:.0} % slower in the smallest share")
    } else {
        format!("not sensitive to the cache: {slower:.0} % slower in the smallest share")
    };
    if let Some(knee) = need.knee {
        text += &format!("; the knee is at {}", share(knee));
    }
    text += &format!("; within 5 % of the whole cache from {}\n", share(need.enough));
    text + &doubts(profile, &need)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile(times: &[(u16, f64)]) -> Profile {
        let full = times.last().unwrap().1;
        let share = |&(colors, time): &(u16, f64)| Share {
            colors,
            time: Repeated::of(&[time]),
            all: vec![time],
            slowdown: time / full,
            miss_rate: None,
            outside: false,
        };
        Profile::new("walk".into(), "s", 16, times.iter().map(share).collect())
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
    }

    #[test]
    fn what_the_figures_do_not_say_is_told() {
        let mut doubtful = profile(&[(1, 1.31), (16, 1.0)]);
        assert!(!words(&doubtful, Style::plain()).contains("--repeat"));
        doubtful.shares[0].time = Repeated::of(&[1.2, 1.31, 1.5]);
        doubtful.shares[0].outside = true;
        let text = words(&doubtful, Style::plain());
        assert!(text.contains("larger --repeat") && text.contains("in shares of 1:"), "{text}");
    }
}
