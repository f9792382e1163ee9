//! Measures the colour probe on this machine: time to build the classes, CPU time per page,
//! agreement with a slow exhaustive test; idle, beside a walk over 16 MiB on another CPU, a stream on the
//! same CPU, and a compiler.
//!
//! Run as `cargo run --release -p huepage-linux --example probe_bench [-- --cpu CPU] [--pages N]
//! [--beside idle|walk|stream|build]`. With `--beside`, only that case. It judges nothing.

use std::error::Error;
use std::hint::black_box;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use fastrand::Rng;
use huepage_color::{CacheLevel, Color, ColorSet, LevelChoice};
use huepage_linux::color::probe::{
    Classifier, LocalBench, OwnPages, PageVerdict, ProbeParams, ReferenceSet, measure_verdict,
    open_reference, slow_color,
};
use huepage_linux::color::walk::{ColoredWords, PAGE_WORDS};
use huepage_linux::kernel::cpus::OnCpu;
use huepage_linux::kernel::machine::HostMachine;
use huepage_linux::kernel::process_memory::thread_time;

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> Outcome<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let cpu = number(&args, "--cpu")?.unwrap_or(0);
    let pages = number(&args, "--pages")?.unwrap_or(16384);
    let machine = HostMachine::read()?;
    let l2 = machine.cache(LevelChoice::Level(CacheLevel::L2))?;
    let params = ProbeParams::for_cache(&l2.geometry)?;
    println!(
        "L2 of CPU {cpu}: {} colours x {} ways; {pages} pages; the probe runs on CPU {cpu}",
        params.colors, params.ways
    );
    shared(&params, cpu)?;
    let only = args.iter().position(|a| a == "--beside").and_then(|at| args.get(at + 1));
    let chosen = |(name, _): &(&str, Beside)| only.is_none_or(|only| only == name);
    Beside::ALL.into_iter().filter(chosen).try_for_each(|beside| case(&params, cpu, pages, beside))
}

fn number(args: &[String], name: &str) -> Outcome<Option<usize>> {
    let Some(at) = args.iter().position(|a| a == name) else { return Ok(None) };
    let value = args.get(at + 1).ok_or_else(|| format!("{name} needs a number"))?;
    Ok(Some(value.parse().map_err(|_| format!("{name} needs a number, not `{value}`"))?))
}

/// The machine-wide set, the verdict on frame numbers, and a walk through chosen colours.
fn shared(params: &ProbeParams, cpu: usize) -> Outcome<()> {
    let mut opened = None;
    for _ in 0..2 {
        let start = Instant::now();
        let found = open_reference(params, cpu)?;
        println!(
            "reference set {:x} {:?} in {:.1} ms",
            found.set.generation,
            found.origin,
            start.elapsed().as_secs_f64() * 1e3
        );
        opened = Some(found.set);
    }
    let Some(set) = opened else { return Ok(()) };
    let mut bench = set.bench(cpu)?;
    let mut classifier = Classifier::new(set.classes.clone());
    match measure_verdict(&mut classifier, &mut bench, 2048) {
        Ok(report) => println!("{report:?}"),
        Err(error) => println!("no verdict: {error}"),
    }
    drop(bench);
    walks(params, cpu)
}

/// Walks through 512 KiB of pages of all colours, of half of them and so on.
fn walks(params: &ProbeParams, cpu: usize) -> Outcome<()> {
    let mut memory = ColoredWords::measure(params, cpu, usize::from(params.colors) * WALKED * 2)?;
    let mut count = params.colors;
    while count > 0 {
        let colors = ColorSet::first(count, params.colors);
        let wanted = |color: &Option<Color>| color.is_some_and(|color| colors.contains(color));
        let all = memory.colors().iter().enumerate().filter(|(_, color)| wanted(color));
        let pages: Vec<usize> = all.map(|(page, _)| page).take(WALKED).collect();
        let walk = walk_ns(memory.words(), &pages);
        println!("{} KiB in {count} colours: {walk:.1} ns/access", pages.len() * 4);
        count /= 2;
    }
    Ok(())
}

/// Pages that a walk goes through.
const WALKED: usize = 128;

/// Nanoseconds per access of a random dependent walk over all lines of some pages.
fn walk_ns(words: &mut [u64], pages: &[usize]) -> f64 {
    let line = |at: usize| pages[at / 64] * PAGE_WORDS + at % 64 * 8;
    let mut order: Vec<usize> = (0..pages.len() * 64).map(line).collect();
    Rng::with_seed(1).shuffle(&mut order);
    for (&from, &to) in order.iter().zip(order.iter().cycle().skip(1)) {
        words[from] = to as u64;
    }
    let mut at = order[0];
    let mut best = f64::MAX;
    for _ in 0..60 {
        let start = Instant::now();
        for _ in 0..order.len() {
            at = words[at] as usize;
        }
        best = best.min(start.elapsed().as_secs_f64() * 1e9 / order.len() as f64);
    }
    black_box(at);
    best
}

