//! A writer that keeps the model of its files: it writes, cuts, extends, renames, unlinks,
//! stores through mappings and syncs, and now and then compares a file with its model, by
//! `read`, by a mapping and past the page cache. Several work in one directory, each on its own
//! files, while something else disturbs the page cache. It knows nothing of what disturbs.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;

use super::model::{BLOCK, FileModel};
use crate::mix::{Rng, range};
use crate::sys::{self, MappedMemory, PAGE, PageProt};

/// Names that a keeper has for its files.
const NAMES: usize = 6;
/// Longest file, in blocks.
const LONGEST: usize = 512;
/// Most blocks that are written at once.
const AT_ONCE: usize = 64;
/// Files found wrong that are told about.
const TOLD: usize = 5;

struct Kept {
    id: u64,
    model: FileModel,
}

/// A mapping that stays while other things are done.
struct Held {
    name: usize,
    area: MappedMemory,
}

/// The writer; see the [module](self).
pub struct Keeper {
    number: usize,
    dir: PathBuf,
    rng: Rng,
    files: BTreeMap<usize, Kept>,
    held: Option<Held>,
    generation: u64,
    ids: u64,
    /// Comparisons of a file with its model.
    pub checks: u64,
    /// Files that were not as they must be, the first few.
    pub wrong: Vec<String>,
    /// What was done, by kind.
    pub acts: BTreeMap<&'static str, u64>,
}

type Act = fn(&mut Keeper, usize) -> io::Result<()>;

/// What a keeper does, each with how often among the sum of all.
const ACTS: [(&str, usize, Act); 10] = [
    ("write", 6, Keeper::write),
    ("truncate", 3, Keeper::truncate),
    ("rename", 2, Keeper::rename),
    ("unlink", 2, Keeper::unlink),
    ("store", 4, Keeper::store),
    ("hold", 2, Keeper::hold),
    ("sync", 2, Keeper::sync),
    ("read", 4, Keeper::check_read),
    ("map", 2, Keeper::check_mapped),
    ("direct", 1, Keeper::check_direct),
];

impl Keeper {
    /// A keeper in a directory; `number` must be its own there.
    pub fn new(dir: &Path, number: usize, seed: u64) -> Keeper {
        let rng = Rng::with_seed(seed ^ (number as u64) << 32);
        Keeper {
            number,
            dir: dir.to_owned(),
            rng,
            files: BTreeMap::new(),
            held: None,
            generation: 0,
            ids: (number as u64) << 40,
            checks: 0,
            wrong: Vec::new(),
            acts: BTreeMap::new(),
        }
    }

    fn path(&self, name: usize) -> PathBuf {
        self.dir.join(format!("k{}-{name}", self.number))
    }

    /// Does one thing to one of its files.
    ///
    /// # Errors
    /// What the system refuses, with what was tried.
    pub fn step(&mut self) -> io::Result<()> {
        let mut at = self.rng.usize(..ACTS.iter().map(|(_, weight, _)| weight).sum::<usize>());
        let name = self.rng.usize(..NAMES);
        if !self.files.contains_key(&name) {
            return self.create(name).map_err(|e| tried("create", &self.path(name), &e));
        }
        for (what, weight, act) in ACTS {
            if at < weight {
                *self.acts.entry(what).or_default() += 1;
                return act(self, name).map_err(|e| tried(what, &self.path(name), &e));
            }
            at -= weight;
        }
        Ok(())
    }

    fn create(&mut self, name: usize) -> io::Result<()> {
        File::create_new(self.path(name))?;
        self.ids += 1;
        self.files.insert(name, Kept { id: self.ids, model: FileModel::default() });
        self.write(name)
    }

    /// Some of the first `within` blocks.
    fn blocks(&mut self, within: usize) -> Range<usize> {
        range(&mut self.rng, within.clamp(1, LONGEST), AT_ONCE)
    }

