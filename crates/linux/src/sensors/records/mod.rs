//! Recording the accesses of a real, unmodified program: it runs under QEMU's user mode with
//! huepage's plugin, which streams accesses into shared memory, under DynamoRIO or valgrind's lackey.
//!
//! This module finds the tools, makes the command lines and reads the stream. It writes no
//! file and decides nothing about when recording ends.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

pub mod decode;
pub mod program;
pub mod protocol;
pub mod ring;

use object::Object as _;
use object::ObjectSymbol as _;
use object::read::ReadCache;

use crate::inject::launch;

/// File names of the plugin: for QEMU before 9.0, and for later ones, which refuse the first.
const PLUGINS: [&str; 2] = ["libhuepage_qemu_trace.so", "libhuepage_qemu_trace_3.so"];
/// The first QEMU of the later interface.
pub const LATER: (u32, u32) = (9, 0);
/// What an emulator that takes plugins exports to them.
const OFFERED: &str = "qemu_plugin_register_vcpu_init_cb";
/// File name of the emulator.
const EMULATOR: &str = "qemu-x86_64";

/// Why a program cannot be recorded.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// No emulator, or no lackey.
    #[error("`{0}` was not found; install it: apt-get install {1}")]
    Tool(&'static str, &'static str),
    /// No DynamoRIO, which Debian has no package of.
    #[error("`drrun` of DynamoRIO was not found in PATH")]
    NoDynamoRio,
    /// An emulator that is built without an interface for plugins, as Debian 13's is.
    #[error("`{}` takes no plugins", .0.display())]
    NoPlugins(PathBuf),
    /// The plugin is not where it is looked for.
    #[error(
        "{name} is neither in {places}; build it with `cargo build --release`, or set HUEPAGE_PLUGIN_DIR to its directory"
    )]
    Plugin {
        /// The plugin.
        name: String,
        /// Where it was looked for.
        places: String,
    },
    /// The program cannot be run by the emulator.
    #[error("`{}` is not a 64-bit x86 program or a script for one; record another", .0.display())]
    NotX8664(PathBuf),
    /// Memory for the stream.
    #[error("cannot make memory for the recording ({0}); free some memory and try again")]
    Memory(#[from] io::Error),
}

impl RecordError {
    /// Whether a tool is missing or of the wrong kind, so that another may do.
    pub const fn is_of_tools(&self) -> bool {
        matches!(
            self,
            Self::Tool(..) | Self::NoDynamoRio | Self::NoPlugins(_) | Self::Plugin { .. }
        )
    }
}

/// How much of the beginning is not recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SkippedStart {
    /// All of it is.
    Nothing,
    /// Instructions of all processes and threads together.
    Instructions(u64),
    /// Until [`AccessRecorder::go`] is called.
    UntilTold,
}

/// What was seen of the program besides its accesses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Processes: the program and all its children.
    pub processes: u32,
    /// Address spaces: one for each process, and one more for each exec.
    pub spaces: u32,
    /// Threads of all processes, first threads included.
    pub threads: u32,
    /// Programs that ran unrecorded: set-uid, or for another processor.
    pub native: u32,
    /// Accesses for which there was no room: more threads than chunks.
    pub lost: u64,
}

/// A recording in progress, seen from outside the recorded program.
#[derive(Debug)]
pub struct AccessRecorder {
    /// The stream.
    pub ring: ring::Ring,
    emulator: PathBuf,
    plugin: PathBuf,
}

impl AccessRecorder {
    /// Finds the emulator and the plugin and makes memory for the stream.
    pub fn new(fetches: bool, skip: SkippedStart) -> Result<AccessRecorder, RecordError> {
        let missing = |_| RecordError::Tool(EMULATOR, "qemu-user");
        let emulator = launch::resolve(OsStr::new(EMULATOR)).map_err(missing)?;
        if !takes_plugins(&emulator) {
            return Err(RecordError::NoPlugins(emulator));
        }
        let is_new = qemu_version(&emulator).is_some_and(|version| version >= LATER);
        let plugin = plugin_at(PLUGINS[usize::from(is_new)])?;
        let ring = ring::Ring::new()?;
        let control = ring.control();
        control.fetches.store(u32::from(fetches), Relaxed);
        let skipped = match skip {
            SkippedStart::Nothing | SkippedStart::Instructions(0) => 0,
            // The highest number says that the recorder decides.
            SkippedStart::Instructions(n) => n.min(u64::MAX - 1),
            SkippedStart::UntilTold => u64::MAX,
        };
        control.skip.store(skipped, Relaxed);
        control.go.store(u32::from(skipped == 0), Relaxed);
        Ok(AccessRecorder { ring, emulator, plugin })
    }

