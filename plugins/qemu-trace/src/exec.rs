//! Following a program into the next one: QEMU executes it on the processor itself, so the
//! plugin executes QEMU with it instead. What cannot be emulated (another architecture,
//! set-uid, no program at all) is left to QEMU, and counted if it runs.

use std::ffi::{CStr, CString, OsStr, c_char, c_void};
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use crate::{api, program, ring, sys};

/// Longest string that the kernel takes as an argument.
const LONGEST: usize = 128 << 10;
/// Most arguments or variables; the kernel's own limit of bytes comes first.
const MOST: usize = 1 << 20;

/// Distance between an address of the program and of this process.
static GUEST_BASE: AtomicU64 = AtomicU64::new(0);
static PLUGIN: OnceLock<CString> = OnceLock::new();
static PROGRAM: OnceLock<Option<CString>> = OnceLock::new();

/// Learns where the program's memory is in this process. To be called during translation.
pub fn learn(here: u64, there: u64) {
    if here != 0 {
        GUEST_BASE.store(here.wrapping_sub(there), Relaxed);
    }
}

/// Learns which program this is, before it can have changed its directory. QEMU has a function for it, which its user
/// mode lacks in version 10.0.
fn learn_program() {
    let words = std::fs::read("/proc/self/cmdline").unwrap_or_default();
    let path = program::among(words.split(|byte| *byte == 0))
        .and_then(|program| std::fs::canonicalize(bytes_path(program)).ok());
    let path = path.and_then(|path| CString::new(path.as_os_str().as_bytes()).ok());
    let _ = PROGRAM.set(path);
}

/// Keeps what the next QEMU has to be given: this plugin with its arguments. To be called before the program runs.
pub fn remember(arguments: &[String]) -> Result<(), String> {
    learn_program();
    let mut info = sys::DlInfo::EMPTY;
    let here: *const c_void = (remember as fn(&[String]) -> _) as *const c_void;
    // SAFETY: `info` is live and written only during the call; the name that it points to
    // stays as long as the library.
    let file = unsafe {
        if sys::dladdr(here, &raw mut info) == 0 || info.file.is_null() {
            return Err("cannot find the plugin's own file".to_owned());
        }
        CStr::from_ptr(info.file)
    };
    let commas = |text: &str| text.replace(',', ",,");
    let mut option = commas(&file.to_string_lossy());
    for argument in arguments {
        option = option + "," + &commas(argument);
    }
    let option = CString::new(option).map_err(|_| "an argument holds a NUL byte".to_owned())?;
    let _ = PLUGIN.set(option);
    Ok(())
}

/// Executes QEMU with the program that execve was called for. Returns only if the program
/// is not to be followed or cannot be executed: QEMU then does as it would have done.
pub fn follow(path: u64, arguments: u64, environment: u64) {
    let Some(path) = string(path) else { return };
    let (Some(arguments), Some(environment)) = (strings(arguments), strings(environment)) else {
        return;
    };
    let mut image = Image { program: own(path), arguments };
    match image.resolve() {
        Verdict::Emulate => image.execute(environment),
        Verdict::Native => _ = ring::control().native.fetch_add(1, Relaxed),
        Verdict::Refused => {}
    }
}

/// `/proc/self/exe` is the program, not QEMU.
fn own(path: CString) -> CString {
    let numbered = format!("/proc/{}/exe", std::process::id());
    let is_own = path.to_bytes() == b"/proc/self/exe" || path.to_bytes() == numbered.as_bytes();
    if is_own { PROGRAM.get().cloned().flatten().unwrap_or(path) } else { path }
}

enum Verdict {
    Emulate,
    Native,
    Refused,
}

struct Image {
    program: CString,
    arguments: Vec<CString>,
}

impl Image {
    /// Replaces scripts by their interpreters until a program is found.
    fn resolve(&mut self) -> Verdict {
        for _ in 0..program::DEPTH {
            // SAFETY: the path ends in NUL.
            if unsafe { sys::access(self.program.as_ptr(), sys::X_OK) } != 0 {
                return Verdict::Refused;
            }
            let Some((head, special)) = head(&self.program) else { return Verdict::Native };
            if special {
                return Verdict::Native;
            }
            if !program::is_script(&head) {
                return if program::is_emulated(&head) {
                    Verdict::Emulate
                } else {
                    Verdict::Native
                };
            }
            let Some((program, argument)) = program::interpreter(&head) else {
                return Verdict::Refused;
            };
            let Ok(program) = CString::new(program) else { return Verdict::Refused };
            self.interpret(program, argument.and_then(|a| CString::new(a).ok()));
        }
        Verdict::Refused
    }