/// What else goes on.
#[derive(Clone, Copy)]
enum Beside {
    Nothing,
    /// A random walk over 16 MiB on another CPU.
    Walk,
    /// A stream over 16 MiB on the same CPU.
    Stream,
    /// The compiler, over and over, wherever the kernel puts it.
    Build,
}

impl Beside {
    const ALL: [(&'static str, Beside); 4] = [
        ("idle", Beside::Nothing),
        ("walk", Beside::Walk),
        ("stream", Beside::Stream),
        ("build", Beside::Build),
    ];

    fn start(self, cpu: usize) -> Option<Hog> {
        match self {
            Beside::Nothing => None,
            Beside::Walk => Some(Hog::start(move |stop| walk(usize::from(cpu == 0), stop))),
            Beside::Stream => Some(Hog::start(move |stop| stream(cpu, stop))),
            Beside::Build => Some(Hog::start(compile)),
        }
    }
}

/// All figures of one situation.
fn case(
    params: &ProbeParams,
    cpu: usize,
    pages: usize,
    (name, beside): (&str, Beside),
) -> Outcome<()> {
    let hog = beside.start(cpu);
    println!("{name}");
    let mut set = build(params, cpu)?;
    for _ in 0..4 {
        set = build(params, cpu)?;
    }
    let own = Arc::new(OwnPages::populated(pages)?);
    let mut bench = set.bench(cpu)?;
    bench.allow_pages(&own);
    classify(&set, &mut bench, &own)?;
    drop(hog);
    Ok(())
}

fn build(params: &ProbeParams, cpu: usize) -> Outcome<ReferenceSet> {
    let (start, used) = (Instant::now(), thread_time());
    let set = ReferenceSet::build_private(params, cpu, Duration::from_secs(10))?;
    let sizes: Vec<usize> = set.classes.classes.iter().map(Vec::len).collect();
    println!(
        "  classes built in {:.0} ms ({:.0} ms CPU), {} to {} pages each",
        start.elapsed().as_secs_f64() * 1e3,
        (thread_time() - used).as_secs_f64() * 1e3,
        sizes.iter().min().unwrap_or(&0),
        sizes.iter().max().unwrap_or(&0)
    );
    Ok(set)
}

fn classify(set: &ReferenceSet, bench: &mut LocalBench, own: &OwnPages) -> Outcome<()> {
    let pages = own.addresses();
    let mut classifier = Classifier::new(set.classes.clone());
    let truth = classifier.classify(bench, &pages)?;
    for batch in [pages.len(), 700] {
        let used = thread_time();
        let mut found = Vec::new();
        for part in pages.chunks(batch) {
            found.extend(classifier.classify(bench, part)?);
        }
        report(&format!("{batch} pages a call"), thread_time() - used, &found, &truth);
    }
    println!("      {:?}", classifier.stats());
    slow_check(set, bench, &mut classifier, &pages)?;
    for batch in [1, 8, 64] {
        let mut classifier = Classifier::new(set.classes.clone());
        let some = &pages[..pages.len().min(batch * 64)];
        let used = thread_time();
        let mut found = Vec::new();
        for part in some.chunks(batch) {
            found.extend(classifier.classify(bench, part)?);
        }
        report(&format!("{batch} page(s) a call"), thread_time() - used, &found, &truth);
    }
    Ok(())
}

fn report(what: &str, used: Duration, found: &[PageVerdict], truth: &[PageVerdict]) {
    let both = |(a, b): &(&PageVerdict, &PageVerdict)| a.color.is_some() && b.color.is_some();
    let decided = found.iter().zip(truth).filter(both).count();
    let same = found.iter().zip(truth).filter(both).filter(|(a, b)| a.color == b.color).count();
    println!(
        "  {what}: {:.2} us CPU per page, agreement {:.3} % ({} differ), undecided {}",
        used.as_secs_f64() * 1e6 / found.len() as f64,
        100.0 * same as f64 / decided.max(1) as f64,
        decided - same,
        found.iter().filter(|v| v.color.is_none()).count(),
    );
}

/// A thread that keeps something busy until dropped.
struct Hog {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Hog {
    fn start(work: impl FnOnce(&AtomicBool) + Send + 'static) -> Hog {
        let stop = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&stop);
        Hog { stop, thread: Some(thread::spawn(move || work(&seen))) }
    }
}

/// Bytes that are walked through or streamed.
const HOG_BYTES: usize = 16 << 20;

fn pin(cpu: usize) -> Option<OnCpu> {
    let free = |error: &_| {
        eprintln!("cannot run on CPU {cpu}: {error}; what is measured beside it runs anywhere");
    };
    OnCpu::new(cpu).inspect_err(free).ok()
}

fn walk(cpu: usize, stop: &AtomicBool) {
    let _on = pin(cpu);
    let mut bytes = vec![1u8; HOG_BYTES];
    let mut random = Rng::with_seed(1);
    while !stop.load(Ordering::Relaxed) {
        for _ in 0..10_000 {
            let at = random.usize(..bytes.len());
            bytes[at] = bytes[at].wrapping_add(1);
        }
    }
    black_box(bytes);
}

fn stream(cpu: usize, stop: &AtomicBool) {
    let _on = pin(cpu);
    let mut bytes = vec![1u8; HOG_BYTES];
    while !stop.load(Ordering::Relaxed) {
        bytes.iter_mut().step_by(64).for_each(|byte| *byte = byte.wrapping_add(1));
        black_box(&mut bytes);
    }
}

/// Compiles a file of many functions until stopped.
fn compile(stop: &AtomicBool) {
    let many: String = (0..400).map(FUNCTION).collect();
    let dir = std::env::temp_dir().join(format!("probe-bench-{}", std::process::id()));
    let file = dir.join("many.rs");
    let prepared = std::fs::create_dir_all(&dir).and_then(|()| std::fs::write(&file, many));
    while prepared.is_ok() && !stop.load(Ordering::Relaxed) {
        let mut rustc = Command::new("rustc");
        rustc.args(["--crate-type=rlib", "-O", "--out-dir"]).arg(&dir).arg(&file);
        if !rustc.status().is_ok_and(|status| status.success()) {
            eprintln!("rustc does not work: nothing is compiled beside");
            break;
        }
    }
    let _ = std::fs::remove_dir_all(&dir);
}

/// A function of the file that is compiled.
const FUNCTION: fn(usize) -> String = |i| {
    format!(
        "pub fn sorted{i}(mut all: Vec<(u64, String)>) -> std::collections::BTreeMap<u64, String> {{
            all.sort_by_key(|pair| pair.0 ^ {i}); all.into_iter().collect() }}\n"
    )
};

