//! The machine files of this repository.

use std::path::PathBuf;

/// All of them, by name.
pub fn machine_files() -> std::io::Result<Vec<PathBuf>> {
    let all = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../../machines"))?;
    let mut files = all.map(|entry| Ok(entry?.path())).collect::<std::io::Result<Vec<_>>>()?;
    files.retain(|file| file.extension().is_some_and(|kind| kind == "toml"));
    files.sort();
    Ok(files)
}
