//! Program text and libraries: the options, the service that places them, and its report in a line. Which
//! files belong where is decided in `huepage_linux::services::text`.

use std::time::Duration;

use clap::{Args, ValueEnum};
use huepage_color::ColorSet;
use huepage_linux::services::files::PlacerOptions;
use huepage_linux::services::text::{TextOptions, TextReport, TextWorker};
use serde::{Deserialize, Serialize};

use super::{Context, Reports, Service};
use crate::deferred_drop::drop_behind;
use crate::exit::{CmdError, ExitCode};
use crate::headings::{FEATURES, TUNING};
use crate::style::count;

/// What is done about program text and libraries.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TextArgs {
    /// What is done about program text and libraries of the partition
    ///
    /// place: pages of programs and libraries that nobody else maps leave the page cache and are
    /// read again in the partition's colours, before a program's first instruction and soon after
    /// it maps more. A program that runs already is held still for some milliseconds at a time
    /// meanwhile. What others map too, as all do the C library, is left. leave: they lie where they
    /// came to lie.
    #[arg(long, help_heading = FEATURES, value_enum, value_name = "HOW", default_value_t = TextChoice::Leave)]
    pub text: TextChoice,

    /// Colours for text that other partitions map too, with --text place [default: it is left]
    #[arg(long, help_heading = TUNING, hide_short_help = true, value_name = "SET", requires = "text")]
    pub shared_colors: Option<String>,
}

/// Whether text is placed.
#[derive(ValueEnum, Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TextChoice {
    /// Into the partition's colours
    Place,
    /// Nowhere
    #[default]
    Leave,
}

impl TextArgs {
    /// Whether it is placed.
    pub fn is_on(&self) -> bool {
        self.text == TextChoice::Place
    }

    /// The colours for files that other partitions map too, in a cache of so many.
    pub fn shared(&self, universe: u16) -> Result<Option<ColorSet>, CmdError> {
        let shared = self.shared_colors.as_ref().map(|text| ColorSet::parse(text, universe));
        shared.transpose().map_err(|error| CmdError::new(ExitCode::Colors, error))
    }

    /// What is asked for, in a line.
    pub fn line(&self) -> Option<String> {
        self.is_on().then(|| "text and libraries in the partition's colours".to_owned())
    }
}

/// Has text placed.
struct TextService(TextWorker);

/// Starts the service; see [`super::Service`]. Nothing is gathered yet.
pub fn start(
    options: &TextArgs,
    context: &Context<'_>,
) -> Result<Option<Box<dyn Service>>, CmdError> {
    let shared = options.shared(context.colors.files.universe())?;
    if !options.is_on() {
        return Ok(None);
    }
    let options = TextOptions {
        own: context.colors.files.clone(),
        shared,
        registry: context.registry.clone(),
        placer: PlacerOptions::default(),
    };
    let keeper = TextWorker::start(context.source.another(), options);
    Ok(Some(Box::new(TextService(keeper))))
}

impl Service for TextService {
    fn admit(&mut self, members: &[i32]) {
        self.0.set_members(members);
    }

    fn prepare(&mut self, pid: i32, limit: Duration) {
        self.0.place_now(pid, limit);
    }

    fn report(&self, into: &mut Reports) {
        into.text = Some(self.0.report());
    }

    fn withdraw(self: Box<Self>) {
        drop_behind(self.0);
    }
}

/// In one line, for a person.
pub fn line(report: &TextReport) -> String {
    let tally = &report.tally;
    let mut line = format!(
        "text: {}, {} of {} in the partition's colours, {} of them placed in {:.2} s",
        count(report.files, "file", "files"),
        tally.placed + tally.already,
        count(tally.pages, "page", "pages"),
        tally.placed,
        report.seconds
    );
    let pages = tally.refused.iter().map(|(why, &n)| (count(n, "page", "pages"), why.text()));
    let files = report.left.iter().map(|(why, &n)| (count(n, "file", "files"), why.text()));
    let left: Vec<String> = pages.chain(files).map(|(n, why)| format!("{n} {why}")).collect();
    if !left.is_empty() {
        line += &format!("; left alone: {}", left.join(", "));
    }
    if let Some(error) = &report.error {
        line += &format!("; nothing more is placed: {error}");
    }
    line
}
