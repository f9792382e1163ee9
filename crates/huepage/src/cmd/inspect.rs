//! `huepage inspect`: where the pages of a process are. Page tables are read here and now, by
//! this process, and colours looked up independently of the engine; only the counters come
//! from the supervisor. File-backed pages are told apart from compliance, which is about memory
//! of the process's own.

mod sizes;

use std::collections::HashSet;
use std::time::Duration;

use comfy_table::{Table, presets};
use huepage_color::{ColorSet, IndexFunction, Vpn};
use huepage_linux::conflicts::ConflictReport;
use huepage_linux::control::Request;
use huepage_linux::engine::{
    ColorSource, Eyes, FileCensus, FileEyes, FileRow, MemberStatus, Outside,
};
use huepage_linux::filecache::mappers::Mappers;
use huepage_linux::filecache::text::{Fate, Kinship, TextReport};
use huepage_linux::pollute::PolluteReport;
use huepage_linux::procfs::{Area, Categories, Pagemap, ProcRoot, ScanQuery};
use huepage_linux::registry::Registry;
use huepage_linux::superpages;
use huepage_policy::{Census, Refusal};
use serde::{Deserialize, Serialize};

use super::attach::ask;
use crate::args::InspectArgs;
use crate::exit::CmdError;
use crate::partition::{self, internal};
use crate::report::{Compliance, kept_text, ratio};
use crate::style;
use crate::text;

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
    compliance: Compliance,
    census: Census,
    files: Files,
    engine: MemberStatus,
    /// Where superpages may leave the partition.
    #[serde(flatten)]
    sizes: Option<sizes::Sizes>,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<TextReport>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pollute: Option<PolluteReport>,
    #[serde(skip_serializing_if = "Option::is_none")]
    verified: Option<serde_json::Value>,
}

/// Inspects one process.
pub fn run(args: InspectArgs) -> Result<u8, CmdError> {
    partition::check_privileges()?;
    let pid = args.pid.cast_signed();
    let verified = match args.verify {
        Some(sample) => Some(ask(pid, &Request::Verify { pid, sample }, Duration::from_secs(60))?),
        None => None,
    };
    let told = told(pid)?;
    let watched = Watched::deserialize(&told).map_err(internal)?;
    // Where all else is confined too there is more to show.
    let alone = !told["partition"]["buffer"].is_string();
    if alone && (watched.pollute.is_some() || watched.conflicts.is_some()) {
        return some_pages(pid, &watched, args.json);
    }
    if watched.status.is_none() {
        return sizes::show(pid, watched.superpages, args.json);
    }
    let unknown = told["colors_known"] == false;
    let answer: Answer = serde_json::from_value(told).map_err(internal)?;
    if unknown {
        return not_yet(pid, &answer.partition, args.json);
    }
    let eyes = Sight::open(pid, &answer)?;
    let (census, files) = (eyes.look(&answer)?, eyes.look_at_files(&answer)?);
    let compliance = Compliance::from(&census).less(&answer.status.kept);
    let sizes =
        answer.superpages.map(|report| sizes::Sizes::read(pid, Some(report))).transpose()?;
    let found = Inspection {
        pid,
        partition: answer.partition,
        compliance,
        census,
        files,
        engine: answer.status,
        sizes,
        text: answer.text,
        pollute: answer.pollute,
        verified,
    };
    show(&found, args.json)
}

fn show(found: &Inspection, json: bool) -> Result<u8, CmdError> {
    say(&if json { pretty(found)? } else { text(found) })
}

/// What is done to some pages of a process whose others are left where they are.
fn some_pages(pid: i32, watched: &Watched, json: bool) -> Result<u8, CmdError> {
    let Watched { pollute, conflicts, .. } = watched;
    if json {
        let found = match (pollute, conflicts) {
            (Some(pollute), _) => serde_json::json!({ "pid": pid, "pollute": pollute }),
            _ => serde_json::json!({ "pid": pid, "conflicts": conflicts }),
        };
        return say(&pretty(&found)?);
    }
    let texts =
        [pollute.as_ref().map(PolluteReport::text), conflicts.as_ref().map(ConflictReport::text)];
    say(&texts.into_iter().flatten().map(|text| text + "\n").collect::<String>())
}

