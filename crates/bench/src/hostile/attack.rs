//! The attacks: what a hostile program does to the threads, areas and descriptors of its supervisor.
//!
//! Each attack goes on until its time is over and says what it gained; nothing is the right answer.
//! It may end the program at any moment: that is its own affair. What becomes of the supervisor and
//! of other programs is checked from outside.

use std::fs;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use super::field::{self, Loot, UnmappedRange};
use super::sys;
use crate::mix::{Rng, range};
use crate::sys::{MappedMemory, fork, kill, pin_thread, vfork_add, wait};

/// An attack.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum AttackKind {
    /// Random words over every area of the supervisor's
    Write,
    /// Machine code of its own in place of the supervisor's
    Code,
    /// Copies of descriptors: truncated, mapped, written
    Steal,
    /// Messages on the supervisor's sockets
    Forge,
    /// Unmaps, moves and protects the supervisor's areas
    Unmap,
    /// Stops itself
    Stop,
    /// Threads, signals and descriptors while the supervisor comes in
    Race,
    /// A child traces the supervisor's threads
    Trace,
    /// Becomes other programs, has children in its own memory
    Exec,
    /// Other namespaces
    Namespaces,
    /// Hardly any memory, descriptors or threads
    Exhaust,
    /// Signals at the supervisor's threads, other CPUs for them
    Signal,
    /// A helper of the same user takes descriptors while the supervisor comes in
    Helper,
}

/// What an attack has to work with.
pub struct Attack {
    /// When to stop.
    pub until: Instant,
    /// A directory that only root may enter.
    pub secret: PathBuf,
    /// Its random numbers.
    pub rng: Rng,
    /// What it gained, in words.
    pub gained: Vec<String>,
}

impl Attack {
    /// Carries out an attack to its end.
    pub fn run(&mut self, kind: AttackKind) {
        while Instant::now() < self.until {
            match kind {
                AttackKind::Write => self.write(),
                AttackKind::Code => self.replace_code(),
                AttackKind::Steal => self.steal(),
                AttackKind::Forge => self.forge(),
                AttackKind::Unmap => self.unmap(),
                AttackKind::Stop => self.stop(),
                AttackKind::Exhaust => self.starve(),
                AttackKind::Race | AttackKind::Helper => self.linger(),
                AttackKind::Trace => self.trace(),
                AttackKind::Exec => self.exec(),
                AttackKind::Namespaces => self.namespaces(),
                AttackKind::Signal => self.signal(),
            }
        }
    }

    fn places(&self) -> Vec<UnmappedRange> {
        field::places().unwrap_or_default()
    }

    fn linger(&mut self) {
        let area = MappedMemory::private(64);
        area.iter().flat_map(|a| a.words().iter().step_by(512)).for_each(|word| {
            word.store(1, std::sync::atomic::Ordering::Relaxed);
        });
        std::thread::sleep(Duration::from_millis(1));
    }

    /// Ever less to live on.
    fn starve(&mut self) {
        exhaust(&mut self.rng);
        self.linger();
    }

    /// A thread for each area, since one that the supervisor no longer serves stops who writes to it.
    fn write(&mut self) {
        for place in self.places() {
            let shared_object = place.is_shared() && !place.name.contains("huepage-agent");
            let opened = sys::protect(place.start, place.bytes, libc::PROT_READ | libc::PROT_WRITE);
            if shared_object && opened.is_ok() {
                self.gained.push(format!("writing to {}", place.name));
            }
            let (rng, until) = (Rng::with_seed(self.rng.u64(..)), self.until);
            std::thread::spawn(move || scribble(&place, rng, until));
        }
        std::thread::sleep(self.until.saturating_duration_since(Instant::now()));
    }