    /// The command that runs `command`, which is searched for as execvp(3) does, under the
    /// emulator with the plugin.
    ///
    /// # Errors
    /// Programs for other processors. A missing program is only found out by running it.
    pub fn command(
        &self,
        command: &[OsString],
        program: &Path,
    ) -> Result<Vec<OsString>, RecordError> {
        let (path, mut arguments) = interpret(program, command)?;
        let option = [self.plugin.as_os_str(), OsStr::new(",ring="), self.ring.path().as_os_str()]
            .map(|part| part.as_bytes().to_vec());
        let [plugin, key, ring] = option;
        let option = [escape(&plugin), key, escape(&ring)].concat();
        let name = if arguments.is_empty() { OsString::new() } else { arguments.remove(0) };
        let mut all: Vec<OsString> = vec![self.emulator.clone().into(), "-plugin".into()];
        all.extend([OsString::from_vec(option), "-0".into(), name, path.into_os_string()]);
        all.extend(arguments);
        Ok(all)
    }

    /// Ends the recording; the program runs on without it.
    pub fn stop(&self) {
        self.ring.control().stop.store(1, Release);
    }

    /// Whether recording has ended.
    pub fn is_stopped(&self) -> bool {
        self.ring.control().stop.load(Acquire) != 0
    }

    /// Begins a recording that waits to be told.
    pub fn go(&self) {
        self.ring.control().go.store(1, Release);
    }

    /// Whether recording has begun.
    pub fn has_begun(&self) -> bool {
        self.ring.control().go.load(Acquire) != 0
    }

    /// What was seen so far.
    pub fn facts(&self) -> Facts {
        let control = self.ring.control();
        Facts {
            processes: control.processes.load(Relaxed),
            spaces: control.spaces.load(Relaxed),
            threads: control.threads.load(Relaxed),
            native: control.native.load(Relaxed),
            lost: control.lost.load(Relaxed),
        }
    }
}

/// Whether an emulator exports what plugins call: one that is linked statically does not.
pub fn takes_plugins(emulator: &Path) -> bool {
    let Ok(file) = File::open(emulator) else { return false };
    let cache = ReadCache::new(file);
    let parsed = object::File::parse(&cache);
    parsed.is_ok_and(|elf| elf.dynamic_symbols().any(|symbol| symbol.name() == Ok(OFFERED)))
}

/// The numbers of a QEMU's version before and after the first point.
pub fn qemu_version(emulator: &Path) -> Option<(u32, u32)> {
    let said = std::process::Command::new(emulator).arg("--version").output().ok()?;
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    let mut numbers =
        said.split_once("version ")?.1.split('.').map(|part| {
            part.chars().take_while(char::is_ascii_digit).collect::<String>().parse().ok()
        });
    Some((numbers.next()??, numbers.next()??))
}

/// The command that runs `command` under lackey, which writes its text to descriptor `fd`.
/// Children are not recorded: lackey's text does not say whose an access is.
pub fn lackey(command: &[OsString], fd: i32) -> Result<Vec<OsString>, RecordError> {
    let missing = |_| RecordError::Tool("valgrind", "valgrind");
    let valgrind = launch::resolve(OsStr::new("valgrind")).map_err(missing)?;
    let mut all: Vec<OsString> = vec![valgrind.into()];
    let options = ["--tool=lackey", "--trace-mem=yes", "--basic-counts=no", "--quiet"];
    all.extend(options.map(OsString::from));
    all.push("--child-silent-after-fork=yes".into());
    all.push(format!("--log-fd={fd}").into());
    all.push("--".into());
    all.extend(command.iter().cloned());
    Ok(all)
}

