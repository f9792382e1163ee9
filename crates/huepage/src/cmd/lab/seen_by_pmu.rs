//! What the PMU of a guest has seen, as the file whose memory a device of the guest has: brought up to date when the
//! guest asks, which waits meanwhile. So the same run reads the same.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use huepage_model::pmu_file::BYTES;
use huepage_sim::lab::EmulatedCaches;

use crate::exit::{CmdError, bad_file};

/// The file of one guest.
pub struct SeenByPmu {
    path: PathBuf,
    file: File,
}

impl SeenByPmu {
    /// An empty one; none for a guest without a PMU.
    pub fn create(period: Option<u64>, path: &Path) -> Result<Option<SeenByPmu>, CmdError> {
        if period.is_none() {
            return Ok(None);
        }
        let made = File::create(path).and_then(|file| file.set_len(BYTES as u64).map(|()| file));
        let file = made.map_err(|e| bad_file(path, e))?;
        Ok(Some(SeenByPmu { path: path.to_owned(), file }))
    }

    /// Brings it up to date. Who asks tells no more before he is answered.
    pub fn update(&mut self, caches: &mut EmulatedCaches) -> Result<(), CmdError> {
        let Some(pmu) = caches.pmu() else { return Ok(()) };
        let written = pmu.write(|at, words| {
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            self.file.write_all_at(&bytes, at as u64)
        });
        written.map_err(|e| bad_file(&self.path, e))
    }
}
