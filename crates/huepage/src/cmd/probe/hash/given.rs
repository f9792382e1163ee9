//! A hash as a person gives it: the name of a published one, a file, or masks.

use std::path::Path;

use huepage_recover::file::Mask;
use huepage_recover::{HashFile, known, notation};

use super::source::read;
use crate::exit::{CmdError, ExitCode, bad_file};

/// The largest hash file that is read: the longest base sequence takes half of it.
const LARGEST: u64 = 1 << 21;

/// Reads a name, a file or masks, in this order.
pub fn hash(text: &str) -> Result<HashFile, CmdError> {
    if let Some((_, file)) = known::all().into_iter().find(|(name, _)| *name == text) {
        return Ok(file);
    }
    let path = Path::new(text);
    if path.exists() || text.contains(".toml") {
        return file(path);
    }
    let masks = notation::parse(text).map_err(|e| {
        let names: Vec<&str> = known::all().into_iter().map(|(name, _)| name).collect();
        let what = format!("{e}, a hash file, or one of {}", names.join(", "));
        CmdError::new(ExitCode::Usage, what)
    })?;
    of_masks(&masks)
}

/// Reads a hash file.
pub fn file(path: &Path) -> Result<HashFile, CmdError> {
    let unread = |e| bad_file(path, format!("{e}; name a hash file"));
    let text = read(path, LARGEST).map_err(unread)?;
    let large = || bad_file(path, "more than 2 MiB are no hash file; name another");
    HashFile::parse(&text.ok_or_else(large)?).map_err(|e| bad_file(path, e))
}

fn of_masks(masks: &[u64]) -> Result<HashFile, CmdError> {
    let used = masks.iter().fold(0, |all, mask| all | mask);
    let file = HashFile {
        name: "given".into(),
        source: "the command line".into(),
        address_bits: [used.trailing_zeros(), used.ilog2()],
        line_bits: 6,
        set_bits: None,
        slice_masks: masks.iter().copied().map(Mask).collect(),
        base: Vec::new(),
        permutation: Vec::new(),
        ambiguous: Vec::new(),
        measured: None,
    };
    match file.index(0) {
        Ok(_) => Ok(file),
        Err(e) => Err(CmdError::new(ExitCode::Usage, e)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_masks_are_hashes_and_the_rest_is_refused() {
        assert_eq!(hash("intel-2").unwrap().masks(), [0x1b5f575440]);
        assert_eq!(hash("0x40 0x80").unwrap().masks(), [0x40, 0x80]);
        for (bad, code) in [
            ("intel-3", ExitCode::Usage),
            ("0x40 0x40", ExitCode::Usage),
            ("0x1", ExitCode::Usage),
            ("none.toml", ExitCode::BadFile),
            ("/dev/zero", ExitCode::BadFile),
        ] {
            assert_eq!(hash(bad).unwrap_err().code, code, "{bad}");
        }
    }
}
