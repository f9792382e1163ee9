//! Samples of one process: all threads, those it has and those it starts, through one ring buffer per CPU.
//!
//! A sampler tells which addresses were seen, not how often: a period of 1000 gives one access in a
//! thousand, and none while the kernel throttles or the ring is full, both of which are reported. Processes
//! that the target starts are not watched: they need samplers of their own. Samples of the kernel's accesses,
//! and those without an address, are counted and left out.

use std::io;

use perf_event::{Builder, Counter};

use super::event::{Event, Pace};
use super::file::FileSamples;
use super::ring::{self, Found, PmuSample};
use super::{PmuError, Wanted};
use crate::kernel::machine::{CpuList, SysRoot};
use crate::kernel::procfs::ProcRoot;

/// Bytes of the ring of one CPU: some 2700 samples.
pub(crate) const RING_BYTES: usize = 128 << 10;
/// `PERF_EVENT_IOC_SET_OUTPUT`: `_IO('$', 5)`.
const SET_OUTPUT: libc::Ioctl = 0x2405;

/// What was taken from the rings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drained {
    /// Samples appended.
    pub samples: u64,
    /// Samples that the kernel dropped because a ring was full. It tells with the next sample that
    /// it writes there, so the last losses come late.
    pub lost: u64,
    /// Samples left out: of the kernel, without an address, or of another kind than wanted (IBS samples
    /// every operation).
    pub unusable: u64,
    /// How often the kernel paused a thread's samples until the next tick: the period is too short.
    pub throttled: u64,
}

impl Drained {
    /// Notes what a record says; a sample is appended if it is wanted.
    pub(crate) fn note(
        &mut self,
        found: Found,
        wanted: fn(&PmuSample) -> bool,
        out: &mut Vec<PmuSample>,
    ) {
        match found {
            Found::Sample(sample) if wanted(&sample) => {
                out.push(sample);
                self.samples += 1;
            }
            Found::Sample(_) | Found::Unusable => self.unusable += 1,
            Found::Lost(n) => self.lost += n,
            Found::Throttled => self.throttled += 1,
            Found::Other => {}
        }
    }

    /// Every record that the kernel wrote for a sample: each has cost an interrupt.
    pub const fn taken(&self) -> u64 {
        self.samples + self.unusable + self.lost
    }
}

impl std::ops::AddAssign for Drained {
    fn add_assign(&mut self, more: Drained) {
        self.samples += more.samples;
        self.lost += more.lost;
        self.unusable += more.unusable;
        self.throttled += more.throttled;
    }
}

/// See the module's head. Closed when dropped.
pub struct Sampler {
    ring_bytes: usize,
    wanted: fn(&PmuSample) -> bool,
    /// One for each CPU, with the event that holds it open.
    rings: Vec<(u32, perf_event::Sampler)>,
    /// The other events, which write to the ring of their CPU, and those that help.
    others: Vec<Counter>,
    /// The file that has the samples, in place of any event.
    file: Option<FileSamples>,
}

impl Sampler {
    /// Samples a process by events that open here, from now on. Takes a file per thread, CPU and event, and
    /// 4 KiB more than `ring_bytes` per CPU.
    ///
    /// # Errors
    /// When the process has ended, the user may not, or there are not enough open files.
    pub(crate) fn open(
        of: Wanted,
        pid: i32,
        events: &[Event],
        pace: Pace,
        ring_bytes: usize,
        wanted: fn(&PmuSample) -> bool,
    ) -> Result<Sampler, PmuError> {
        let threads = ProcRoot::default().tasks(pid)?;
        let cpus = SysRoot::default().text("devices/system/cpu/online");
        let cpus = cpus.and_then(|t| CpuList::parse(&t)).unwrap_or_else(|| CpuList(vec![0])).0;
        let (rings, others) = (Vec::new(), Vec::new());
        let mut sampler = Sampler { ring_bytes, wanted, rings, others, file: None };
        let sizes = [threads.len(), cpus.len()];
        for &cpu in &cpus {
            let opened = sampler.open_cpu(cpu, &threads, events, pace);
            opened.map_err(|(what, source)| PmuError::closed(of, what, sizes, source))?;
        }
        if sampler.rings.is_empty() {
            return Err(PmuError::gone(pid));
        }
        let enabled = sampler.enable();
        enabled.map_err(|source| PmuError::Kernel { of, what: "start a perf event", source })?;
        Ok(sampler)
    }