/// The beginning of a command of DynamoRIO's drmemtrace.
///
/// # Errors
/// Where there is no DynamoRIO.
pub fn drmemtrace() -> Result<Vec<OsString>, RecordError> {
    let drrun = launch::resolve(OsStr::new("drrun")).map_err(|_| RecordError::NoDynamoRio)?;
    Ok(vec![drrun.into(), "-t".into(), "drmemtrace".into()])
}

/// The command that runs `command` under `drmemtrace`, which leaves what it records in `folder`. Children are not
/// followed: each has a trace of its own there, and nothing says what came when in another.
pub fn dynamorio(
    mut drmemtrace: Vec<OsString>,
    command: &[OsString],
    folder: &Path,
) -> Vec<OsString> {
    drmemtrace.insert(1, "-no_follow_children".into());
    drmemtrace.extend(["-offline", "-outdir"].map(OsString::from));
    drmemtrace.extend([folder.into(), "--".into()]);
    drmemtrace.extend(command.iter().cloned());
    drmemtrace
}

/// The command that prints what DynamoRIO left in `trace`, an access a line, on standard error.
///
/// # Errors
/// Where there is no DynamoRIO.
pub fn dynamorio_view(trace: &Path) -> Result<Vec<OsString>, RecordError> {
    let mut all = drmemtrace()?;
    all.extend(["-tool", "view", "-indir"].map(OsString::from));
    all.push(trace.into());
    Ok(all)
}

/// The emulator's options are separated by commas; a doubled one is a comma.
fn escape(option: &[u8]) -> Vec<u8> {
    option.iter().flat_map(|&b| std::iter::repeat_n(b, 1 + usize::from(b == b','))).collect()
}

/// Replaces a script by its interpreter, which the emulator can run, as the kernel does.
fn interpret(
    program: &Path,
    command: &[OsString],
) -> Result<(PathBuf, Vec<OsString>), RecordError> {
    let (mut path, mut arguments) = (program.to_path_buf(), command.to_vec());
    for _ in 0..program::DEPTH {
        let mut head = Vec::new();
        let read =
            File::open(&path).and_then(|f| f.take(program::HEAD as u64).read_to_end(&mut head));
        // A program that may be executed but not read: the emulator says so.
        if read.is_err() || program::is_emulated(&head) {
            return Ok((dashless(path), arguments));
        }
        let Some((interpreter, argument)) = program::interpreter(&head) else { break };
        let interpreter = PathBuf::from(OsStr::from_bytes(interpreter));
        let script = std::mem::replace(&mut path, interpreter.clone());
        let rest = arguments.split_off(1.min(arguments.len()));
        let argument = argument.map(|a| OsStr::from_bytes(a).to_owned());
        arguments = [interpreter.into_os_string()].into_iter().chain(argument).collect();
        arguments.push(script.into_os_string());
        arguments.extend(rest);
    }
    Err(RecordError::NotX8664(program.to_path_buf()))
}

/// The emulator would take a leading dash for an option.
fn dashless(path: PathBuf) -> PathBuf {
    if path.as_os_str().as_bytes().starts_with(b"-") { Path::new(".").join(path) } else { path }
}

/// Where the plugin may be: HUEPAGE_PLUGIN_DIR alone if that is set, else beside this
/// program, where the build puts it, and where a package would.
fn plugin_places() -> Vec<PathBuf> {
    if let Some(dir) = std::env::var_os("HUEPAGE_PLUGIN_DIR") {
        return vec![dir.into()];
    }
    let own = std::env::current_exe().ok();
    let beside = own.as_deref().and_then(Path::parent).map(Path::to_path_buf);
    let library = beside.as_ref().map(|dir| dir.join("../lib/huepage"));
    beside.into_iter().chain(library).collect()
}

/// A plugin of QEMU by the name of its file.
///
/// # Errors
/// When it is not where the build or a package puts it.
pub fn plugin_at(name: &str) -> Result<PathBuf, RecordError> {
    find_plugin(name, &plugin_places())
}

