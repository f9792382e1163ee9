//! How often a process calls a function of a file: a probe at its first instruction (uprobe), counted by
//! the kernel for the threads of the process. That is a program's own measure of its progress, where it has
//! a function per unit of work. A call costs the process a trap, about a microsecond: a function that is
//! called a thousand times a second costs it a thousandth. The program's file and memory stay as they
//! are but for the trap, which the kernel takes back when the counter is closed, also by our death.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::Arc;

use object::{Object as _, ObjectSegment as _, ObjectSymbol as _};
use perf_event::Counter;

use super::event::{Event, PLAIN, Pmu, Which};
use super::{PmuError, Wanted};
use crate::kernel::machine::SysRoot;
use crate::kernel::procfs::ProcRoot;

/// Longest file that symbols are looked up in, in bytes; it is read whole.
const MAX_FILE: u64 = 1 << 30;

/// Why calls of a function cannot be counted.
#[derive(Debug, thiserror::Error)]
pub enum CallsError {
    /// What was given is no place.
    #[error("`{0}` is no function; write FILE:SYMBOL or FILE:0xOFFSET")]
    NoPlace(String),
    /// The file cannot be read.
    #[error("cannot read {path}: {why}; name the program's file or library")]
    File {
        /// As given.
        path: String,
        /// What stood in the way.
        why: String,
    },
    /// There is no such function.
    #[error(
        "{path} has no symbol {symbol}; see `nm -D`, or give its place in the file as 0xOFFSET"
    )]
    NoSymbol {
        /// As given.
        path: String,
        /// As given.
        symbol: String,
    },
}

/// A function, by its place in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    path: Arc<CString>,
    offset: u64,
}

impl Function {
    /// Of `FILE:SYMBOL`, or of `FILE:0xOFFSET` in a file without symbols. Reads the file.
    ///
    /// # Errors
    /// When there is no such function.
    pub fn parse(text: &str) -> Result<Function, CallsError> {
        let none = || CallsError::NoPlace(text.to_owned());
        let (path, symbol) = text.rsplit_once(':').ok_or_else(none)?;
        if path.is_empty() || symbol.is_empty() {
            return Err(none());
        }
        let failed = |why: String| CallsError::File { path: path.to_owned(), why };
        let real = fs::canonicalize(path).map_err(|error| failed(error.to_string()))?;
        let offset = match symbol.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16).map_err(|_| none())?,
            None => offset_of(&real, symbol).map_err(failed)?.ok_or_else(|| {
                CallsError::NoSymbol { path: path.to_owned(), symbol: symbol.to_owned() }
            })?,
        };
        let path = CString::new(real.as_os_str().as_bytes()).map_err(|_| none())?;
        Ok(Function { path: Arc::new(path), offset })
    }
}

/// Where in a file a symbol's code begins.
fn offset_of(path: &Path, symbol: &str) -> Result<Option<u64>, String> {
    let bytes = contents(path).map_err(|error| error.to_string())?;
    let file = object::File::parse(&*bytes).map_err(|error| error.to_string())?;
    let found = file.symbols().chain(file.dynamic_symbols()).find(|candidate| {
        candidate.name() == Ok(symbol) && candidate.is_definition() && candidate.address() > 0
    });
    let Some(address) = found.map(|symbol| symbol.address()) else { return Ok(None) };
    let holds = |segment: &object::Segment<'_, '_>| {
        address.checked_sub(segment.address()).is_some_and(|behind| behind < segment.size())
    };
    let segment = file.segments().find(holds);
    Ok(segment.and_then(|s| s.file_range().0.checked_add(address - s.address())))
}