/// Of a process whose colours are being found: looking at its pages would only hold that up.
fn not_yet(pid: i32, partition: &Partition, json: bool) -> Result<u8, CmdError> {
    if json {
        let (compliance, known) = (serde_json::Value::Null, false);
        return say(&pretty(&serde_json::json!({
            "pid": pid, "partition": partition, "compliance": compliance, "colors_known": known,
        }))?);
    }
    let Partition { colors, of, level, supervisor, .. } = partition;
    say(&format!(
        "process {pid}: colours {colors} of {of} ({level}), supervisor {supervisor}\n\
         colours are being measured; nothing is confined yet, look again in a moment\n"
    ))
}

/// JSON for a person, and a newline.
fn pretty(found: &impl Serialize) -> Result<String, CmdError> {
    Ok(serde_json::to_string_pretty(found).map_err(internal)? + "\n")
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
    Ok(Compliance::from(&census).less(&answer.status.kept))
}

/// What its supervisor says of a process in a partition.
fn status(pid: i32) -> Result<Answer, CmdError> {
    serde_json::from_value(told(pid)?).map_err(internal)
}

fn told(pid: i32) -> Result<serde_json::Value, CmdError> {
    ask(pid, &Request::Status { pid }, Duration::from_secs(10))
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
            pagemap: root.pagemap(pid).map_err(internal)?,
            areas: root.maps(pid).map_err(internal)?,
            root,
        })
    }

    fn look(&self, answer: &Answer) -> Result<Census, CmdError> {
        let eyes = Eyes {
            pagemap: &self.pagemap,
            color_of: &|frame| self.source.shown(frame),
            colors: &self.colors,
            own: &answer.status.own,
            foreign: &answer.status.foreign,
            except: None,
        };
        let chosen = self.superpages(answer)?;
        let obstacle = |page: Vpn| chosen.contains(&(page.0 >> 9)).then_some(Refusal::Superpage);
        let judge = |_: &Area, page: Outside| obstacle(page.seen.page);
        let mut census = eyes.look(&self.areas, judge).map_err(internal)?;
        excuse(&mut census, answer.status.census.as_ref());
        census.explain(Refusal::Untouched, answer.status.untouched);
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
                self.pagemap.scan(area.start..area.end, &query, &mut found).map_err(internal)?;
            }
        }
        Ok(found.iter().flat_map(|region| region.start >> 21..region.end >> 21).collect())
    }

    fn look_at_files(&self, answer: &Answer) -> Result<Files, CmdError> {
        let mappers = Mappers::read(&self.root).map_err(internal)?;
        let entry = Registry::open().and_then(|r| r.find_member(self.pid)).map_err(internal)?;
        let members = entry.map_or_else(|| vec![self.pid], |entry| entry.members);
        let kin = Kinship::read(&self.root, &members, &[]);
        let shared = answer.partition.shared_colors.as_ref();
        let shared = shared.map(|text| ColorSet::parse(text, self.colors.universe())).transpose();
        let shared = shared.map_err(internal)?;
        let eyes = FileEyes {
            root: &self.root,
            pid: self.pid,
            pagemap: &self.pagemap,
            color_of: &|frame| self.source.shown(frame),
            colors: &self.colors,
            shared_colors: shared.as_ref(),
            is_shared: &|file| kin.fate(&mappers.pids(file), false) != Fate::Own,
            own: &answer.status.own,
        };
        let census = eyes.look(&self.areas).map_err(internal)?;
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
    let Compliance { share, in_colors, movable } = found.compliance;
    let mut text = format!(
        "process {} ({}): colours {} of {} ({}, {}), supervisor {}\n\
         compliance {:.2} %: {in_colors} of {movable} movable resident pages are in the partition\n\
         {}\npages per colour:\n{}{}\
         faults served {} ({} pages placed, {} of any colour), recoloured {}, in stock {}\n",
        found.pid,
        engine.name,
        p.colors,
        p.of,
        p.level,
        p.colors_from,
        p.supervisor,
        share * 100.0,
        kinds(&found.census),
        of_colors(&found.census.colors().map(|(_, n)| n).collect::<Vec<u64>>()),
        of_files(&found.files, found.text.as_ref()),
        engine.faults_served,
        engine.placed,
        engine.fallback_pages,
        engine.recolored,
        engine.stock
    );
    let left = found.census.obstacles().map(|(why, n)| format!("left alone: {n} {why}"));
    let eager = engine.eager.as_ref().map(|why| format!("colours are not left lazily: {why}"));
    let small = p.no_superpages.as_ref().map(|why| format!("no superpages: {why}"));
    for line in left.chain(eager).chain(small).chain(of_helpers(found)) {
        text += &(line + "\n");
    }
    text
}