    /// Samples a process by the file that was named, from now on.
    ///
    /// # Errors
    /// When the process has ended, or there is no such file.
    pub(crate) fn of_file(pid: i32, wanted: fn(&PmuSample) -> bool) -> Result<Sampler, PmuError> {
        let file = Some(FileSamples::open(pid)?);
        Ok(Sampler { ring_bytes: 0, wanted, rings: Vec::new(), others: Vec::new(), file })
    }

    /// Opens the events of all threads on a CPU; threads that have ended are left out, and so is a
    /// CPU that is offline.
    fn open_cpu(
        &mut self,
        cpu: u32,
        threads: &[i32],
        events: &[Event],
        pace: Pace,
    ) -> Result<(), Failed> {
        let here = |e: &&Event| e.cpus.as_ref().is_none_or(|cpus| cpus.0.contains(&cpu));
        for event in events.iter().filter(here) {
            for &thread in threads {
                let aim = |builder: &mut Builder<'static>| {
                    builder.one_cpu(cpu as usize).inherit(true).inherit_thread(true);
                    builder.observe_pid(thread);
                };
                match event.open(pace, aim) {
                    Ok((counter, helper)) => {
                        self.others.extend(helper);
                        self.add(cpu, counter)?;
                    }
                    Err(e) if matches!(e.raw_os_error(), Some(libc::ESRCH | libc::ENODEV)) => {}
                    Err(source) => return Err(("open a perf event", source)),
                }
            }
        }
        Ok(())
    }

    /// The first event of a CPU brings the ring, the others write to it.
    fn add(&mut self, cpu: u32, counter: Counter) -> Result<(), Failed> {
        match self.rings.last() {
            Some((of, ring)) if *of == cpu => {
                redirect(&counter, ring).map_err(|source| ("share a perf ring", source))?;
                self.others.push(counter);
            }
            _ => {
                let ring = counter.sampled(self.ring_bytes);
                self.rings.push((cpu, ring.map_err(|source| ("map a perf ring", source))?));
            }
        }
        Ok(())
    }

    fn enable(&mut self) -> io::Result<()> {
        let rings = self.rings.iter_mut().map(|(_, ring)| ring.as_counter_mut());
        rings.chain(self.others.iter_mut()).try_for_each(Counter::enable)
    }

    /// Appends the samples since the last call that are wanted, in the order of time on each CPU. Does not
    /// block. Costs some tens of nanoseconds per record; it must be called before a ring is full, which is
    /// after some 2700 samples on one CPU: what comes after that is lost.
    ///
    /// # Errors
    /// [`PmuError::Malformed`] if the kernel's records are not as documented.
    pub fn drain(&mut self, out: &mut Vec<PmuSample>) -> Result<Drained, PmuError> {
        let mut drained = Drained::default();
        if let Some(file) = &mut self.file {
            file.drain(|found| drained.note(found, self.wanted, out))?;
        }
        for (_, ring) in &mut self.rings {
            ring::drain(ring, self.ring_bytes, |found| drained.note(found, self.wanted, out))?;
        }
        Ok(drained)
    }
}

/// What was tried, and what the kernel said.
type Failed = (&'static str, io::Error);

/// Has an event write to the ring of another one.
fn redirect(counter: &Counter, ring: &perf_event::Sampler) -> io::Result<()> {
    use std::os::fd::AsRawFd as _;
    // SAFETY: both descriptors are open events; the call takes no pointer.
    let result = unsafe { libc::ioctl(counter.as_raw_fd(), SET_OUTPUT, ring.as_raw_fd()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