    /// As the kernel does: the interpreter, its argument, the script, the script's arguments.
    fn interpret(&mut self, program: CString, argument: Option<CString>) {
        let script = std::mem::replace(&mut self.program, program.clone());
        let rest = self.arguments.drain(..).skip(1).collect::<Vec<_>>();
        self.arguments.push(program);
        self.arguments.extend(argument.into_iter().chain([script]).chain(rest));
    }

    fn execute(self, environment: Vec<CString>) {
        let (Some(plugin), Ok(qemu)) = (PLUGIN.get(), std::fs::read_link("/proc/self/exe")) else {
            return;
        };
        let Ok(qemu) = CString::new(qemu.as_os_str().as_bytes()) else { return };
        let name = self.arguments.first().cloned().unwrap_or_default();
        let mut arguments =
            vec![qemu.clone(), c"-plugin".into(), plugin.clone(), c"-0".into(), name];
        // The loader's variables are meant for the program: QEMU must not see them. It takes
        // them as options, unless they hold its separator.
        let (loader, environment): (Vec<_>, Vec<_>) = environment
            .into_iter()
            .partition(|v| v.to_bytes().starts_with(b"LD_") && !v.to_bytes().contains(&b','));
        arguments.extend(loader.into_iter().flat_map(|variable| [c"-E".into(), variable]));
        arguments.push(plain(self.program));
        arguments.extend(self.arguments.into_iter().skip(1));
        let (arguments, environment) = (pointers(&arguments), pointers(&environment));
        // SAFETY: both arrays end in null and point to live strings.
        unsafe { sys::execve(qemu.as_ptr(), arguments.as_ptr(), environment.as_ptr()) };
    }
}

/// QEMU would take a leading dash for an option.
fn plain(path: CString) -> CString {
    if path.to_bytes().first() != Some(&b'-') {
        return path;
    }
    CString::new([b"./", path.to_bytes()].concat()).unwrap_or(path)
}

fn pointers(strings: &[CString]) -> Vec<*const c_char> {
    strings.iter().map(|s| s.as_ptr()).chain([std::ptr::null()]).collect()
}

fn bytes_path(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}

/// The first bytes of a file, and whether executing it changes rights, which QEMU cannot.
fn head(path: &CStr) -> Option<(Vec<u8>, bool)> {
    let file = File::open(bytes_path(path.to_bytes())).ok()?;
    let about = file.metadata().ok().filter(|about| about.is_file())?;
    let mut head = Vec::new();
    file.take(program::HEAD as u64).read_to_end(&mut head).ok()?;
    Some((head, about.permissions().mode() & 0o6000 != 0))
}

/// Copies memory of the program; a bad address is no crash.
fn read(address: u64, into: &mut [u8]) -> usize {
    let base = std::ptr::with_exposed_provenance_mut(
        address.wrapping_add(GUEST_BASE.load(Relaxed)) as usize,
    );
    let local = sys::IoVec { base: into.as_mut_ptr().cast(), len: into.len() };
    let remote = sys::IoVec { base, len: into.len() };
    // SAFETY: the kernel writes at most the length of `into`, and checks the other address.
    let n = unsafe {
        sys::process_vm_readv(sys::getpid(), &raw const local, 1, &raw const remote, 1, 0)
    };
    usize::try_from(n).unwrap_or(0)
}

/// A string of the program.
fn string(address: u64) -> Option<CString> {
    let mut text = Vec::new();
    while text.len() < LONGEST {
        let at = address.wrapping_add(text.len() as u64);
        // Not beyond a page: the next may not exist.
        let mut part = vec![0; 4096 - (at % 4096) as usize];
        let n = read(at, &mut part);
        let part = &part[..n];
        if let Some(end) = part.iter().position(|b| *b == 0) {
            text.extend_from_slice(&part[..end]);
            return CString::new(text).ok();
        }
        if n == 0 {
            return None;
        }
        text.extend_from_slice(part);
    }
    None
}

/// An array of strings that ends in null; a null array is an empty one, as in Linux.
fn strings(address: u64) -> Option<Vec<CString>> {
    let mut all = Vec::new();
    while address != 0 && all.len() < MOST {
        let mut pointer = [0; 8];
        let at = address.wrapping_add(all.len() as u64 * 8);
        if read(at, &mut pointer) != 8 {
            return None;
        }
        match u64::from_le_bytes(pointer) {
            0 => break,
            pointer => all.push(string(pointer)?),
        }
    }
    Some(all)
}