    fn write(&mut self, name: usize) -> io::Result<()> {
        let path = self.path(name);
        let Some(kept) = self.files.get(&name) else { return Ok(()) };
        let end = kept.model.len().div_ceil(BLOCK) + AT_ONCE;
        let blocks = self.blocks(end);
        self.generation += 1;
        let generation = self.generation;
        let Some(kept) = self.files.get_mut(&name) else { return Ok(()) };
        let bytes = kept.model.write(kept.id, generation, blocks.clone());
        let file = File::options().write(true).open(path)?;
        file.write_all_at(bytes, (blocks.start * BLOCK) as u64)
    }

    fn truncate(&mut self, name: usize) -> io::Result<()> {
        let path = self.path(name);
        let bytes = self.rng.usize(..LONGEST * BLOCK / 2);
        let Some(kept) = self.files.get_mut(&name) else { return Ok(()) };
        kept.model.resize(bytes);
        File::options().write(true).open(path)?.set_len(bytes as u64)
    }

    /// Gives a file another name, in place of whatever had that name.
    fn rename(&mut self, name: usize) -> io::Result<()> {
        let to = (name + 1 + self.rng.usize(..NAMES - 1)) % NAMES;
        self.held = self.held.take().filter(|held| held.name != name && held.name != to);
        fs::rename(self.path(name), self.path(to))?;
        if let Some(kept) = self.files.remove(&name) {
            self.files.insert(to, kept);
        }
        Ok(())
    }

    fn unlink(&mut self, name: usize) -> io::Result<()> {
        self.held = self.held.take().filter(|held| held.name != name);
        self.files.remove(&name);
        fs::remove_file(self.path(name))
    }

    fn mapping(&self, name: usize, prot: PageProt) -> io::Result<Option<MappedMemory>> {
        let Some(kept) = self.files.get(&name) else { return Ok(None) };
        if kept.model.is_empty() {
            return Ok(None);
        }
        let file =
            File::options().read(true).write(prot == PageProt::Write).open(self.path(name))?;
        MappedMemory::shared_file(file.as_fd(), kept.model.len().div_ceil(PAGE), prot).map(Some)
    }

    /// Stores through a mapping; writes back in one case of three.
    fn store(&mut self, name: usize) -> io::Result<()> {
        let Some(area) = self.mapping(name, PageProt::Write)? else { return Ok(()) };
        self.store_into(name, &area);
        if self.rng.usize(..3) == 0 {
            area.write_back(0..area.pages())?;
        }
        Ok(())
    }

    fn store_into(&mut self, name: usize, area: &MappedMemory) {
        let Some(kept) = self.files.get(&name) else { return };
        // Neither behind the end of the file, which ends a program, nor of the mapping.
        let within = kept.model.len().min(area.pages() * PAGE) / BLOCK;
        if within == 0 {
            return;
        }
        let blocks = self.blocks(within);
        self.generation += 1;
        let generation = self.generation;
        let Some(kept) = self.files.get_mut(&name) else { return };
        let bytes = kept.model.write(kept.id, generation, blocks.clone());
        let words = &area.words()[blocks.start * BLOCK / 8..];
        for (word, bytes) in words.iter().zip(bytes.chunks_exact(8)) {
            word.store(bytes.try_into().map_or(0, u64::from_ne_bytes), Relaxed);
        }
    }

    /// Stores through the mapping that was held since an earlier call, and holds another.
    fn hold(&mut self, name: usize) -> io::Result<()> {
        if let Some(held) = self.held.take() {
            self.store_into(held.name, &held.area);
        }
        self.held = self.mapping(name, PageProt::Write)?.map(|area| Held { name, area });
        if let Some(held) = self.held.take() {
            self.store_into(held.name, &held.area);
            self.held = Some(held);
        }
        Ok(())
    }

    fn sync(&mut self, name: usize) -> io::Result<()> {
        File::options().write(true).open(self.path(name))?.sync_all()
    }

    fn compare(&mut self, name: usize, found: &[u8], how: &str) {
        self.checks += 1;
        let Some(kept) = self.files.get(&name) else { return };
        if let Some(difference) = kept.model.difference(found)
            && self.wrong.len() < TOLD
        {
            let path = self.path(name);
            self.wrong.push(format!("{} {how}: {difference}", path.display()));
        }
    }

    fn check_read(&mut self, name: usize) -> io::Result<()> {
        let found = fs::read(self.path(name))?;
        self.compare(name, &found, "read");
        Ok(())
    }

