//! From the kernel's records to what the policy wants, without a PMU: loads are recorded, counts are made up
//! or are those of the kernel, and the memory is real.

use huepage_color::{Color, ColorSet, Vpn};
use huepage_policy::registry;
use huepage_policy::rocs::Stage;

use super::*;
use crate::kernel::pmu::loads::LoadSource;
use crate::kernel::pmu::ring::tests::{body, record};
use crate::kernel::pmu::stream_tests::{load, read_stream};
use crate::kernel::procfs::parse_maps;
use crate::kernel::testing::{Anonymous, alone};
use crate::services::pollute::sensor::PollutionSensors;
use crate::services::pollute::{SensorKind, Settings, lacking};

fn settings() -> Settings {
    Settings {
        buffer: ColorSet::parse("30-31", 32).expect("colours"),
        level: CacheLevel::L2,
        is_last: false,
        cache_bytes: 2 << 20,
        ways: 16,
        probed: false,
        computed: None,
        policy: registry::Settings::parse("rocs-model").unwrap(),
        cpu: 0.01,
        sensor: None,
        progress: None,
        fixed: None,
    }
}

/// A hot set and a stream, in pages: the cache has 512.
const HOT: u64 = 384;
const STREAM: u64 = 2048;

/// A recording of a ring: the hot pages are asked for often and mostly found, those of the stream less and
/// never. Between them lie losses, and loads that never asked the cache or belong to others.
fn recording(hot: u64, stream: u64, rounds: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut add = |page, memory| bytes.extend(record(9, 2, &body(&load(page, memory))));
    for round in 0..rounds {
        (0..HOT).for_each(|page| add(hot + page, (page + round) % 10 < 4));
        (0..STREAM).filter(|page| page % rounds == round).for_each(|page| add(stream + page, true));
    }
    bytes.extend(record(2, 0, &[0_u64, 3].map(u64::to_le_bytes).concat()));
    let near = PmuSample {
        source: crate::kernel::pmu::DataSource(0x02 | (0x02 | 0x08) << 5),
        ..load(hot, false)
    };
    bytes.extend(record(9, 2, &body(&near)));
    bytes.extend(record(9, 2, &body(&load(1, true))));
    bytes
}

/// What the processor counts in a while in which it does so many instructions per cycle.
fn counts(per_cycle: f64) -> PmuCounts {
    let instructions = 200e6;
    PmuCounts { instructions, cycles: instructions / per_cycle, references: 8e6, misses: 5e6 }
}

/// Runs until something is wanted.
fn run(driver: &mut Weighed, per_cycle: f64, most: usize) -> ConfinementStep {
    let mut wants = ConfinementStep::default();
    for _ in 0..most {
        wants = driver.counted(counts(per_cycle).into());
        if wants != ConfinementStep::default() {
            break;
        }
    }
    wants
}

fn maps(text: &str) -> Vec<Area> {
    parse_maps(text.as_bytes(), "maps".as_ref()).unwrap()
}

/// A driver that has heard a recording, up to the trial, and what it heard.
fn tried() -> (Weighed, Requests) {
    tried_where(|_| None)
}

/// The same where the colours of some pages are known.
fn tried_where(color: impl Fn(Vpn) -> Option<Color>) -> (Weighed, Requests) {
    let mut driver = Weighed::new(settings().policy(SensorKind::Pmu));
    assert!(run(&mut driver, 0.3, 10).profile && driver.listens);
    let (samples, drained) = read_stream(&recording(0x1000, 0x9000, 20), LoadSource::Pebs);
    assert_eq!((drained.lost, drained.samples), (3, 20 * HOT + STREAM + 2));
    let mut requests = Requests::of(maps(
        "1000000-1180000 rw-p 00000000 00:00 0 [heap]\n9000000-9800000 rw-p 00000000 00:00 0\n",
    ));
    let asked: Vec<_> = samples.iter().filter_map(|s| requests.take(s, CacheLevel::L2)).collect();
    assert_eq!(asked.len() as u64, 20 * HOT + STREAM);
    assert_eq!(driver.sampled(asked, color), ConfinementStep::default());
    assert!(!driver.sampled_all().profile && !driver.listens);
    assert!(run(&mut driver, 0.3, 10).moves);
    (driver, requests)
}

