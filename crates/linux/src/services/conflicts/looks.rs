//! Whether lines of the pages in use are in the cache: told by timing them, or, where there is a PMU, by samples of
//! the process's own loads. A load that went past the nearest cache is a look at its page, which is right then:
//! who answered it is known. Samples come all the time, as few as what they cost allows.

use std::time::Duration;

use huepage_color::{CacheLevel, PAGE_BYTES, Vpn};
use huepage_policy::residency::Errors;

use super::Settings;
use crate::color::line_timer::ResidencyError;
use crate::kernel::pmu::loads::{LoadEvents, SECONDS_PER_SAMPLE};
use crate::kernel::pmu::{PmuError, PmuSample, Sampler};
use crate::kernel::process_memory::ProcessMemory;
use crate::kernel::procfs::ProcRoot;
use crate::sensors::residency::Watch;
use crate::services::pollute::SensorKind;

/// Time between two looks at the samples that came.
const PAUSE: Duration = Duration::from_millis(10);

/// Who tells; see the module's head.
pub(super) enum Looks {
    /// Lines that are timed.
    Timed(Box<Watch>),
    /// Loads that are sampled.
    Sampled(Box<SampledLoads>),
}

/// Why samples cannot be had, in the words of a watcher.
fn of_pmu(pid: i32, error: &PmuError) -> ResidencyError {
    if error.is_gone() {
        return ResidencyError::Gone(pid);
    }
    ResidencyError::NotSupported(error.to_string())
}

impl Looks {
    /// At a process, at no page yet.
    ///
    /// # Errors
    /// When the process has ended, or the kernel does not let us.
    pub fn open(pid: i32, settings: &Settings) -> Result<Looks, ResidencyError> {
        if settings.sensor == SensorKind::Pmu {
            return Ok(Looks::Sampled(Box::new(SampledLoads::open(pid, settings)?)));
        }
        let mut watch = Watch::open(pid, settings.cache_bytes, settings.cpu)?;
        watch.look_only_at(&[])?;
        Ok(Looks::Timed(Box::new(watch)))
    }

    /// Sleeps, then looks: pages, and whether a line of each was in the cache.
    ///
    /// # Errors
    /// When the process has ended.
    pub fn look(&mut self) -> Result<Vec<(Vpn, bool)>, ResidencyError> {
        match self {
            Looks::Timed(watch) => {
                let seen = watch.look()?;
                let page = |at: usize| watch.sampled_pages()[at].page;
                Ok(seen.into_iter().map(|(at, found)| (page(at), found)).collect())
            }
            Looks::Sampled(loads) => loads.look(),
        }
    }

    /// CPU time of the process when it was looked at last.
    pub fn ran(&self) -> Duration {
        match self {
            Looks::Timed(watch) => watch.ran(),
            Looks::Sampled(loads) => loads.ran,
        }
    }

    /// How often looks are wrong.
    pub fn errors(&self) -> Errors {
        match self {
            Looks::Timed(watch) => watch.errors(),
            Looks::Sampled(_) => Errors::default(),
        }
    }

    /// Only at these pages from now on, ascending.
    ///
    /// # Errors
    /// When the process has ended.
    pub fn look_only_at(&mut self, pages: &[Vpn]) -> Result<(), ResidencyError> {
        match self {
            Looks::Timed(watch) => {
                let same =
                    watch.sampled_pages().iter().map(|own| own.page).eq(pages.iter().copied());
                if same { Ok(()) } else { watch.look_only_at(pages) }
            }
            Looks::Sampled(loads) => {
                pages.clone_into(&mut loads.pages);
                Ok(())
            }
        }
    }

    /// The pages that are looked at have other frames now.
    ///
    /// # Errors
    /// When the process has ended.
    pub fn look_anew(&mut self) -> Result<(), ResidencyError> {
        match self {
            Looks::Timed(watch) => {
                let pages: Vec<Vpn> = watch.sampled_pages().iter().map(|own| own.page).collect();
                watch.look_only_at(&pages)
            }
            // Those that wait are of before.
            Looks::Sampled(loads) => loads.drain().map(|()| loads.samples.clear()),
        }
    }
}

/// Samples of the loads of a process.
pub(super) struct SampledLoads {
    pid: i32,
    root: ProcRoot,
    clock: ProcessMemory,
    ran: Duration,
    level: CacheLevel,
    sampler: Sampler,
    samples: Vec<PmuSample>,
    /// Those that are looked at, ascending.
    pages: Vec<Vpn>,
}

impl SampledLoads {
    fn open(pid: i32, settings: &Settings) -> Result<SampledLoads, ResidencyError> {
        let clock = ProcessMemory::open(pid).map_err(|_| ResidencyError::Gone(pid))?;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "as saturates")]
        let most = (settings.cpu / SECONDS_PER_SAMPLE) as u64;
        let opened = LoadEvents::here(settings.level).and_then(|events| events.open(pid, most));
        Ok(SampledLoads {
            pid,
            root: ProcRoot::default(),
            ran: clock.cpu_time(),
            clock,
            level: settings.level,
            sampler: opened.map_err(|error| of_pmu(pid, &error))?,
            samples: Vec::new(),
            pages: Vec::new(),
        })
    }

    fn drain(&mut self) -> Result<(), ResidencyError> {
        let drained = self.sampler.drain(&mut self.samples);
        drained.map(|_| ()).map_err(|error| of_pmu(self.pid, &error))
    }

    fn look(&mut self) -> Result<Vec<(Vpn, bool)>, ResidencyError> {
        std::thread::sleep(PAUSE);
        let ran = self.clock.cpu_time();
        if ran <= self.ran && self.root.stat(self.pid).is_ok_and(|stat| stat.is_dead()) {
            return Err(ResidencyError::Gone(self.pid));
        }
        self.ran = ran.max(self.ran);
        self.drain()?;
        let seen = looks(&self.samples, self.level, &self.pages);
        self.samples.clear();
        Ok(seen)
    }
}

/// The loads of some pages, ascending, that asked the cache of a level, and whether it had the line.
fn looks(samples: &[PmuSample], level: CacheLevel, pages: &[Vpn]) -> Vec<(Vpn, bool)> {
    let look = |sample: &PmuSample| {
        let missed = sample.source.served()?.missed(level)?;
        let page = Vpn(sample.address / PAGE_BYTES);
        pages.binary_search(&page).is_ok().then_some((page, !missed))
    };
    samples.iter().filter_map(look).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::pmu::DataSource;
    use crate::kernel::pmu::stream_tests::load;

    #[test]
    fn loads_of_the_pages_in_use_that_asked_the_cache_are_looks() {
        let near = PmuSample { source: DataSource(0x02 | (0x02 | 0x08) << 5), ..load(4, false) };
        let samples = [load(3, true), load(4, false), near, load(5, true), load(4, true)];
        let seen = looks(&samples, CacheLevel::L2, &[Vpn(3), Vpn(4)]);
        assert_eq!(seen, [(Vpn(3), false), (Vpn(4), true), (Vpn(4), false)]);
        assert!(looks(&samples, CacheLevel::L2, &[]).is_empty());
    }
}