    fn check_mapped(&mut self, name: usize) -> io::Result<()> {
        let Some(area) = self.mapping(name, PageProt::Read)? else { return Ok(()) };
        let size = fs::metadata(self.path(name))?.len();
        let found = bytes(&area, usize::try_from(size).unwrap_or(usize::MAX));
        self.compare(name, &found, "mapped");
        Ok(())
    }

    fn check_direct(&mut self, name: usize) -> io::Result<()> {
        let direct = match sys::open_direct(&self.path(name)) {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => return Ok(()),
            other => other?,
        };
        let area = MappedMemory::private(LONGEST * BLOCK / PAGE + 1)?;
        let got = sys::pread_into(direct.as_fd(), area.words(), 0)?;
        let found = bytes(&area, got);
        self.compare(name, &found, "read directly");
        Ok(())
    }

    /// Flips a bit of one file, for tests of the checks.
    ///
    /// # Errors
    /// Those of the file; when there is no file with a byte in it.
    pub fn sabotage(&mut self) -> io::Result<()> {
        let mut filled = self.files.iter().filter(|(_, kept)| !kept.model.is_empty());
        let (&name, kept) = filled.next().ok_or_else(|| io::Error::other("no file to damage"))?;
        let byte = [kept.model.bytes()[0] ^ 1];
        File::options().write(true).open(self.path(name))?.write_all_at(&byte, 0)
    }

    /// Compares every file with its model, then drops all from the cache and compares again.
    ///
    /// # Errors
    /// Those of reading them; files of the keeper that it does not know of.
    pub fn finish(&mut self) -> io::Result<()> {
        self.held = None;
        self.check_dir(&self.dir.clone(), "at the end")?;
        let paths: Vec<PathBuf> = self.files.keys().map(|name| self.path(*name)).collect();
        super::files::drop_cached(&paths)?;
        self.check_dir(&self.dir.clone(), "from the disk")
    }

    /// Compares the files of a directory, by name, with the models.
    ///
    /// # Errors
    /// Those of reading them.
    pub fn check_dir(&mut self, dir: &Path, how: &str) -> io::Result<()> {
        for name in 0..NAMES {
            let path = dir.join(format!("k{}-{name}", self.number));
            if self.files.contains_key(&name) {
                let found = fs::read(&path).map_err(|e| tried("read", &path, &e))?;
                self.compare(name, &found, how);
            }
        }
        Ok(())
    }

    /// Names of its files.
    pub fn names(&self) -> Vec<String> {
        let name = |name: &usize| format!("k{}-{name}", self.number);
        self.files.keys().map(name).collect()
    }
}

fn tried(what: &str, path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{what} {}: {error}", path.display()))
}

/// The first `size` bytes of an area; fewer if it is shorter.
fn bytes(area: &MappedMemory, size: usize) -> Vec<u8> {
    let words = area.words().iter().take(size.div_ceil(8));
    let mut bytes: Vec<u8> = words.flat_map(|word| word.load(Relaxed).to_ne_bytes()).collect();
    bytes.truncate(size);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(dir: &Path, steps: usize) -> Keeper {
        let mut keeper = Keeper::new(dir, 1, 9);
        for _ in 0..steps {
            keeper.step().unwrap();
        }
        keeper
    }

    #[test]
    fn undisturbed_files_are_as_their_models() {
        let dir = tempfile::tempdir().unwrap();
        let mut keeper = kept(dir.path(), 400);
        keeper.finish().unwrap();
        assert_eq!(keeper.wrong, [""; 0]);
        assert!(keeper.checks > 50, "{}", keeper.checks);
        assert_eq!(keeper.acts.len(), ACTS.len(), "{:?}", keeper.acts);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), keeper.names().len());
    }

    #[test]
    fn a_flipped_bit_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let mut keeper = kept(dir.path(), 100);
        keeper.sabotage().unwrap();
        keeper.finish().unwrap();
        assert!(keeper.wrong[0].contains("Damaged") || keeper.wrong[0].contains("Written"));
        assert_eq!(keeper.wrong.len(), 2, "{:?}", keeper.wrong);
    }
}