    /// The supervisor's threads run code that becomes root and makes a file where only root may.
    fn replace_code(&mut self) {
        let file = self.secret.join(format!("made-{}", std::process::id()));
        let page = intruder(&file);
        let all = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
        for place in self.places().iter().filter(|place| place.is_code()) {
            let _ = sys::protect(place.start, place.bytes, all);
            for at in (place.start..place.start + place.bytes).step_by(4096) {
                let _ = sys::poke(at, &page);
            }
        }
        std::thread::sleep(Duration::from_millis(20));
    }

    /// Copies of all descriptors of the supervisor's threads.
    fn loot(&mut self) -> Vec<Loot> {
        let own = field::own_descriptors();
        let all: Vec<Loot> = field::threads().into_iter().flat_map(field::loot).collect();
        let others = all.iter().filter(|loot| !own.contains(&loot.what));
        self.gained.extend(others.filter_map(Loot::right));
        all
    }

    fn steal(&mut self) {
        for loot in self.loot() {
            let fd = loot.fd.as_fd();
            if loot.what.starts_with("/memfd:") {
                let file = fs::File::from(loot.fd.try_clone().unwrap_or(loot.fd));
                let bytes = file.metadata().map(|m| m.len()).unwrap_or(0);
                if file.set_len(0).is_ok() || file.set_len(bytes + 4096).is_ok() {
                    self.gained.push(format!("the size of {}", loot.what));
                }
                self.write_to(&file, &loot.what, usize::try_from(bytes).unwrap_or(0));
            } else if loot.what.starts_with("anon_inode") {
                let mut events = [0u8; 512];
                let _ = sys::receive(fd, &mut events);
            }
        }
    }

    /// Writes to an object by a mapping and by `write`.
    fn write_to(&mut self, file: &fs::File, name: &str, bytes: usize) {
        use std::os::unix::fs::FileExt;
        if let Ok(at) = sys::map_shared(file.as_fd(), bytes.max(4096), true) {
            if !name.contains("huepage-agent") {
                self.gained.push(format!("writing to {name}"));
            }
            for _ in 0..256 {
                let word = word(&mut self.rng);
                let _ = sys::poke(at + self.rng.usize(..bytes.max(8) / 8) * 8, &word.to_ne_bytes());
            }
        }
        for _ in 0..16 {
            let word = word(&mut self.rng);
            let _ = file.write_at(&word.to_ne_bytes(), self.rng.usize(..bytes.max(8)) as u64);
        }
    }

    /// Answers that nobody gave, on every socket; answers that somebody gave are taken away.
    fn forge(&mut self) {
        for loot in self.loot().iter().filter(|loot| loot.what.starts_with("socket:")) {
            for _ in 0..64 {
                let letter = b"rcCfFgGsS!\0\x01\xff"[self.rng.usize(..13)];
                let bytes = vec![letter; 1 + self.rng.usize(..64)];
                let _ = sys::send(loot.fd.as_fd(), &bytes);
                let mut taken = [0u8; 64];
                let _ = sys::receive(loot.fd.as_fd(), &mut taken);
            }
        }
        std::thread::yield_now();
    }

    fn unmap(&mut self) {
        for place in self.places() {
            let pages = place.bytes / 4096;
            let range = range(&mut self.rng, pages, pages);
            let (start, bytes) = (place.start + range.start * 4096, range.len() * 4096);
            let _ = match self.rng.usize(..5) {
                0 => sys::unmap(start, bytes),
                1 => sys::move_away(start, bytes),
                2 => sys::protect(start, bytes, libc::PROT_NONE),
                3 => sys::advise(start, bytes, libc::MADV_DONTNEED),
                _ => sys::advise(start, bytes, libc::MADV_DOFORK),
            };
            std::thread::sleep(Duration::from_millis(self.rng.usize(..3) as u64));
        }
        self.linger();
    }

    /// Stopped for good: whoever started it has to end or continue it.
    fn stop(&mut self) {
        std::thread::sleep(Duration::from_millis(self.rng.usize(..30) as u64));
        let _ = kill(std::process::id(), libc::SIGSTOP);
    }

