//! `huepage inspect`: where the pages of a process are. Page tables are read here and now, by
//! this process, and colours looked up independently of the engine; only the counters come
//! from the supervisor. File-backed pages are told apart from compliance, which is about memory
//! of the process's own.

mod sizes;

use std::collections::HashSet;

use clap::Args;
use huepage_color::{ColorSet, IndexFunction, Vpn};
use huepage_linux::color::partition_registry::Registry;
use huepage_linux::color::sources::{ColorSource, Probed};
use huepage_linux::engine::{
    ColorLookup, FileCensus, FileColorLookup, FileRow, MemberStatus, Outside,
};
use huepage_linux::kernel::mappers::Mappers;
use huepage_linux::kernel::procfs::{Area, Categories, Pagemap, ProcRoot, ScanQuery};
use huepage_linux::services::conflicts::ConflictReport;
use huepage_linux::services::pollute::PolluteReport;
use huepage_linux::services::superpages;
use huepage_linux::services::text::{Fate, TextOwners, TextReport};
use huepage_policy::{Census, MoveRefusal};
use serde::{Deserialize, Serialize};

use super::claim::{claim, told, told_if_any};
use super::verify::{Verified, parse_pages, verify};
use crate::exit::{CmdError, ExitCode, proc_error};
use crate::measured_colors::{MeasuredPages, bars, listed};
use crate::partition::{self, internal};
use crate::report::{self, Compliance, kept_text, ratio};
use crate::services::text;
use crate::style::{self, Style};

const EXAMPLES: &str = "\
Examples:
  huepage inspect 4711                colours, compliance, pages left alone
  huepage inspect 4711 --verify 1000  also measure 1000 of its pages
  huepage inspect 4711 --json | jq .compliance";

/// Show where the pages of a process are
///
/// Pages per colour and per kind of area, compliance, faults served, pages recoloured, and
/// pages left alone with the reason. Of a process in no partition: its pages by colour, as a baseline, and
/// status 111.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub struct InspectArgs {
    /// The process
    #[arg(value_name = "PID", value_parser = clap::value_parser!(u32).range(1..=0x40_0000))]
    pub pid: u32,

    /// Print JSON
    #[arg(long)]
    pub json: bool,

    /// Measure the colours of N sampled pages too, as `huepage verify`
    #[arg(long, value_name = "N", value_parser = parse_pages)]
    pub verify: Option<usize>,
}

/// Pages that a baseline looks at, where nothing is said.
const BASELINE: usize = 1024;

#[derive(Deserialize, Serialize, Clone)]
struct Partition {
    colors: String,
    of: u16,
    level: String,
    colors_from: String,
    /// The index function, if it came from a file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    index: Option<IndexFunction>,
    supervisor: u32,
    /// Colours of files that other partitions map too, if there are any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    shared_colors: Option<String>,
    /// Why no superpages are built, where they were asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    no_superpages: Option<String>,
    /// Of the colours, those kept for polluting pages, if there are any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    buffer: Option<String>,
}

#[derive(Deserialize)]
struct Answer {
    partition: Partition,
    status: MemberStatus,
    /// What became of program text, where it is placed.
    #[serde(default)]
    text: Option<TextReport>,
    /// What was done about superpages, where they may leave the partition.
    #[serde(default)]
    superpages: Option<superpages::Report>,
    /// What was found about polluting pages, where a buffer is kept for them.
    #[serde(default)]
    pollute: Option<PolluteReport>,
}

/// What a supervisor says of any process of its.
#[derive(Deserialize)]
struct Watched {
    status: Option<MemberStatus>,
    #[serde(default)]
    superpages: Option<superpages::Report>,
    #[serde(default)]
    pollute: Option<PolluteReport>,
    #[serde(default)]
    conflicts: Option<ConflictReport>,
}

/// File-backed pages, which compliance does not speak of.
#[derive(Serialize)]
struct Files {
    /// By the use of the files: text, library, data.
    #[serde(flatten)]
    census: FileCensus,
    total: FileRow,
    /// Of the pages of files that only the group maps, those inside, 0 to 1.
    share: Option<f64>,
}

/// What is printed as JSON.
#[derive(Serialize)]
struct Inspection {
    pid: i32,
    partition: Partition,
    /// Its colours as resctrl would write them, where they are whole ways.
    schemata: Option<String>,
    compliance: Compliance,
    census: Census,
    files: Files,
    engine: MemberStatus,
    /// Where superpages may leave the partition.
    #[serde(flatten)]
    sizes: Option<sizes::ProcessPageSizes>,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<TextReport>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pollute: Option<PolluteReport>,
    #[serde(skip_serializing_if = "Option::is_none")]
    verified: Option<Verified>,
}