/// What was done beside moving pages into the partition, and what was measured again.
fn of_helpers(found: &Inspection) -> impl Iterator<Item = String> {
    let sizes = found.sizes.as_ref();
    let sizes = sizes.map(|sizes| format!("page sizes: {}\n{}", sizes.line(), sizes.text()));
    let verified = found.verified.as_ref().map(|verified| {
        let (measured, right) = (&verified["measured"], &verified["as_believed"]);
        format!("measured now: {measured} pages, {right} as believed")
    });
    let kept = kept_text(&found.engine.kept);
    [sizes, found.pollute.as_ref().map(PolluteReport::text), kept, verified].into_iter().flatten()
}

fn of_colors(counts: &[u64]) -> String {
    let most = counts.iter().copied().max().unwrap_or(0).max(1);
    let rows = counts.iter().enumerate().filter(|(_, n)| **n > 0).map(|(color, &n)| {
        let width = usize::try_from(n * 40 / most).unwrap_or(0);
        format!("  {color:>3} {n:>8} {}\n", "#".repeat(width))
    });
    rows.collect()
}

/// File-backed pages, and what became of text.
fn of_files(files: &Files, report: Option<&TextReport>) -> String {
    let mut text = format!("{}\n", uses(files));
    if files.total.by_color.iter().any(|n| *n > 0) {
        text += "file-backed pages per colour:\n";
        text += &of_colors(&files.total.by_color);
    }
    report.map(|report| text::line(report) + "\n").into_iter().for_each(|line| text += &line);
    text
}

/// A row for each use of files.
fn uses(files: &Files) -> Table {
    let mut table = Table::new();
    let header =
        ["file-backed", "resident", "inside", "outside", "unknown", "shared with others", "share"];
    table.load_preset(presets::NOTHING).set_header(header);
    for (used, row) in &files.census.uses {
        let share = match row.exclusive() {
            0 => String::from("-"),
            exclusive => format!("{:.1} %", ratio(row.inside, exclusive) * 100.0),
        };
        let counts = [row.resident, row.inside, row.outside, row.unknown, row.shared];
        let counts = counts.map(|n| n.to_string());
        table.add_row([used.text().to_owned()].into_iter().chain(counts).chain([share]));
    }
    table
}

/// A row for each kind of area.
fn kinds(census: &Census) -> Table {
    let mut table = Table::new();
    let header = ["area", "movable", "inside", "outside", "unknown", "held", "share"];
    table.load_preset(presets::NOTHING).set_header(header);
    for (kind, row) in census.kinds() {
        let share = match row.movable() {
            0 => String::from("-"),
            movable => format!("{:.1} %", ratio(row.inside, movable) * 100.0),
        };
        let counts = [row.movable(), row.inside, row.outside, row.unknown, row.unmovable];
        let counts = counts.map(|n| n.to_string());
        table.add_row([kind.text().to_owned()].into_iter().chain(counts).chain([share]));
    }
    table
}