#[test]
fn a_recorded_stream_is_confined_and_stays_so_while_instructions_say_that_it_helps() {
    let (mut driver, requests) = tried();
    let ranges = driver.ranges();
    let pages: u64 = ranges.iter().map(|(start, end)| (end - start) / PAGE_BYTES).sum();
    assert!((1900..=STREAM).contains(&pages), "{pages}");
    assert!(ranges.iter().all(|range| range.0 >= 0x900_0000));
    let areas = requests.areas(&driver, |_| Some(STREAM));
    assert_eq!((areas.len(), areas[0].pages, areas[0].resident), (1, pages, STREAM));
    assert_eq!((areas[0].start, areas[0].there), (0x900_0000, 0.0));
    assert_eq!(driver.answered(true), ConfinementStep::default());
    assert_eq!(run(&mut driver, 0.4, 12), ConfinementStep::default());
    assert_eq!((driver.rocs.stage, driver.stage()), (Stage::Steady, "confined"));
}

/// Pages that stay are crowded in four colours.
#[test]
fn pages_that_stay_use_the_rest_of_the_cache_alike_where_colours_are_known() {
    let crowded = |page: Vpn| Color(u16::try_from(page.0 % 4).unwrap() + 26);
    let hot = |page: &Vpn| page.0 < 0x9000;
    let (mut driver, _) = tried_where(|page| Some(crowded(page)).filter(|_| hot(&page)));
    let moved = driver.take_elsewhere();
    let to: BTreeMap<Vpn, Color> = moved.iter().copied().collect();
    assert!(moved.len() == to.len() && to.keys().all(hot), "{moved:?}");
    let at = |page| to.get(&page).copied().unwrap_or_else(|| crowded(page));
    let mut used = [0; 32];
    (0x1000..0x1000 + HOT).for_each(|page| used[usize::from(at(Vpn(page)).0)] += 1);
    assert!(used[..30].iter().all(|&pages| pages <= 15) && used[30..] == [0, 0], "{used:?}");
    assert!(driver.take_elsewhere().is_empty());
    driver.answered(true);
    assert!(run(&mut driver, 0.3, 12).moves);
    let home: BTreeMap<Vpn, Color> = driver.take_elsewhere().into_iter().collect();
    assert!(home.iter().all(|(page, color)| *color == crowded(*page)), "{home:?}");
    assert_eq!(home.len(), to.len());
}

#[test]
fn what_does_not_make_it_faster_is_undone() {
    let (mut driver, _) = tried();
    driver.answered(true);
    assert!(run(&mut driver, 0.3, 12).moves);
    assert!(driver.ranges().is_empty());
}

#[test]
fn few_counted_misses_leave_a_process_alone() {
    let mut driver = Weighed::new(settings().policy(SensorKind::Pmu));
    for _ in 0..60 {
        let few = PmuCounts { misses: 1e5, ..counts(1.0) };
        assert_eq!(driver.counted(few.into()), ConfinementStep::default());
    }
    assert_eq!(driver.stage(), "left alone");
}

#[test]
fn requests_are_those_of_movable_memory_that_asked_the_cache() {
    let mut requests = Requests::of(maps(
        "1000-3000 rw-p 00000000 00:00 0\n3000-5000 r--p 00000000 fe:00 77 /lib/x\n6000-7000 rw-s 00000000 00:01 9 /dev/zero (deleted)\n",
    ));
    let mut take = |page, level| requests.take(&load(page, true), CacheLevel(level));
    assert_eq!(take(1, 2), Some((Vpn(1), true)));
    assert_eq!([take(3, 2), take(5, 2), take(6, 2), take(0, 2)], [None; 4]);
    let hit = requests.take(&load(2, false), CacheLevel::L2);
    assert_eq!(hit, Some((Vpn(2), false)));
    assert_eq!(requests.take(&load(2, false), CacheLevel(3)), None, "the L2 had it");
}

