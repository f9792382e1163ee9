//! What a plan says: a table, how to start the programs so, JSON.

use std::fmt::Write as _;

use huepage_policy::tolerance::TriedShare;
use serde::Serialize;

use super::args::PlanArgs;
use crate::demo::stats::Repeated;
use crate::exit::{CmdError, ExitCode};
use crate::partition::{Level, internal};
use crate::report;
use crate::style::{self, Style};

/// A program with its share.
#[derive(Debug, Serialize)]
pub struct PlannedProgram {
    pub command: String,
    /// Options of `huepage run` that give it its share.
    pub options: Vec<String>,
    /// Time allowed over the time by itself, as a factor.
    pub limit: f64,
    /// Seconds by itself, outside of any partition.
    pub alone: Repeated,
    /// Shares that it was run in, with nothing beside it.
    pub tried: Vec<TriedShare>,
    /// Smallest share that is enough, in colours; none if no share is.
    pub need: Option<u16>,
    /// First colour of its share.
    pub first: u16,
    /// Colours of its share.
    pub colors: u16,
    /// Slowdown in that share by the shares that were tried, as a factor.
    pub expected: f64,
    /// Slowdown measured beside all others, as a factor; none if that was not tried.
    pub together: Option<f64>,
    pub holds: bool,
    /// Whether a run had more than a twentieth of its pages in other colours.
    pub outside: bool,
}

/// A partition, and whether it keeps all limits.
#[derive(Debug, Serialize)]
pub struct FoundPlan {
    pub holds: bool,
    pub programs: Vec<PlannedProgram>,
    pub level: Level,
    /// Colours there are.
    pub of: u16,
    /// Partitions that were tried with all programs together.
    pub partitions_tried: usize,
    /// How colours were known.
    pub colors_from: Option<String>,
    /// Seconds that all of it took.
    pub seconds: f64,
}

/// Hands the plan over as was asked for.
pub fn show(args: &PlanArgs, plan: &FoundPlan) -> Result<u8, CmdError> {
    let text = if args.json { report::json(plan)? } else { plan.text(Style::stdout()) };
    style::print(&text).map_err(internal)?;
    Ok(if plan.holds { ExitCode::Ok } else { ExitCode::NoPlan }.status())
}

/// A word as a shell reads it as one.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=,./:+%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

impl FoundPlan {
    /// The largest measured slowdown over its limit.
    pub fn worst(&self) -> f64 {
        let over = |program: &PlannedProgram| program.together.map(|slow| slow / program.limit);
        self.programs.iter().filter_map(over).fold(0.0, f64::max)
    }

    fn text(&self, style: Style) -> String {
        let verdict = if self.holds { self.starts(style) } else { self.reason(style) };
        self.table(style) + &verdict + &self.doubts()
    }

    fn table(&self, style: Style) -> String {
        let headings = ["limit", "alone", "needs", "has", "expected", "together", "", "program"];
        let mut table = style.table(&headings);
        for program in &self.programs {
            let percent = |factor: f64| format!("{:+.1} %", 100.0 * (factor - 1.0));
            let held = match (program.together, program.holds) {
                (None, _) => "-".to_owned(),
                (_, true) => style.green("kept"),
                (_, false) => style.red("missed"),
            };
            table.add_row([
                percent(program.limit),
                format!("{:.3} s", program.alone.median),
                program.need.map_or("more".to_owned(), |need| need.to_string()),
                program.colors.to_string(),
                percent(program.expected),
                program.together.map_or("-".to_owned(), percent),
                held,
                program.command.clone(),
            ]);
        }
        style::lay_out(table)
    }

    /// How to start the programs.
    fn starts(&self, style: Style) -> String {
        let mut text = format!("{} start them so:\n", style.bold("All limits are kept;"));
        for program in &self.programs {
            let options = program.options.iter().map(|word| quoted(word)).collect::<Vec<_>>();
            let (options, command) = (options.join(" "), quoted(&program.command));
            let _ = writeln!(text, "  huepage run --wait {options} -- sh -c {command}");
        }
        text
    }

