//! `huepage top`: a screen of groups and processes, what they have in the cache and what policies do
//! about it, refreshed each second; or the same once, for scripts. What is shown is found out, kept and
//! drawn by the parts of `crate::top`; here they are put together.

mod page;

use std::path::PathBuf;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use huepage_linux::kernel::procfs::ProcRoot;

use super::record::private_bytes;
use crate::exit::{CmdError, ExitCode};
use crate::partition::{self, internal};
use crate::report;
use crate::signals::Interrupt;
use crate::style::{self, Style};
use crate::top::columns::COLUMNS;
use crate::top::model::{self, TopModel, TopPage, TopRequest};
use crate::top::residency::{Asking, Habits, Looks};
use crate::top::snapshot::{ProcessNow, TopSnapshot};
use crate::top::source::TopSource;
use crate::top::terminal::{self, Screen};
use crate::top::view::{self, Theme};
use crate::top::{changes, keys, text};
use crate::values::parse_cpu;
use crate::whole_file;

const EXAMPLES: &str = "\
Examples:
  huepage top                          every process in a partition
  huepage top 4711                     and process 4711, in a partition or not
  huepage top --once --json            for scripts: what the screen shows, once
  huepage top --once --json 4711       with the residency of 4711 by address
  huepage top --once --seconds 60 --html top.html    a minute as a page
  huepage top --cpu 3%                 finer estimates

`?` on the screen lists the keys. Miss rates and residency are of the private cache (L2), sampled, with a \
margin. Where the clock is too coarse to tell the L2 from the next cache, residency is of both (L2+L3) \
and there is no miss rate.";

/// How often the screen is renewed.
const PERIOD: Duration = Duration::from_secs(1);
/// How long is waited for a key before signals are looked for.
const KEYS: Duration = Duration::from_millis(100);

/// Watch groups and processes: colours, compliance, miss rates, what is in the cache
///
/// A screen that is renewed each second: processes in partitions and those that are named, by group,
/// with the areas they have most of in the cache and what policies decided. Sort and look into
/// processes with keys; `--once` prints the same for scripts.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub struct TopArgs {
    /// Processes to show besides those in partitions
    #[arg(value_name = "PID", value_parser = clap::value_parser!(u32).range(1..=i64::from(i32::MAX)))]
    pub pids: Vec<u32>,

    /// What looking at caches may cost, as a share of one CPU
    #[arg(long, value_name = "PERCENT", default_value = "1%", value_parser = parse_cpu)]
    pub cpu: f64,

    /// Print what is known once, without a screen
    #[arg(long)]
    pub once: bool,

    /// With --once: how long to look before, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 2.0, requires = "once",
          value_parser = super::record::parse_seconds)]
    pub seconds: f64,

    /// With --once: print JSON, with residency by address of the processes that are named
    #[arg(long, requires = "once")]
    pub json: bool,

    /// With --once: also write what was seen into a page of HTML that needs nothing else
    #[arg(long, value_name = "FILE", requires = "once")]
    pub html: Option<PathBuf>,
}

/// Shows the screen, or prints it once.
pub fn run(args: &TopArgs) -> Result<u8, CmdError> {
    if !args.once && !terminal::is_there() {
        let what = "the screen needs a terminal to draw on and to take keys from; use --once";
        return Err(CmdError::new(ExitCode::Usage, what));
    }
    partition::check_privileges()?;
    args.html.iter().try_for_each(|path| whole_file::can_be_written(path))?;
    let named = named(args)?;
    let interrupt = Interrupt::listen()?;
    let looks = Looks::start(habits(args)?);
    let mut source = TopSource::open(named, looks.asking())?;
    source.maps = args.once && args.json;
    let signal = if args.once {
        once(args, source, &interrupt)?
    } else {
        screen(source, &looks.asking(), &interrupt)?
    };
    Ok(signal.map_or(0, |signal| 128 + signal.to_le_bytes()[0]))
}

