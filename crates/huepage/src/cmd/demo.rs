//! `huepage demo`: what a share of the cache does, measured on this machine in about a minute.
//!
//! Three parts in order: the latency staircase, a hot set beside a stream, a real program in
//! half the colours. A part that the machine is too noisy for is measured once more; if doubts
//! remain they are printed instead of its figures, and the exit status says so.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Instant;

use comfy_table::{Cell, CellAlignment, Table};
use huepage_color::CacheLevel;
use serde::Serialize;

use crate::args::DemoArgs;
use crate::demo::beside::{self, Beside};
use crate::demo::plot::{self, Ink};
use crate::demo::pool::{self, Pool};
use crate::demo::program::{self, Program};
use crate::demo::staircase::{self, Staircase};
use crate::demo::steps::Steps;
use crate::demo::walk::Pinned;
use crate::demo::{Cache, svg};
use crate::exit::{CmdError, ExitCode};
use crate::partition::{self, internal};
use crate::style::{self, Style};

/// What is left of a part: its figures and what speaks against them.
#[derive(Serialize)]
struct Part<T> {
    #[serde(flatten)]
    found: T,
    doubts: Vec<String>,
}

/// The demonstration in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    /// All parts show what they should.
    Shown,
    /// A part is in doubt.
    Noisy,
    /// The program's output was not that of its native run.
    Wrong,
}

/// Everything that the demonstration found; its JSON form is the output of `--json`.
#[derive(Serialize)]
struct Demo {
    /// The processor.
    cpu: String,
    /// The cache that was partitioned.
    cache: Cache,
    /// Its level.
    level: CacheLevel,
    /// What to think of it.
    verdict: Verdict,
    staircase: Part<Staircase>,
    beside: Part<Beside>,
    program: Part<Program>,
    /// Seconds that it took in all.
    seconds: f64,
}

/// Runs the demonstration.
pub fn run(args: DemoArgs) -> Result<u8, CmdError> {
    partition::check_privileges()?;
    if let Some(path) = &args.svg {
        check_directory(path)?;
    }
    let demo = measure(args.quick)?;
    let text = if args.json { json(&demo)? } else { render(&demo) };
    style::print(&text).map_err(|e| internal(format!("cannot write to standard output: {e}")))?;
    match demo.verdict {
        Verdict::Shown => {}
        Verdict::Noisy => return Err(noisy(&demo)),
        Verdict::Wrong => {
            let name = &demo.program.found.name;
            return Err(CmdError::internal(format!("{name} wrote something else than natively")));
        }
    }
    if let Some(path) = &args.svg {
        write_svg(path, &demo)?;
    }
    Ok(ExitCode::Ok.status())
}

/// An output that cannot be written is better known before a minute of measuring.
fn check_directory(path: &Path) -> Result<(), CmdError> {
    let parent = path.parent().filter(|p| !p.as_os_str().is_empty());
    if path.is_dir() || parent.is_some_and(|p| !p.is_dir()) {
        let what = format!("cannot write {}; choose a file in a directory", path.display());
        return Err(CmdError::new(ExitCode::Usage, what));
    }
    Ok(())
}

fn measure(quick: bool) -> Result<Demo, CmdError> {
    let start = Instant::now();
    let (stairs, hot) = (staircase::Effort::new(quick), beside::Effort::new(quick));
    let steps = Steps::new(stairs.time() + hot.time() + program::PLANNED);
    let pinned = Pinned::here();
    let (cpu, geometry) = pool::l2()?;
    let (cache, level) = (Cache::of(&geometry)?, geometry.level);
    steps.say("measuring colours");
    let mut pool = Pool::measured(&geometry, cache)?;
    let staircase = twice(
        || staircase::measure(&mut pool, cache, stairs, &steps),
        |found| found.doubts(cache),
        || steps.plan(stairs.time()),
    )?;
    let beside = twice(
        || beside::measure(&mut pool, cache, hot, &steps),
        Beside::doubts,
        || steps.plan(hot.time()),
    )?;
    drop((pinned, pool));
    steps.say("a real program");
    let found = program::measure(quick)?;
    let program = Part { doubts: found.doubts(), found };
    let doubts = [&staircase.doubts, &beside.doubts, &program.doubts];
    let verdict = match doubts.iter().all(|d| d.is_empty()) {
        _ if !program.found.same_output => Verdict::Wrong,
        true => Verdict::Shown,
        false => Verdict::Noisy,
    };
    let seconds = start.elapsed().as_secs_f64();
    Ok(Demo { cpu, cache, level, verdict, staircase, beside, program, seconds })
}