/// What is printed as JSON of a process in no partition.
#[derive(Serialize)]
struct Baseline {
    pid: i32,
    /// None: it is in none.
    partition: Option<Partition>,
    level: String,
    of: u16,
    colors_from: String,
    #[serde(flatten)]
    sampled: MeasuredPages,
}

/// Inspects one process.
pub fn run(args: InspectArgs) -> Result<u8, CmdError> {
    partition::check_privileges()?;
    let pid = args.pid.cast_signed();
    let Some(told) = told_if_any(pid)? else {
        return baseline(pid, args.verify.unwrap_or(BASELINE), args.json);
    };
    let watched = Watched::deserialize(&told).map_err(internal)?;
    // Where all else is confined too there is more to show.
    let alone = !told["partition"]["buffer"].is_string();
    if alone && (watched.pollute.is_some() || watched.conflicts.is_some()) {
        return some_pages(pid, &watched, args.json);
    }
    if watched.status.is_none() {
        return sizes::show(pid, watched.superpages, args.json);
    }
    let verified = |pages| verify(pid, claim(pid)?.as_ref(), pages);
    let verified = args.verify.map(verified).transpose()?;
    let unknown = told["colors_known"] == false;
    let because = told["colors_unknown_because"].as_str().map(str::to_owned);
    let answer: Answer = serde_json::from_value(told).map_err(internal)?;
    if unknown {
        return not_yet(pid, &answer.partition, because, args.json);
    }
    show(&inspected(pid, answer, verified)?, args.json)
}

/// Looks up the pages of a process in a partition, of which its supervisor gave this answer.
fn inspected(pid: i32, answer: Answer, verified: Option<Verified>) -> Result<Inspection, CmdError> {
    let lookup = Sight::open(pid, &answer)?;
    let (census, files) = (lookup.look(&answer)?, lookup.look_at_files(&answer)?);
    let compliance = Compliance::from(&census).less(&answer.status.upkeep);
    let sizes = answer
        .superpages
        .map(|report| sizes::ProcessPageSizes::read(pid, Some(report)))
        .transpose()?;
    let Partition { colors, of, level, .. } = &answer.partition;
    Ok(Inspection {
        pid,
        schemata: partition::schemata_here(level, colors, *of),
        partition: answer.partition,
        compliance,
        census,
        files,
        engine: answer.status,
        sizes,
        text: answer.text,
        pollute: answer.pollute,
        verified,
    })
}

fn show(found: &Inspection, json: bool) -> Result<u8, CmdError> {
    say(&if json { report::json(found)? } else { text(found) })
}

/// Where pages of a process are that is in no partition: what one would change.
fn baseline(pid: i32, pages: usize, json: bool) -> Result<u8, CmdError> {
    // What takes seconds is left to `huepage verify`.
    let from = if Probed::is_known_needed() { "probed" } else { "pfn" };
    let source = partition::reader("L2", from, None)?;
    let sampled = MeasuredPages::of(pid, &[], &*source, pages)?;
    let (level, of) = ("L2".to_owned(), source.universe());
    let colors_from = source.provenance().to_string();
    let found = Baseline { pid, partition: None, level, of, colors_from, sampled };
    say(&if json { report::json(&found)? } else { found.text() })?;
    Ok(ExitCode::NotAttached.status())
}

impl Baseline {
    fn text(&self) -> String {
        let Baseline { pid, level, of, colors_from, sampled, .. } = self;
        let known = report::known(colors_from);
        let how = "`huepage attach --help` says how to give it a partition";
        format!(
            "process {pid}: in no partition; {how}\n{of} colours ({level}, {known})\n{}",
            sampled.text()
        )
    }
}

/// What is done to some pages of a process whose others are left where they are.
fn some_pages(pid: i32, watched: &Watched, json: bool) -> Result<u8, CmdError> {
    let Watched { pollute, conflicts, .. } = watched;
    if json {
        let found = match (pollute, conflicts) {
            (Some(pollute), _) => serde_json::json!({ "pid": pid, "pollute": pollute }),
            _ => serde_json::json!({ "pid": pid, "conflicts": conflicts }),
        };
        return say(&report::json(&found)?);
    }
    let texts =
        [pollute.as_ref().map(PolluteReport::text), conflicts.as_ref().map(ConflictReport::text)];
    say(&texts.into_iter().flatten().map(|text| text + "\n").collect::<String>())
}