/// Who was named; all of them have to exist at the beginning.
fn named(args: &TopArgs) -> Result<Vec<i32>, CmdError> {
    let mut pids: Vec<i32> = args.pids.iter().map(|pid| pid.cast_signed()).collect();
    pids.dedup();
    let root = ProcRoot::default();
    match pids.iter().find(|&&pid| !root.process_exists(pid)) {
        Some(pid) => {
            let what = format!("no process with pid {pid}; look it up with `ps -e`");
            Err(CmdError::new(ExitCode::NoSuchProcess, what))
        }
        None => Ok(pids),
    }
}

fn habits(args: &TopArgs) -> Result<Habits, CmdError> {
    let cache_bytes = private_bytes()?;
    let [turn, long_turn] = match args.once {
        // Everybody is to have a turn in the time there is.
        true => [0.5, args.seconds],
        false => [2.0, 10.0],
    };
    let [turn, long_turn] = [turn, long_turn].map(Duration::from_secs_f64);
    Ok(Habits { cache_bytes, budget: args.cpu, turn, long_turn })
}

/// Looks for a while and prints; the signal that ended it.
fn once(
    args: &TopArgs,
    mut source: TopSource,
    interrupt: &Interrupt,
) -> Result<Option<i32>, CmdError> {
    let (begin, mut moments) = (Instant::now(), vec![source.look()?]);
    let mut decided = Vec::new();
    while begin.elapsed().as_secs_f64() < args.seconds {
        if let Some(signal) = interrupt.signal() {
            return Ok(Some(signal));
        }
        thread::sleep(Duration::from_millis(20));
        let looks = u32::try_from(moments.len()).unwrap_or(u32::MAX);
        if args.html.is_some() && begin.elapsed() >= PERIOD.saturating_mul(looks) {
            let mut now = source.look()?;
            decided.append(&mut now.decisions);
            // Over hours, what is not drawn takes much memory.
            now.processes.iter_mut().for_each(|of| (of.residency, of.heat) = (None, None));
            moments.push(now);
        }
    }
    let mut now = source.look()?;
    model::rates(&moments[0], &mut now);
    now.decisions.splice(0..0, decided);
    now.decisions.splice(0..0, changes::between(&moments[0], &now));
    let text = match args.json {
        true => report::json(&now)?,
        false => table(now.clone(), Style::stdout()),
    };
    style::print(&text).map_err(internal)?;
    if let Some(path) = &args.html {
        let printed = table(now.clone(), Style::plain());
        moments.push(now);
        whole_file::save(path, &page::page(&moments, &printed).map_err(internal)?)?;
    }
    Ok(None)
}

/// The list as plain lines.
fn table(now: TopSnapshot, style: Style) -> String {
    let titles = COLUMNS.iter().map(|column| column.title);
    let heads: Vec<&str> = HEADS.into_iter().chain(titles).chain(["cache"]).collect();
    let mut table = style.table(&heads);
    let mut model = TopModel::default();
    model.update(now);
    let mut group = text::UNKNOWN.to_owned();
    for row in model.rows() {
        match row {
            model::TopRow::Group(own) => {
                group = own
                    .map_or_else(|| text::UNKNOWN.to_owned(), |own| text::name(&own.label(), 20));
            }
            model::TopRow::Process(process) => _ = table.add_row(cells(&group, process)),
        }
    }
    let groups = model.now.groups.iter().map(|group| text::group(Some(group)) + "\n");
    let decisions = model.decisions().map(|d| format!("{}: {}\n", d.group, d.text));
    style::lay_out(table) + &groups.chain(decisions).collect::<String>()
}

/// What is before the figures of a process.
const HEADS: [&str; 4] = ["group", "pid", "name", "colours"];

