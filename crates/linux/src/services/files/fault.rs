//! Loads from pages of files that may become shorter: where a page is gone, the kernel sends
//! SIGBUS, which would end this process. While a [`Guard`] covers a range, such a page is replaced
//! by one of zeroes. Nothing else is done about it: whoever measured such a page sees from the
//! page tables that it is another.

use std::ffi::c_void;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

/// The range that is covered, in bytes.
static START: AtomicU64 = AtomicU64::new(0);
static END: AtomicU64 = AtomicU64::new(0);
/// One range at a time.
static TURN: Mutex<()> = Mutex::new(());
static INSTALL: Once = Once::new();

/// Covers a range of addresses until it is dropped.
#[derive(Debug)]
pub(super) struct Guard {
    _turn: MutexGuard<'static, ()>,
}

impl Guard {
    /// Covers `range`, whole pages of a mapping of the caller's. Waits for another guard to go.
    pub fn over(range: Range<u64>) -> Guard {
        INSTALL.call_once(install);
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        START.store(range.start, Ordering::SeqCst);
        END.store(range.end, Ordering::SeqCst);
        Guard { _turn: turn }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        END.store(0, Ordering::SeqCst);
    }
}

fn install() {
    let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut c_void) = on_bus_error;
    // SAFETY: the structure is plain data; the handler makes system calls only.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        libc::sigaction(libc::SIGBUS, &raw const action, std::ptr::null_mut());
    }
}

/// Puts a page of zeroes where the fault was, or has the signal do what it does without us.
extern "C" fn on_bus_error(signal: libc::c_int, info: *mut libc::siginfo_t, _: *mut c_void) {
    // SAFETY: the kernel hands over a valid structure with the address of the fault.
    let address = unsafe { (*info).si_addr() } as u64;
    if (START.load(Ordering::SeqCst)..END.load(Ordering::SeqCst)).contains(&address) {
        let page = (address & !4095) as *mut c_void;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        // SAFETY: the page lies in the range, which its owner only loads from; mmap is a bare
        // system call and may be called here.
        let mapped = unsafe { libc::mmap(page, 4096, libc::PROT_READ, flags, -1, 0) };
        if mapped != libc::MAP_FAILED {
            return;
        }
    }
    // SAFETY: the load is tried again and then ends the process as it would have.
    unsafe { libc::signal(signal, libc::SIG_DFL) };
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::super::view::View;
    use super::*;

    #[test]
    fn a_page_that_went_reads_as_zeroes() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[7; 8192]).unwrap();
        let view = View::new(&file, 0..2).unwrap();
        view.populate(&(0..2)).unwrap();
        let guard = Guard::over(view.address(0)..view.address(2));
        // SAFETY: mapped as long as the view lives, and the guard covers it.
        let load = |page| unsafe { (view.address(page) as *const u8).read_volatile() };
        assert_eq!((load(0), load(1)), (7, 7));
        file.set_len(4096).unwrap();
        assert_eq!((load(0), load(1)), (7, 0));
        drop(guard);
    }
}