/// Of a process whose colours are being found: looking at its pages would only hold that up.
fn not_yet(
    pid: i32,
    partition: &Partition,
    because: Option<String>,
    json: bool,
) -> Result<u8, CmdError> {
    if json {
        let (compliance, known) = (serde_json::Value::Null, false);
        return say(&report::json(&serde_json::json!({
            "pid": pid, "partition": partition, "compliance": compliance, "colors_known": known,
            "colors_unknown_because": because,
        }))?);
    }
    let Partition { colors, of, level, supervisor, .. } = partition;
    let because = because.map(|why| format!("; the last try failed: {why}")).unwrap_or_default();
    say(&format!(
        "process {pid}: colours {colors} of {of} ({level}), supervisor {supervisor}\n\
         colours are being measured; nothing is confined yet, look again in a moment{because}\n"
    ))
}

/// Prints it; a reader that has gone away is no error.
fn say(text: &str) -> Result<u8, CmdError> {
    style::print(text).map_err(internal)?;
    Ok(0)
}

/// Where the pages of a process are, measured now.
pub fn compliance(pid: i32) -> Result<Compliance, CmdError> {
    let answer = status(pid)?;
    let census = Sight::open(pid, &answer)?.look(&answer)?;
    Ok(Compliance::from(&census).less(&answer.status.upkeep))
}

/// What its supervisor says of a process in a partition.
fn status(pid: i32) -> Result<Answer, CmdError> {
    serde_json::from_value(told(pid)?).map_err(internal)
}

/// Our own look at a process.
struct Sight {
    pid: i32,
    root: ProcRoot,
    pagemap: Pagemap,
    areas: Vec<Area>,
    source: Box<dyn ColorSource>,
    colors: ColorSet,
}

impl Sight {
    fn open(pid: i32, answer: &Answer) -> Result<Sight, CmdError> {
        let Partition { level, colors_from, index, colors, of, .. } = &answer.partition;
        let root = ProcRoot::default();
        Ok(Sight {
            pid,
            source: partition::reader(level, colors_from, index.as_ref())?,
            colors: ColorSet::parse(colors, *of).map_err(internal)?,
            pagemap: root.pagemap(pid).map_err(proc_error)?,
            areas: root.maps(pid).map_err(proc_error)?,
            root,
        })
    }

    fn look(&self, answer: &Answer) -> Result<Census, CmdError> {
        let lookup = ColorLookup {
            pagemap: &self.pagemap,
            color_of: &|frame| self.source.shown(frame),
            colors: &self.colors,
            own: &answer.status.own,
            foreign: &answer.status.foreign,
            except: None,
        };
        let chosen = self.superpages(answer)?;
        let obstacle =
            |page: Vpn| chosen.contains(&(page.0 >> 9)).then_some(MoveRefusal::Superpage);
        let judge = |_: &Area, page: Outside| obstacle(page.seen.page);
        let mut census = lookup.count(&self.areas, judge).map_err(proc_error)?;
        excuse(&mut census, answer.status.census.as_ref());
        census.explain(MoveRefusal::Untouched, answer.status.untouched);
        Ok(census)
    }

    /// Superpages, by number: where they may leave the partition, what lies outside of them is there
    /// by choice.
    fn superpages(&self, answer: &Answer) -> Result<HashSet<u64>, CmdError> {
        let mut found = Vec::new();
        if answer.superpages.is_some() {
            let mut query = ScanQuery::present();
            query.all_of = query.all_of | Categories::HUGE;
            for area in self.areas.iter().filter(|area| area.is_private_anonymous()) {
                self.pagemap.scan(area.start..area.end, &query, &mut found).map_err(proc_error)?;
            }
        }
        Ok(found.iter().flat_map(|region| region.start >> 21..region.end >> 21).collect())
    }

    fn look_at_files(&self, answer: &Answer) -> Result<Files, CmdError> {
        let mappers = Mappers::read(&self.root).map_err(internal)?;
        let entry = Registry::open().and_then(|r| r.find_member(self.pid)).map_err(internal)?;
        let members = entry.map_or_else(|| vec![self.pid], |entry| entry.members);
        let owners = TextOwners::read(&self.root, &members, &[]);
        let shared = answer.partition.shared_colors.as_ref();
        let shared = shared.map(|text| ColorSet::parse(text, self.colors.universe())).transpose();
        let shared = shared.map_err(internal)?;
        let lookup = FileColorLookup {
            root: &self.root,
            pid: self.pid,
            pagemap: &self.pagemap,
            color_of: &|frame| self.source.shown(frame),
            colors: &self.colors,
            shared_colors: shared.as_ref(),
            is_shared: &|file| owners.fate(&mappers.pids(file), false) != Fate::Own,
            own: &answer.status.own,
        };
        let census = lookup.count(&self.areas).map_err(proc_error)?;
        Ok(Files { total: census.total(), share: census.compliance(), census })
    }
}

