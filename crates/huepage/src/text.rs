//! The options about program text and libraries, what they start, and how what came of it is
//! told. Which files belong where is decided in `huepage_linux::filecache::text`.

use clap::{Args, ValueEnum};
use huepage_color::ColorSet;
use huepage_linux::filecache::PlacerOptions;
use huepage_linux::filecache::text::{TextKeeper, TextOptions, TextReport};

use crate::exit::{CmdError, ExitCode};
use crate::partition::Plan;

/// What is done about program text and libraries.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct TextArgs {
    /// What is done about program text and libraries of the partition
    ///
    /// place: pages of programs and libraries that nobody else maps leave the page cache and are
    /// read again in the partition's colours, before a program's first instruction and soon after
    /// it maps more. A program that runs already is held still for some milliseconds at a time
    /// meanwhile. What others map too, as all do the C library, is left. leave: they lie where they
    /// came to lie.
    #[arg(long, value_enum, value_name = "HOW", default_value_t = TextChoice::Leave)]
    pub text: TextChoice,

    /// Colours for text that other partitions map too, with --text place [default: it is left]
    #[arg(long, value_name = "SET", requires = "text")]
    pub shared_colors: Option<String>,
}

/// Whether text is placed.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextChoice {
    /// Into the partition's colours
    Place,
    /// Nowhere
    Leave,
}

/// Text that is being placed.
pub struct Placing {
    /// The thread that does it.
    pub keeper: TextKeeper,
    /// Colours for files that other partitions map too.
    pub shared: Option<ColorSet>,
}

impl TextArgs {
    /// Refuses to place text where there is no partition whose colours it could come into.
    pub fn check(&self, without_partition: bool) -> Result<(), CmdError> {
        let what = "--text place is about the text of a partition; add --share or --colors";
        let wrong = without_partition && self.is_on();
        if wrong { Err(CmdError::new(ExitCode::Usage, what)) } else { Ok(()) }
    }

    /// Whether it is placed.
    pub fn is_on(&self) -> bool {
        self.text == TextChoice::Place
    }

    /// Begins what was asked for, for the partition of `plan`; nothing is gathered yet.
    pub fn start(&self, plan: &Plan) -> Result<Option<Placing>, CmdError> {
        let universe = plan.config.colors.universe();
        let parse = |text: &String| ColorSet::parse(text, universe);
        let shared = self.shared_colors.as_ref().map(parse).transpose();
        let shared = shared.map_err(|error| CmdError::new(ExitCode::Colors, error))?;
        if self.text == TextChoice::Leave {
            return Ok(None);
        }
        let options = TextOptions {
            own: plan.config.colors.clone(),
            shared: shared.clone(),
            registry: plan.registry.clone(),
            placer: PlacerOptions::default(),
        };
        Ok(Some(Placing { keeper: TextKeeper::start(plan.source.another(), options), shared }))
    }
}

/// In one line, for a person.
pub fn line(report: &TextReport) -> String {
    let tally = &report.tally;
    let mut line = format!(
        "text: {} files, {} of {} pages in the partition's colours, {} of them placed in {:.2} s",
        report.files,
        tally.placed + tally.already,
        tally.pages,
        tally.placed,
        report.seconds
    );
    let pages = tally.refused.iter().map(|(why, n)| format!("{n} pages {}", why.text()));
    let files = report.left.iter().map(|(why, n)| format!("{n} files {}", why.text()));
    let left: Vec<String> = pages.chain(files).collect();
    if !left.is_empty() {
        line += &format!("; left alone: {}", left.join(", "));
    }
    if let Some(error) = &report.error {
        line += &format!("; nothing more is placed: {error}");
    }
    line
}