#[test]
fn without_a_pmu_residency_stands_in_and_says_why() {
    let why = lacking(SensorKind::Pmu, CacheLevel::L2, false);
    let sensors = PollutionSensors::open(None, CacheLevel::L2, false);
    assert_eq!(sensors.pmu.is_some(), why.is_none());
    let reason = why.as_deref().map(|why| why.split(';').next().unwrap_or(why));
    assert_eq!(sensors.because, reason.unwrap_or_default());
    if let Some(why) = why {
        eprintln!("not pmu: {why}");
        assert!(why.contains("; use the residency sensor instead") || why.contains("not allowed"));
    }
    let asked = PollutionSensors::open(Some(SensorKind::Residency), CacheLevel::L2, false);
    assert!(asked.pmu.is_none() && asked.because.is_empty());
    assert_eq!(lacking(SensorKind::Residency, CacheLevel::L2, false), None);
}

/// Loads as a recording has them.
struct Recorded(Vec<u8>);

impl Loads for Recorded {
    fn drain(&mut self, out: &mut Vec<PmuSample>) -> Result<Drained, PmuError> {
        let (samples, drained) = read_stream(&std::mem::take(&mut self.0), LoadSource::Pebs);
        out.extend(samples);
        Ok(drained)
    }
}

/// A sensor of this process that goes by what every kernel counts; none where this user may not.
fn opened(name: &str, settings: &Settings) -> Option<PmuSensor> {
    let events = Events { loads: LoadEvents::faults(), counts: CacheEvents::of_the_kernel() };
    match PmuSensor::open(std::process::id().cast_signed(), &events, settings) {
        Ok(sensor) => Some(sensor),
        Err(PollutionSensorError::Pmu(PmuError::Denied(_))) => {
            huepage_testing::skip(name, "perf events take root");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// The sensor on this process: what the kernel counts in place of a processor, and recorded loads of memory
/// that is there.
#[test]
fn the_sensor_counts_samples_and_rests() {
    let name = "the_sensor_counts_samples_and_rests";
    if !alone(module_path!(), name) {
        return;
    }
    let settings = settings();
    let Some(mut sensor) = opened(name, &settings) else { return };
    let memory = [HOT, STREAM].map(|pages| Anonymous::new(usize::try_from(pages).unwrap()));
    memory.iter().zip([HOT, STREAM]).for_each(|(area, pages)| {
        (0..usize::try_from(pages).unwrap()).for_each(|page| area.touch(page));
    });
    let mut driver = Weighed::new(settings.policy(SensorKind::Pmu));
    sensor.look().unwrap();
    sensor.count(&mut driver).unwrap();
    let readings = sensor.readings();
    // "Instructions" are nanoseconds of CPU time here, so there are a billion a second.
    let rate = readings.instructions_per_second.unwrap();
    assert!((0.3e9..3e9).contains(&rate), "{readings:?}");
    assert!(readings.fills_per_second > Some(1000.0) && readings.miss_rate == Some((1.0, 0.0)));
    assert!(run(&mut driver, 0.3, 10).profile);
    sensor.begin_profile().unwrap();
    assert!(sensor.sampler.is_some(), "nothing has been spent yet");
    let [hot, stream] = memory.each_ref().map(|area| area.start() / PAGE_BYTES);
    sensor.sampler = Some(Box::new(Recorded(recording(hot, stream, 260))));
    let made = sensor.profile(&mut driver).unwrap().expect("enough samples");
    assert_eq!(made.wants, ConfinementStep::default());
    assert!(made.of.ends_with(&format!("requests to {} pages", HOT + STREAM)), "{}", made.of);
    assert!(run(&mut driver, 0.3, 10).moves);
    let areas = sensor.areas(&driver);
    let inside = |area: &AreaConfined| area.start <= memory[1].start() && area.resident >= STREAM;
    assert!(areas.iter().any(|area| inside(area) && area.pages >= 1900), "{areas:?}");
    // Those 100000 interrupts are paid for by a share of a hundredth only after some time.
    assert!(sensor.readings().interrupts > Duration::from_millis(190) && !sensor.may_sample());
    sensor.begin_profile().unwrap();
    assert!(sensor.sampler.is_none());
    assert_eq!(sensor.readings().samples[1], 3);
}