/// Pages that the engine tried to move and could not are held, as in its own census.
fn excuse(census: &mut Census, engine: Option<&Census>) {
    let known: Vec<_> = census.obstacles().map(|(why, _)| why).collect();
    let tried = engine.into_iter().flat_map(Census::obstacles);
    for (why, pages) in tried.filter(|(why, _)| why.holds_page() && !known.contains(why)) {
        census.excuse(why, pages);
    }
}

fn text(found: &Inspection) -> String {
    let p = &found.partition;
    let engine = &found.engine;
    let mut text = format!(
        "process {} ({}): colours {} of {} ({}, {}), supervisor {}\n{}\n\
         {}pages per colour:\n{}{}\
         faults served {} ({} pages placed, {} of any colour), recoloured {}, in stock {}\n",
        found.pid,
        engine.name,
        p.colors,
        p.of,
        p.level,
        report::known(&p.colors_from),
        p.supervisor,
        found.compliance.text(&p.colors_from),
        kinds(&found.census),
        of_colors(&found.census.colors().map(|(_, n)| n).collect::<Vec<u64>>()),
        of_files(&found.files, found.text.as_ref()),
        engine.faults_served,
        engine.placed,
        engine.fallback_pages,
        engine.recolored,
        engine.stock
    );
    let left = found
        .census
        .obstacles()
        .map(|(why, n)| format!("left alone: {} ({why})", style::count(n, "page", "pages")));
    let eager = engine.eager.as_ref().map(|why| format!("colours are not left lazily: {why}"));
    let small = p.no_superpages.as_ref().map(|why| format!("no superpages: {why}"));
    let schemata = found.schemata.iter().map(|line| format!("as a schemata of resctrl: {line}"));
    for line in left.chain(eager).chain(small).chain(schemata).chain(of_helpers(found)) {
        text += &(line + "\n");
    }
    text
}

/// What was done besides moving pages into the partition, and what was measured again.
fn of_helpers(found: &Inspection) -> impl Iterator<Item = String> {
    let sizes = found.sizes.as_ref();
    let sizes = sizes.map(|sizes| format!("page sizes: {}\n{}", sizes.line(), sizes.text()));
    let verified = found.verified.as_ref().map(|verified| verified.text().trim_end().to_owned());
    let kept = kept_text(&found.engine.upkeep);
    [sizes, found.pollute.as_ref().map(PolluteReport::text), kept, verified].into_iter().flatten()
}

fn of_colors(counts: &[u64]) -> String {
    bars(&listed(counts))
}

/// File-backed pages, and what became of text.
fn of_files(files: &Files, report: Option<&TextReport>) -> String {
    let mut text = uses(files);
    if files.total.by_color.iter().any(|n| *n > 0) {
        text += "file-backed pages per colour:\n";
        text += &of_colors(&files.total.by_color);
    }
    report.map(|report| text::line(report) + "\n").into_iter().for_each(|line| text += &line);
    text
}

/// A row for each use of files.
fn uses(files: &Files) -> String {
    let header =
        ["file-backed", "resident", "inside", "outside", "unknown", "shared with others", "share"];
    let mut table = Style::stdout().table(&header);
    for (used, row) in &files.census.uses {
        let share = match row.exclusive() {
            0 => String::from("-"),
            exclusive => format!("{:.1} %", ratio(row.inside, exclusive) * 100.0),
        };
        let counts = [row.resident, row.inside, row.outside, row.unknown, row.shared];
        let counts = counts.map(|n| n.to_string());
        table.add_row([used.text().to_owned()].into_iter().chain(counts).chain([share]));
    }
    style::lay_out(table)
}

/// A row for each kind of area.
fn kinds(census: &Census) -> String {
    let header = ["area", "movable", "inside", "outside", "unknown", "left alone", "share"];
    let mut table = Style::stdout().table(&header);
    for (kind, row) in census.kinds() {
        let share = match row.movable() {
            0 => String::from("-"),
            movable => format!("{:.1} %", ratio(row.inside, movable) * 100.0),
        };
        let counts = [row.movable(), row.inside, row.outside, row.unknown, row.unmovable];
        let counts = counts.map(|n| n.to_string());
        table.add_row([kind.text().to_owned()].into_iter().chain(counts).chain([share]));
    }
    style::lay_out(table)
}