fn find_plugin(name: &str, places: &[PathBuf]) -> Result<PathBuf, RecordError> {
    let found = places.iter().filter_map(|dir| dir.join(name).canonicalize().ok()).next();
    found.ok_or_else(|| {
        let places: Vec<String> = places.iter().map(|p| p.display().to_string()).collect();
        RecordError::Plugin { name: name.to_owned(), places: places.join(" nor in ") }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strings(all: &[&str]) -> Vec<OsString> {
        all.iter().map(OsString::from).collect()
    }

    fn script(dir: &Path, name: &str, first: &str) -> PathBuf {
        let path = dir.join(name);
        std::fs::write(&path, format!("{first}\necho hello\n")).unwrap();
        path
    }

    #[test]
    fn a_script_is_run_by_its_interpreter_as_the_kernel_does() {
        let dir = tempfile::tempdir().unwrap();
        let path = script(dir.path(), "s", "#! /bin/sh  -e -u ");
        let (program, arguments) = interpret(&path, &strings(&["s", "x", "y"])).unwrap();
        assert_eq!(program, Path::new("/bin/sh"));
        assert_eq!(arguments, strings(&["/bin/sh", "-e -u", path.to_str().unwrap(), "x", "y"]));
    }

    #[test]
    fn interpreters_may_be_scripts_but_not_for_ever() {
        let dir = tempfile::tempdir().unwrap();
        let inner = script(dir.path(), "inner", "#!/bin/sh");
        let outer = script(dir.path(), "outer", &format!("#!{}", inner.display()));
        let (program, arguments) = interpret(&outer, &strings(&["outer"])).unwrap();
        assert_eq!(program, Path::new("/bin/sh"));
        assert_eq!(arguments[1..], [inner.into_os_string(), outer.into_os_string()]);
        let endless = dir.path().join("endless");
        std::fs::write(&endless, format!("#!{}\n", endless.display())).unwrap();
        let error = interpret(&endless, &strings(&["endless"])).unwrap_err();
        assert!(error.to_string().contains("endless"), "{error}");
    }

    #[test]
    fn a_program_is_run_as_it_is_and_other_files_are_refused() {
        let own = std::env::current_exe().unwrap();
        let (program, arguments) = interpret(&own, &strings(&["t", "-a"])).unwrap();
        assert_eq!((program, arguments), (own, strings(&["t", "-a"])));
        let error = interpret(Path::new("/etc/passwd"), &strings(&["p"])).unwrap_err();
        assert!(matches!(error, RecordError::NotX8664(_)), "{error}");
    }

    #[test]
    fn a_missing_plugin_is_told_with_the_places_and_a_cure() {
        let places = [PathBuf::from("/nowhere"), PathBuf::from("/else")];
        let error = find_plugin(PLUGINS[0], &places).unwrap_err().to_string();
        assert!(error.contains("/nowhere nor in /else"), "{error}");
        assert!(error.contains("HUEPAGE_PLUGIN_DIR"), "{error}");
    }

    #[test]
    fn an_emulator_without_plugins_is_known_by_what_it_exports() {
        assert!(!takes_plugins(Path::new("/bin/true")));
        assert!(!takes_plugins(Path::new("/etc/passwd")));
        assert!(!takes_plugins(Path::new("/nowhere")));
    }

    #[test]
    fn versions_of_qemu_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let qemu = script(
            dir.path(),
            "qemu",
            "#!/bin/sh\necho 'qemu-x86_64 version 10.0.3 (Debian 1:10.0.3)'; exit",
        );
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&qemu, mode).unwrap();
        assert_eq!(qemu_version(&qemu), Some((10, 0)));
        assert_eq!(qemu_version(Path::new("/bin/true")), None);
    }

    #[test]
    fn commas_are_doubled_and_dashes_hidden() {
        assert_eq!(escape(b"/a,b/c"), b"/a,,b/c");
        assert_eq!(dashless("-x".into()), Path::new("./-x"));
    }
}