impl Drop for Hog {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The slow way, page by page: see [`slow_color`]. The host may move a page between the two, so both look
/// again at those of which they differ, and each page that they differ of still is printed.
fn slow_check(
    set: &ReferenceSet,
    bench: &mut LocalBench,
    classifier: &mut Classifier,
    pages: &[u64],
) -> Outcome<()> {
    let (mut differ, mut again, mut tested) = (0, 0, 0);
    for part in pages[..pages.len().min(SLOW_PAGES)].chunks(700) {
        let found = classifier.classify(bench, part)?;
        for (&page, verdict) in part.iter().zip(found) {
            let Some(color) = verdict.color else { continue };
            tested += 1;
            if slow_color(set, bench, page, tested)? == color {
                continue;
            }
            again += 1;
            differ += usize::from(still_differ(set, bench, classifier, page, tested)?);
        }
    }
    println!("  slow test: {differ} of {tested} differ ({again} at the first look)");
    Ok(())
}

/// Whether both ways differ of a page when each looks three times, what two looks say being its answer.
fn still_differ(
    set: &ReferenceSet,
    bench: &mut LocalBench,
    classifier: &mut Classifier,
    page: u64,
    seed: usize,
) -> Outcome<bool> {
    let (mut fast, mut slow) = (Vec::new(), Vec::new());
    for look in 1..=3 {
        fast.push(classifier.classify(bench, &[page])?[0].color);
        slow.push(Some(slow_color(set, bench, page, seed + 7 * look)?));
    }
    let of_two =
        |seen: &[Option<Color>]| (0..3).find(|&i| seen[i] == seen[(i + 1) % 3]).map(|i| seen[i]);
    let (fastest, slowest) = (of_two(&fast).flatten(), of_two(&slow).flatten());
    let differ = fastest.is_some() && fastest != slowest;
    if differ {
        println!("      a page is {fast:?} and, the slow way, {slow:?}");
    }
    Ok(differ)
}

/// Pages that are tested the slow way.
const SLOW_PAGES: usize = 5600;
