//! The words that the kernel writes when a thread ends.
//!
//! At a thread's end the kernel clears a word and wakes whoever joins it; if that page is out
//! at this very moment the kernel does not wait for it, and the joiner would wait for ever.
//! The pages with these words are therefore left where they are. Each thread is asked once
//! for the address of its word.

use std::collections::HashMap;

use super::EngineError;
use crate::inject::stub::Call;
use crate::inject::{InjectError, Session};
use crate::procfs::ProcRoot;

/// The pages that hold a thread's end-of-life word, by thread.
#[derive(Debug, Default)]
pub struct ThreadWords {
    pages: HashMap<i32, u64>,
}

impl ThreadWords {
    /// Learns the words of threads not asked yet, except `ours`. A thread that ends while it
    /// is asked has no word any more; one that cannot be asked makes this fail, and nothing
    /// must be recoloured then.
    ///
    /// # Errors
    /// When the process is gone or a thread does not stop.
    pub fn refresh(
        &mut self,
        root: &ProcRoot,
        pid: i32,
        ours: [u32; 2],
    ) -> Result<(), EngineError> {
        for tid in root.tasks(pid)? {
            if ours.contains(&tid.cast_unsigned()) || self.pages.contains_key(&tid) {
                continue;
            }
            match Session::stop(tid) {
                Ok(mut session) => {
                    let page = ask(&mut session)?;
                    session.finish();
                    self.pages.insert(tid, page);
                }
                Err(InjectError::Gone(_)) => {}
                // A zombie leader cannot be stopped and has no end ahead of it.
                Err(_) if root.stat(tid).is_ok_and(|s| matches!(s.state, 'Z' | 'X')) => {}
                Err(e) => return Err(e.into()),
            }
        }
        Ok(())
    }

    /// Asks a thread that is stopped already.
    ///
    /// # Errors
    /// When the thread is gone.
    pub fn ask(&mut self, tid: i32, session: &mut Session) -> Result<(), EngineError> {
        let page = ask(session)?;
        self.pages.insert(tid, page);
        Ok(())
    }

    /// Whether the page at this address holds such a word. Pages of ended threads count:
    /// the C library reuses their stacks.
    pub fn holds(&self, address: u64) -> bool {
        self.pages.values().any(|&page| page == address)
    }
}

fn ask(session: &mut Session) -> Result<u64, EngineError> {
    const GET_TID_ADDRESS: u64 = 40;
    let at = session.scratch()?;
    let call = Call::new(libc::SYS_prctl, &[GET_TID_ADDRESS, at, 0, 0, 0]);
    session.call("tell where its end is announced", call)?;
    let mut word = [0u8; 8];
    session.read(at, &mut word)?;
    Ok(u64::from_ne_bytes(word) & !4095)
}