/// All of a regular file of at most [`MAX_FILE`] bytes; anything else could keep a reader for ever.
fn contents(path: &Path) -> std::io::Result<Vec<u8>> {
    let flags = libc::O_NONBLOCK | libc::O_CLOEXEC;
    let file = fs::OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let found = file.metadata()?;
    if !found.is_file() || found.len() > MAX_FILE {
        return Err(std::io::Error::other(format!("not a file of at most {MAX_FILE} bytes")));
    }
    let mut bytes = Vec::new();
    file.take(MAX_FILE).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Calls of a function by one process. Closed when dropped.
///
/// Threads that begin later are counted from the first read on that finds them. Counters that the
/// kernel hands on to new threads would count them all, but it reads the function's path anew then, at
/// an address that is the target's: the thread could not be made (seen with Linux 6.18).
pub struct Calls {
    pid: i32,
    function: Function,
    pmu: u32,
    counters: BTreeMap<i32, Counter>,
    /// Calls of threads that have ended.
    ended: u64,
}

impl Calls {
    /// Counts from now on. Takes a file per thread.
    ///
    /// # Errors
    /// When the process has ended, or the kernel has no uprobes or does not let us.
    pub fn open(pid: i32, function: &Function) -> Result<Calls, PmuError> {
        let unsupported = |why: &str| PmuError::Unsupported(Wanted::Calls, why.to_owned());
        let sys = SysRoot::default();
        let pmu = Pmu::of(&sys, "uprobe")
            .ok_or_else(|| unsupported("the kernel has no CONFIG_UPROBE_EVENTS"))?;
        let (function, pmu) = (function.clone(), pmu.number);
        let mut calls = Calls { pid, function, pmu, counters: BTreeMap::new(), ended: 0 };
        calls.follow_threads()?;
        if calls.counters.is_empty() { Err(PmuError::gone(pid)) } else { Ok(calls) }
    }

    /// Counts the threads that there are now, and no others.
    fn follow_threads(&mut self) -> Result<(), PmuError> {
        let threads = ProcRoot::default().tasks(self.pid)?;
        for &thread in &threads {
            if !self.counters.contains_key(&thread)
                && let Some(counter) = self.counter(thread)?
            {
                self.counters.insert(thread, counter);
            }
        }
        let gone: Vec<i32> =
            self.counters.keys().copied().filter(|thread| !threads.contains(thread)).collect();
        for mut counter in gone.iter().filter_map(|thread| self.counters.remove(thread)) {
            self.ended += counter.read().unwrap_or(0);
        }
        Ok(())
    }

    /// `None` when the thread has ended meanwhile.
    fn counter(&self, thread: i32) -> Result<Option<Counter>, PmuError> {
        let path = self.function.path.as_ptr() as u64;
        let which = Which::Raw { pmu: self.pmu, config: [0, path, self.function.offset] };
        // In user mode there is nothing else to leave out, and the kernel refuses to be asked.
        let mut builder = Event { skips_kernel: false, ..Event::new(which, PLAIN) }.counter();
        builder.observe_pid(thread).any_cpu();
        match builder.build() {
            Ok(mut counter) => {
                counter.enable().map_err(|source| kernel("start a counter", source))?;
                Ok(Some(counter))
            }
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(None),
            Err(error) => {
                let why = |e: &std::io::Error| format!("the probe was not placed ({e})");
                Err(PmuError::refused(Wanted::Calls, why, &error))
            }
        }
    }

    /// Calls since it began.
    ///
    /// # Errors
    /// When a counter cannot be read.
    pub fn read(&mut self) -> Result<u64, PmuError> {
        match self.follow_threads() {
            // What an ended process did still counts.
            Err(error) if error.is_gone() => {}
            result => result?,
        }
        let all = self.counters.values_mut().map(Counter::read);
        let now = all.sum::<std::io::Result<u64>>().map_err(|e| kernel("read a counter", e))?;
        Ok(self.ended + now)
    }
}

fn kernel(what: &'static str, source: std::io::Error) -> PmuError {
    PmuError::Kernel { of: Wanted::Calls, what, source }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;
    use crate::kernel::testing::live;

    /// Called by the test, and found by its name.
    #[unsafe(no_mangle)]
    #[inline(never)]
    extern "C" fn huepage_test_unit_of_work(n: u64) -> u64 {
        std::hint::black_box(n) + 1
    }

    fn own() -> String {
        std::env::current_exe().expect("a path").display().to_string()
    }

    #[test]
    fn places_are_read_and_mistakes_are_said() {
        let text = format!("{}:huepage_test_unit_of_work", own());
        let function = Function::parse(&text).expect("the symbol is there");
        assert!(function.offset > 0);
        let same = format!("{}:{:#x}", own(), function.offset);
        assert_eq!(Function::parse(&same).expect("an offset"), function);
        let error = |text: &str| Function::parse(text).expect_err(text).to_string();
        assert!(error("nothing").contains("FILE:SYMBOL"));
        assert!(error("/no/such/file:main").contains("cannot read /no/such/file"));
        assert!(error(&format!("{}:no_such_symbol", own())).contains("no symbol no_such_symbol"));
        assert!(error("/etc/passwd:main").contains("cannot read /etc/passwd"));
    }

    #[test]
    fn what_is_no_file_or_too_long_is_not_read() {
        let dir = tempfile::tempdir().expect("a directory");
        let (long, pipe) = (dir.path().join("long"), dir.path().join("pipe"));
        fs::File::create(&long).and_then(|file| file.set_len(1 << 42)).expect("sparse");
        let name = CString::new(pipe.as_os_str().as_bytes()).expect("a path");
        // SAFETY: a path that ends with a zero byte.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        for path in [long, pipe, "/dev/zero".into()] {
            let text = format!("{}:main", path.display());
            let error = Function::parse(&text).expect_err(&text).to_string();
            assert!(error.contains("not a file of at most"), "{error}");
        }
    }

    #[test]
    fn a_segment_at_the_end_of_addresses_is_survived() {
        let mut bytes = fs::read(own()).expect("our own program");
        // `p_vaddr` and `p_memsz` of every program header.
        let table = u64::from_le_bytes(bytes[32..40].try_into().expect("eight")) as usize;
        for n in 0..usize::from(bytes[56]) {
            bytes[table + n * 56 + 16..][..8].fill(0xff);
            bytes[table + n * 56 + 40..][..8].fill(0xff);
        }
        let file = tempfile::NamedTempFile::new().expect("a file");
        fs::write(file.path(), bytes).expect("written");
        let found = offset_of(file.path(), "huepage_test_unit_of_work");
        assert_eq!(found, Ok(None), "the symbol is in no segment");
    }

    #[test]
    fn calls_are_counted_from_the_beginning_on() {
        let text = format!("{}:huepage_test_unit_of_work", own());
        let function = Function::parse(&text).expect("the symbol is there");
        let mut sum = huepage_test_unit_of_work(0);
        let pid = std::process::id().cast_signed();
        let name = "calls_are_counted_from_the_beginning_on";
        let Some(mut calls) = live(name, Calls::open(pid, &function)) else { return };
        let before = calls.read().expect("it counts");
        (0..1000).for_each(|n| sum += huepage_test_unit_of_work(n));
        let (ready, go) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
        let (is_ready, may_go) = (Arc::clone(&ready), Arc::clone(&go));
        let elsewhere = std::thread::spawn(move || {
            is_ready.wait();
            may_go.wait();
            (0..500).map(|n| huepage_test_unit_of_work(n)).sum::<u64>()
        });
        ready.wait();
        assert_eq!(calls.read().expect("it counts") - before, 1000);
        go.wait();
        sum += elsewhere.join().expect("it adds");
        assert!(sum > 0);
        assert_eq!(calls.read().expect("it counts") - before, 1500);
    }
}