    fn trace(&mut self) {
        let threads = field::threads();
        let linger = Duration::from_millis(50 + self.rng.usize(..200) as u64);
        let child = fork(|| {
            let _ = sys::end_with_parent();
            let traced = threads.iter().filter(|thread| sys::trace(**thread).is_ok()).count();
            std::thread::sleep(linger);
            u8::try_from(traced).unwrap_or(u8::MAX)
        });
        if let Ok(child) = child {
            self.linger();
            let _ = wait(child);
        }
    }

    fn exec(&mut self) {
        if let (Ok(stack), Ok(words)) = (MappedMemory::private(4), MappedMemory::private(1)) {
            let _ = vfork_add(&words.words()[0], &stack);
        }
        let _ = Command::new("/bin/true").status();
        if self.rng.usize(..4) == 0 {
            use std::os::unix::process::CommandExt;
            let left = self.until.saturating_duration_since(Instant::now());
            let _ = Command::new("/bin/sleep").arg(format!("{:.3}", left.as_secs_f64())).exec();
        }
    }

    fn namespaces(&mut self) {
        const KINDS: [i32; 6] = [
            libc::CLONE_NEWUSER,
            libc::CLONE_NEWNS,
            libc::CLONE_NEWNET,
            libc::CLONE_NEWPID,
            libc::CLONE_NEWIPC,
            libc::CLONE_NEWUTS,
        ];
        let kind = KINDS[self.rng.usize(..KINDS.len())];
        let _ = sys::unshare(kind);
        let _ = sys::unshare(libc::CLONE_FILES | libc::CLONE_FS);
        if let Ok(own) = fs::File::open("/proc/self/ns/net") {
            let _ = sys::enter(own.as_fd(), 0);
        }
        let _ = Command::new("/bin/true").status();
        self.linger();
    }

    fn signal(&mut self) {
        const SIGNALS: [i32; 5] =
            [libc::SIGWINCH, libc::SIGCHLD, libc::SIGURG, libc::SIGCONT, libc::SIGIO];
        SIGNALS.iter().filter(|s| **s == libc::SIGIO).for_each(|s| sys::ignore(*s));
        for thread in field::threads() {
            let _ = sys::signal_thread(thread, SIGNALS[self.rng.usize(..SIGNALS.len())]);
            let _ = pin_thread(thread, self.rng.usize(..2));
        }
        self.linger();
    }
}

/// Random bits, small numbers, single bits and nearly all ones: lengths and places of every kind.
fn word(rng: &mut Rng) -> u64 {
    match rng.usize(..4) {
        0 => rng.u64(..),
        1 => u64::MAX - rng.usize(..16) as u64,
        2 => rng.usize(..5000) as u64,
        _ => 1 << rng.usize(..64),
    }
}

/// Writes words at random places, then every word of some pages, again and again.
fn scribble(place: &UnmappedRange, mut rng: Rng, until: Instant) {
    while Instant::now() < until {
        for _ in 0..64 {
            let at = place.start + rng.usize(..place.bytes / 8) * 8;
            let _ = sys::poke(at, &word(&mut rng).to_ne_bytes());
        }
        let page = word(&mut rng).to_ne_bytes().repeat(512);
        for page_of in range(&mut rng, place.bytes / 4096, 64) {
            let _ = sys::poke(place.start + page_of * 4096, &page);
        }
    }
}

/// What goes on while the supervisor comes in: before there is anything to attack.
pub fn prepare(kind: AttackKind, rng: &mut Rng, until: Instant) {
    match kind {
        AttackKind::Race => race(rng, until),
        // With limits from the start it is refused: half of them come later.
        AttackKind::Exhaust if rng.usize(..2) == 0 => exhaust(rng),
        AttackKind::Helper => help(until),
        _ => {}
    }
}