    fn reason(&self, style: Style) -> String {
        let needs: Option<Vec<u16>> = self.programs.iter().map(|program| program.need).collect();
        let why = match (self.partitions_tried, needs) {
            (_, None) => "a program is too slow even with all that the others can spare".to_owned(),
            (0, Some(needs)) => {
                let sum: u32 = needs.iter().copied().map(u32::from).sum();
                format!("they need {sum} colours of {}", self.of)
            }
            (tried, _) => {
                format!(
                    "beside each other they are slower than in their shares alone ({tried} tried)"
                )
            }
        };
        let bold = style.bold("No partition keeps the limits:");
        format!("{bold} {why}; allow more where most is missing, or run fewer at once\n")
    }

    /// What keeps the figures from saying what they seem to.
    fn doubts(&self) -> String {
        let mut text = String::new();
        if let Some(from) = self.colors_from.as_deref().filter(|from| *from != "probed") {
            let known = report::known(from);
            let _ =
                writeln!(text, "colours {known}: `huepage verify` measures whether they are so");
        }
        if self.level == Level::L2 && self.programs.len() > 1 {
            text += "the L2 is shared by what runs on one core: pin the programs to its CPUs if they are to be, or \
                     use --level llc\n";
        }
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        if self.programs.len() > cpus {
            text += "there are more programs than CPUs: they wait for each other in any shares\n";
        }
        for program in self.programs.iter().filter(|program| program.outside) {
            let command = &program.command;
            let _ = writeln!(
                text,
                "some pages of `{command}` were in other colours; `huepage run --report r.json` has the reason"
            );
        }
        let spread = self.programs.iter().map(|p| p.alone.spread).fold(0.0, f64::max);
        let tightest = self.programs.iter().map(|p| p.limit - 1.0).fold(f64::INFINITY, f64::min);
        if spread > tightest {
            let percent = 100.0 * spread;
            let _ = writeln!(
                text,
                "runs of a program by itself differ by {percent:.0} %, more than a limit; use a calm machine"
            );
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(need: Option<u16>, together: Option<f64>) -> PlannedProgram {
        PlannedProgram {
            command: "./a 'b'".to_owned(),
            options: vec!["--colors".to_owned(), "3-7".to_owned()],
            limit: 1.05,
            alone: Repeated { median: 2.0, spread: 0.01 },
            tried: Vec::new(),
            need,
            first: 3,
            colors: 5,
            expected: 1.01,
            together,
            holds: together.is_some_and(|slowdown| slowdown <= 1.05),
            outside: false,
        }
    }

    fn plan(programs: Vec<PlannedProgram>, tried: usize) -> FoundPlan {
        FoundPlan {
            holds: programs.iter().all(|program| program.holds),
            programs,
            level: Level::L2,
            of: 32,
            partitions_tried: tried,
            colors_from: Some("probed".to_owned()),
            seconds: 1.0,
        }
    }

    #[test]
    fn a_plan_that_holds_says_how_to_start_the_programs() {
        let text = plan(vec![program(Some(4), Some(1.02))], 1).text(Style::plain());
        let line = r"  huepage run --wait --colors 3-7 -- sh -c './a '\''b'\'''";
        assert!(text.contains(line) && text.contains("kept"), "{text}");
        assert!(text.contains("+5.0 %") && text.contains("+2.0 %"), "{text}");
    }

    #[test]
    fn a_plan_that_does_not_says_why() {
        let text = |programs, tried| plan(programs, tried).text(Style::plain());
        let none = text(vec![program(None, None)], 0);
        assert!(none.contains("too slow even with all"), "{none}");
        let much = text(vec![program(Some(20), None), program(Some(19), None)], 0);
        assert!(much.contains("they need 39 colours of 32"), "{much}");
        let beside = text(vec![program(Some(4), Some(1.2))], 3);
        assert!(beside.contains("(3 tried)") && beside.contains("missed"), "{beside}");
    }

    #[test]
    fn what_the_figures_do_not_say_is_told() {
        let mut doubtful = plan(vec![program(Some(4), Some(1.0))], 1);
        assert_eq!(doubtful.doubts(), "");
        doubtful.programs[0].alone.spread = 0.2;
        doubtful.programs[0].outside = true;
        doubtful.colors_from = Some("declared".to_owned());
        let text = doubtful.doubts();
        for part in ["differ by 20 %", "in other colours", "colours declared"] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }
}