/// Measures, and once more if there are doubts: noise is often over by then.
fn twice<T>(
    mut measure: impl FnMut() -> Result<T, CmdError>,
    doubts: impl Fn(&T) -> Vec<String>,
    again: impl FnOnce(),
) -> Result<Part<T>, CmdError> {
    let mut found = measure()?;
    if !doubts(&found).is_empty() {
        again();
        found = measure()?;
    }
    Ok(Part { doubts: doubts(&found), found })
}

fn json(demo: &Demo) -> Result<String, CmdError> {
    Ok(serde_json::to_string_pretty(demo).map_err(internal)? + "\n")
}

fn noisy(demo: &Demo) -> CmdError {
    let parts = [&demo.staircase.doubts, &demo.beside.doubts, &demo.program.doubts];
    let first = parts.into_iter().flatten().next().map_or("", String::as_str);
    let what = format!("no verdict on this machine now: {first}; try again when it is quieter");
    CmdError::new(ExitCode::Noisy, what)
}

fn render(demo: &Demo) -> String {
    let style = Style::stdout();
    let kib = demo.cache.bytes / 1024;
    let (level, colors) = (demo.level, demo.cache.colors);
    let mut out = format!("{}: {level} of {kib} KiB in {colors} colours\n\n", demo.cpu);
    section(&mut out, style, "1. A random walk in fewer and fewer colours", &demo.staircase, |s| {
        stairs(s, demo, style)
    });
    section(&mut out, style, "2. A hot set beside a stream", &demo.beside, |b| hot(b, demo, style));
    section(&mut out, style, "3. A real program in half the colours", &demo.program, |p| {
        real(p, style)
    });
    let _ = writeln!(out, "{}", style.dim(format!("{:.0} s in all", demo.seconds)));
    out
}

/// A heading, and then the figures of a part or the doubts about them.
fn section<T>(
    out: &mut String,
    style: Style,
    heading: &str,
    part: &Part<T>,
    show: impl FnOnce(&T) -> String,
) {
    let _ = writeln!(out, "{}", style.bold(heading));
    if part.doubts.is_empty() {
        *out += &show(&part.found);
    } else {
        let _ = writeln!(out, "   {}, the figures would mean nothing:", style.yellow("no verdict"));
        part.doubts.iter().for_each(|doubt| {
            let _ = writeln!(out, "   {doubt}");
        });
    }
    out.push('\n');
}

fn stairs(found: &Staircase, demo: &Demo, style: Style) -> String {
    let ink = Ink::for_terminal(style);
    let mut headings = vec!["KiB walked".to_owned()];
    headings.extend(found.shares.iter().map(|s| match s.colors {
        1 => "1 colour".into(),
        n => format!("{n} colours"),
    }));
    let mut table = style.table(&headings.iter().map(String::as_str).collect::<Vec<_>>());
    for (at, kib) in found.footprints_kib.iter().enumerate() {
        let ns = found.shares.iter().map(|share| format!("{:.1}", share.ns[at].median));
        let cells = std::iter::once(kib.to_string()).chain(ns);
        table.add_row(cells.map(|c| Cell::new(c).set_alignment(CellAlignment::Right)));
    }
    let half = demo.cache.bytes / 2048;
    let effect = found.effect(demo.cache).unwrap_or(f64::NAN);
    let drawing = plot::draw(found, &ink);
    let effect = style.green(format!("{effect:.1}x slower"));
    format!(
        "   ns per access, medians; every share of the colours is a smaller cache\n{}\n\n\
         {drawing}   {half} KiB in a quarter of the colours: {effect} than in all\n",
        trimmed(&table)
    )
}

/// A table without the blanks that fill its lines up.
fn trimmed(table: &Table) -> String {
    let text = table.to_string();
    text.lines().map(str::trim_end).collect::<Vec<_>>().join("\n")
}

fn hot(found: &Beside, demo: &Demo, style: Style) -> String {
    let (hot, stream) = (found.hot_kib, found.stream_kib);
    let rest = demo.cache.colors - 1;
    let ratio = style.green(format!("{:.1}x faster", found.ratio.median));
    let mut table = style.table(&["", "ns per access of the hot set"]);
    let rows = [
        ("   nothing confined", found.unconfined_ns.median),
        ("   stream in 1 colour", found.confined_ns.median),
    ];
    for (what, ns) in rows {
        table.add_row([what.to_owned(), format!("{ns:.1}")]);
    }
    format!(
        "   {hot} KiB walked at random, {stream} KiB streamed after every lap, one CPU\n{}\n   \
         stream confined to 1 colour, hot set in the other {rest}: {ratio} \
         (medians of {} pairs)\n",
        trimmed(&table),
        found.rounds
    )
}