fn race(rng: &mut Rng, until: Instant) {
    let cover = fs::File::open("/dev/null");
    let seed = rng.u64(..);
    // Numbers above those that this program has open: the next ones that anybody gets here.
    std::thread::spawn(move || {
        let mut rng = Rng::with_seed(seed);
        while Instant::now() < until {
            let over = cover.as_ref().ok().filter(|_| rng.usize(..2) == 0).map(AsFd::as_fd);
            sys::close_or_cover(12 + i32::try_from(rng.usize(..12)).unwrap_or(0), over);
        }
    });
    std::thread::spawn(move || {
        while Instant::now() < until {
            let short = std::thread::spawn(std::thread::yield_now);
            let _ = short.join();
        }
    });
    let main = sys::own_thread();
    std::thread::spawn(move || {
        while Instant::now() < until {
            let _ = sys::signal_thread(main, libc::SIGWINCH);
            std::thread::yield_now();
        }
    });
}

/// A process of the same user looks for new threads of its parent and takes what they have. What it
/// takes counts as gained where its user could not have opened it: not for root.
fn help(until: Instant) {
    let (parent, before) = (std::process::id(), field::tasks(std::process::id()));
    let own = field::own_descriptors();
    let child = fork(|| {
        let _ = sys::end_with_parent();
        while Instant::now() < until {
            for thread in field::tasks(parent).into_iter().filter(|t| !before.contains(t)) {
                let rights: Vec<String> = field::loot(thread)
                    .iter()
                    .filter(|loot| !own.contains(&loot.what))
                    .filter_map(Loot::right)
                    .collect();
                if !rights.is_empty() && sys::own_user() != 0 {
                    rights.iter().for_each(|what| println!("gained by a helper: {what}"));
                    return 1;
                }
            }
        }
        0
    });
    // Whoever started the program ends it with its group; the helper ends with its parent.
    drop(child);
}

fn exhaust(rng: &mut Rng) {
    let _ = match rng.usize(..4) {
        0 => sys::limit(libc::RLIMIT_AS, (rng.usize(..256) as u64) << 20),
        1 => sys::limit(libc::RLIMIT_NOFILE, 3 + rng.usize(..8) as u64),
        2 => sys::limit(libc::RLIMIT_NPROC, rng.usize(..3) as u64),
        _ => sys::limit(libc::RLIMIT_DATA, (rng.usize(..64) as u64) << 20),
    };
}

/// A page of machine code: from wherever it is entered, it becomes root and makes a file.
fn intruder(file: &Path) -> Vec<u8> {
    let path = file.as_os_str().as_encoded_bytes();
    let mut code: Vec<u8> = vec![
        0x31, 0xff, 0x31, 0xf6, 0x31, 0xd2, // xor edi, edi; xor esi, esi; xor edx, edx
        0xb8, 117, 0, 0, 0, 0x0f, 0x05, // setresuid(0, 0, 0)
        0x48, 0x8d, 0x3d, 20, 0, 0, 0, // lea rdi, [path]
        0xbe, 0xb6, 1, 0, 0, // mov esi, 0666
        0xb8, 85, 0, 0, 0, 0x0f, 0x05, // creat
        0xb8, 24, 0, 0, 0, 0x0f, 0x05, // sched_yield
        0xeb, 0xf7, // again
    ];
    // The distance of the path from the end of `lea`.
    code[16] = u8::try_from(code.len() - 20).unwrap_or(0);
    code.extend_from_slice(path);
    code.push(0);
    let mut page = vec![0x90; 4096 - code.len()];
    page.extend(code);
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_intruder_fills_a_page_and_names_its_file() {
        let page = intruder(Path::new("/x/made-1"));
        assert_eq!(page.len(), 4096);
        let path = page.len() - b"/x/made-1\0".len();
        assert_eq!(&page[path..], b"/x/made-1\0");
        // `lea` ends 20 bytes into the code; what it adds leads to the path.
        let code = page.iter().position(|byte| *byte != 0x90).unwrap();
        assert_eq!(code + 20 + usize::from(page[code + 16]), path);
    }
}
