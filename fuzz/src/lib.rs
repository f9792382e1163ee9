//! What each fuzz target does with its input. The targets of `fuzz_targets` call these functions under
//! libFuzzer; `crates/huepage/tests/fuzz_smoke.rs` calls the same ones with the seeds and with damaged
//! copies of them, in every test run and without a fuzzer. None may panic, loop, or take memory by a
//! number that it read; an error must be one line.

mod drain;
mod frame;
mod nri;
mod observations;
mod own_files;
mod process;
mod recording;
mod requests;
mod roundtrip;
mod seek;
mod settings;
mod traces;
mod words;

/// A target by its name, which is that of its file and of its folder of seeds.
pub type Target = (&'static str, fn(&[u8]));

/// All targets.
pub const TARGETS: &[Target] = &[
    ("block", traces::block),
    ("champsim", traces::champsim),
    ("chunk", process::chunk),
    ("config", settings::config),
    ("din", traces::din),
    ("drmemtrace", traces::drmemtrace),
    ("elf", process::elf),
    ("facts", process::facts),
    ("groups", settings::groups),
    ("lackey", traces::lackey),
    ("machine", settings::machine),
    ("maps", process::maps),
    ("nri", nri::read_and_check),
    ("observations", observations::read_and_check),
    ("own", traces::own),
    ("pagemap", process::pagemap),
    ("pmu", process::pmu),
    ("raw", traces::raw),
    ("recording", recording::read_and_check),
    ("registry", own_files::registry),
    ("requests", requests::requests),
    ("roundtrip", roundtrip::read_and_check),
    ("seek", seek::read_and_check),
    ("shared", process::shared),
    ("smaps", process::smaps),
    ("state", own_files::state),
    ("vdso", process::vdso),
    ("words", words::read_and_check),
];

/// Runs a target by its name.
///
/// # Panics
/// If there is none of that name, or the target finds a promise broken.
pub fn run(name: &str, bytes: &[u8]) {
    let found = TARGETS.iter().find(|(known, _)| *known == name);
    found.expect("a target of that name").1(bytes);
}

/// The value, or nothing after an error of one line.
fn value<T, E: std::fmt::Display>(found: Result<T, E>) -> Option<T> {
    let is_line = |text: &str| !text.is_empty() && !text.contains(['\n', '\r']);
    found.inspect_err(|e| assert!(is_line(&e.to_string()), "{:?}", e.to_string())).ok()
}
