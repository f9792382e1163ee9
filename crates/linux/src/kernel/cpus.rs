//! On which CPUs a thread may run, and keeping it on one.

use rustix::io;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// CPUs that this thread may run on, in ascending order; CPU 0 alone if the kernel does not say.
pub fn allowed_cpus() -> Vec<usize> {
    let Ok(allowed) = sched_getaffinity(None) else { return vec![0] };
    (0..CpuSet::MAX_CPU).filter(|&cpu| allowed.is_set(cpu)).collect()
}

/// The memory node of a CPU; 0 if the kernel does not say.
pub fn node_of(cpu: usize) -> usize {
    let entries = std::fs::read_dir(format!("/sys/devices/system/cpu/cpu{cpu}"));
    let names = entries.into_iter().flatten().flatten().map(|entry| entry.file_name());
    let node = |name: std::ffi::OsString| name.to_str()?.strip_prefix("node")?.parse().ok();
    names.filter_map(node).next().unwrap_or(0)
}

/// Keeps the calling thread on one CPU until it is dropped.
#[derive(Debug)]
pub struct OnCpu(CpuSet);

impl OnCpu {
    /// # Errors
    /// If this thread may not run there.
    pub fn new(cpu: usize) -> io::Result<OnCpu> {
        let on = OnCpu::anywhere()?;
        on.go(cpu)?;
        Ok(on)
    }

    /// The thread stays as free as it is until [`Self::go`].
    pub(crate) fn anywhere() -> io::Result<OnCpu> {
        sched_getaffinity(None).map(OnCpu)
    }

    /// From now on the thread is on this CPU; on an error it stays where it is.
    pub(crate) fn go(&self, cpu: usize) -> io::Result<()> {
        if cpu >= CpuSet::MAX_CPU {
            return Err(io::Errno::INVAL);
        }
        let mut only = CpuSet::new();
        only.set(cpu);
        sched_setaffinity(None, &only)
    }
}

impl Drop for OnCpu {
    fn drop(&mut self) {
        // Fails only if the cpuset changed meanwhile; then the kernel has chosen already.
        let _ = sched_setaffinity(None, &self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_as_free_afterwards_as_before() {
        let before = allowed_cpus();
        let on = OnCpu::new(before[0]).unwrap();
        assert_eq!(allowed_cpus(), before[..1]);
        drop(on);
        assert_eq!(allowed_cpus(), before);
        assert!(OnCpu::new(CpuSet::MAX_CPU).is_err());
        assert_eq!(allowed_cpus(), before);
    }
}