fn real(found: &Program, style: Style) -> String {
    let Program { name, colors, of, colors_from, movable, .. } = found;
    let percent = format!("{:.2} %", found.over_time * 100.0);
    let percent = if found.complied() { style.green(percent) } else { style.yellow(percent) };
    let output = match found.same_output {
        true => format!("same output ({} bytes)", found.output_bytes),
        false => style.red("other output than natively"),
    };
    let fallback = match found.fallback_pages {
        0 => String::new(),
        1 => "   1 page came in another colour first and was recoloured\n".into(),
        n => format!("   {n} pages came in other colours first and were recoloured\n"),
    };
    format!(
        "   {name}, unmodified, in colours {colors} of {of} ({colors_from}): {output}\n   \
         {percent} of its {movable} movable pages in its colours, over the run\n{fallback}   \
         {:.1} s natively, {:.1} s confined after {:.1} s of preparation\n",
        found.native_seconds, found.confined_seconds, found.prepare_seconds
    )
}

fn write_svg(path: &Path, demo: &Demo) -> Result<(), CmdError> {
    let kib = demo.cache.bytes / 1024;
    let title = format!("Random walk in shares of the {} cache ({kib} KiB)", demo.level);
    let text = svg::draw(&demo.staircase.found, &title).map_err(internal)?;
    std::fs::write(path, text).map_err(|e| {
        let what = format!("cannot write {}: {e}; choose another --svg", path.display());
        CmdError::new(ExitCode::Internal, what)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::staircase::examples::{CACHE, ideal};
    use crate::demo::stats::Repeated;

    fn demo() -> Demo {
        let r = |median| Repeated { median, spread: 0.1 };
        let beside = Beside {
            hot_kib: 512,
            stream_kib: 1024,
            unconfined_ns: r(25.0),
            confined_ns: r(8.0),
            ratio: r(3.1),
            faster: 9,
            rounds: 9,
        };
        let program = Program {
            name: "sort".into(),
            colors: "0-7".into(),
            of: 16,
            colors_from: "probed".into(),
            same_output: true,
            output_bytes: 10,
            movable: 100,
            in_colors: 100,
            compliance: 1.0,
            over_time: 1.0,
            fallback_pages: 0,
            native_seconds: 1.0,
            confined_seconds: 1.1,
            prepare_seconds: 0.5,
        };
        Demo {
            cpu: "a processor".into(),
            cache: CACHE,
            level: CacheLevel::L2,
            verdict: Verdict::Shown,
            staircase: Part { found: ideal(), doubts: vec![] },
            beside: Part { found: beside, doubts: vec![] },
            program: Part { found: program, doubts: vec![] },
            seconds: 50.0,
        }
    }

    #[test]
    fn what_was_shown_is_printed() {
        let text = render(&demo());
        for word in ["3.0x slower", "3.1x faster", "100.00 %", "KiB walked", "50 s in all"] {
            assert!(text.contains(word), "{word} is missing:\n{text}");
        }
    }

    #[test]
    fn doubts_take_the_place_of_figures() {
        let mut demo = demo();
        demo.beside.doubts.push("the hot set gained in only 2 of 9 repetitions".into());
        let text = render(&demo);
        assert!(text.contains("no verdict") && text.contains("only 2 of 9"), "{text}");
        assert!(!text.contains("3.1x"), "{text}");
        assert_eq!(noisy(&demo).code, ExitCode::Noisy);
        assert!(noisy(&demo).message.contains("only 2 of 9"));
    }

    #[test]
    fn a_wrong_output_is_never_called_the_same() {
        let mut demo = demo();
        demo.program.found.same_output = false;
        let text = render(&demo);
        assert!(text.contains("other output") && !text.contains("same output"), "{text}");
    }

    #[test]
    fn json_has_figures_doubts_and_the_verdict() {
        let value: serde_json::Value = serde_json::from_str(&json(&demo()).unwrap()).unwrap();
        assert_eq!(value["verdict"], "shown");
        assert_eq!(value["staircase"]["shares"][2]["colors"], 4);
        assert_eq!(value["beside"]["doubts"], serde_json::json!([]));
        assert_eq!(value["program"]["same_output"], true);
    }

    #[test]
    fn a_doubtful_measurement_gets_a_second_chance() {
        let (mut calls, mut told) = (0, false);
        let measure = || {
            calls += 1;
            Ok(calls)
        };
        let doubts = |&n: &i32| if n < 2 { vec!["noise".into()] } else { vec![] };
        let part = twice(measure, doubts, || told = true).unwrap();
        assert!(part.doubts.is_empty() && part.found == 2 && told);
    }

    #[test]
    fn a_drawing_needs_a_directory() {
        assert!(check_directory(Path::new("stairs.svg")).is_ok());
        let error = check_directory(Path::new("/no/such/place/stairs.svg")).unwrap_err();
        assert_eq!(error.code, ExitCode::Usage);
    }
}