fn cells(group: &str, process: &ProcessNow) -> Vec<String> {
    let unknown = || text::UNKNOWN.to_owned();
    let colors = process.colors.as_ref().map_or_else(unknown, ToString::to_string);
    let heads = [group.to_owned(), process.pid.to_string(), text::name(&process.name, 20), colors];
    let figures = COLUMNS.iter().map(|column| column.text(process));
    let cache = process.residency.as_ref().map_or(text::UNKNOWN, |residency| residency.cache);
    heads.into_iter().chain(figures).chain([cache.to_owned()]).collect()
}

/// What comes from the thread that asks.
enum News {
    Moment(Box<TopSnapshot>),
    Said(String),
    Failed(CmdError),
}

/// Shows the screen until the user has enough; the signal that ended it.
fn screen(
    source: TopSource,
    looks: &Asking,
    interrupt: &Interrupt,
) -> Result<Option<i32>, CmdError> {
    let ((wishes, wished), (news, new)) = (mpsc::channel(), mpsc::channel());
    // Ends with the channels; it may wait for a supervisor just then, so nobody waits for it.
    thread::spawn(move || ask(source, &wished, &news));
    let mut screen = Screen::open().map_err(lost)?;
    let (mut model, theme) = (TopModel::default(), Theme { colored: Style::stdout().colored() });
    let (mut pressed, mut size) = (true, None);
    loop {
        if let Some(signal) = interrupt.signal() {
            return Ok(Some(signal));
        }
        // The link may be slow: nothing is written while nothing has changed.
        let now = Some(screen.size().map_err(lost)?);
        let resized = std::mem::replace(&mut size, now) != now;
        if take(&new, &mut model)? || pressed || resized {
            screen.draw(|frame| view::draw(frame, &mut model, theme)).map_err(lost)?;
        }
        pressed = false;
        let Some(event) = screen.event(KEYS).map_err(lost)? else { continue };
        pressed = true;
        let wish = keys::key(&event).and_then(|key| model.press(key));
        match wish {
            Some(TopRequest::Quit) => return Ok(None),
            Some(wish) => _ = wishes.send(wish),
            None => {}
        }
        looks.focus(match model.page {
            TopPage::Heat { pid, .. } => Some(pid),
            _ => None,
        });
    }
}

fn lost(error: std::io::Error) -> CmdError {
    let what = format!("the terminal cannot be used: {error}; use --once, or another terminal");
    CmdError::new(ExitCode::Internal, what)
}

/// Takes what has come; whether anything has.
fn take(new: &Receiver<News>, model: &mut TopModel) -> Result<bool, CmdError> {
    let mut any = false;
    for news in new.try_iter() {
        any = true;
        match news {
            News::Moment(now) => model.update(*now),
            News::Said(text) => model.message = Some(text),
            News::Failed(error) => return Err(error),
        }
    }
    Ok(any)
}

/// Asks each second, and hands wishes on meanwhile.
fn ask(mut source: TopSource, wished: &Receiver<TopRequest>, news: &Sender<News>) {
    loop {
        let begin = Instant::now();
        let found = match source.look() {
            Ok(now) => News::Moment(Box::new(now)),
            Err(error) => News::Failed(error),
        };
        if news.send(found).is_err() {
            return;
        }
        loop {
            match wished.recv_timeout(PERIOD.saturating_sub(begin.elapsed())) {
                Ok(wish) => _ = news.send(News::Said(carry_out(&mut source, wish))),
                Err(RecvTimeoutError::Timeout) => break,
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }
}

fn carry_out(source: &mut TopSource, wish: TopRequest) -> String {
    let TopRequest::Freeze { frozen } = wish else { return String::new() };
    let Some(daemon) = &mut source.daemon else {
        return crate::top::daemon::NO_DAEMON.to_owned();
    };
    match daemon.freeze(frozen) {
        Ok(()) if frozen => "all policies of the daemon are frozen; f lets them go on".to_owned(),
        Ok(()) => "the policies of the daemon go on".to_owned(),
        Err(why) => why,
    }
}
