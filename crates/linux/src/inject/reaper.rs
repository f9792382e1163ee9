//! While this thread begins to trace the threads of a process, one after the other, one of them may
//! call execve(2). The kernel then ends all the others, waits until the tracer of each has learnt of
//! its end, and keeps everybody from beginning to trace the process until then: a tracer that has
//! some threads already and waits for the next one would wait for itself, for good. So another
//! thread of ours learns of those ends meanwhile.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use super::ptrace::Tracee;

/// How often it is looked for threads that have ended. To begin to trace one takes microseconds, so that
/// hardly ever a look is needed.
const LOOK_INTERVAL: Duration = Duration::from_millis(2);

/// See the module's head. It ends with the last look when it is dropped.
#[derive(Default)]
pub(super) struct Reaper {
    traced: Arc<Mutex<Vec<Tracee>>>,
    /// The thread, and what ends it; started when there is a second thread to trace.
    looking: Option<(Sender<()>, JoinHandle<()>)>,
}

impl Reaper {
    /// To be told of a thread before this one begins to trace it. `process` is the thread's; the end of
    /// its leader is not waited for by the kernel, and is its parent's to hear of.
    pub fn watch(&mut self, thread: Tracee, process: i32) {
        let mut traced = self.traced.lock().unwrap_or_else(PoisonError::into_inner);
        let alone = traced.is_empty();
        if thread.tid != process {
            traced.push(thread);
        }
        drop(traced);
        if !alone && self.looking.is_none() {
            self.looking = self.start();
        }
    }

    /// None where no thread can be had: all but the rare case goes well without.
    fn start(&self) -> Option<(Sender<()>, JoinHandle<()>)> {
        let (stop, stopped) = channel();
        let traced = Arc::clone(&self.traced);
        let look = move || {
            while stopped.recv_timeout(LOOK_INTERVAL) == Err(RecvTimeoutError::Timeout) {
                let traced = traced.lock().unwrap_or_else(PoisonError::into_inner);
                traced.iter().for_each(|thread| thread.collect_end());
            }
        };
        Some((stop, Builder::new().name("reaper".into()).spawn(look).ok()?))
    }
}

impl Drop for Reaper {
    fn drop(&mut self) {
        if let Some((stop, thread)) = self.looking.take() {
            drop(stop);
            // A panic there was printed already.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt as _;
    use std::process::{Child, Command, Stdio};
    use std::sync::mpsc::channel;
    use std::time::Instant;

    use super::super::InjectError;
    use super::super::hold::Hold;
    use super::*;
    use crate::kernel::procfs::ProcRoot;
    use crate::kernel::testing::live;

    /// Many, so that one of them calls execve(2) while others are being traced.
    const THREADS: usize = 40;
    const HOLDS: u32 = 200;
    /// Longer than all holds take on a machine with much to do.
    const LONGEST: Duration = Duration::from_secs(120);

    fn executing() -> Command {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        let name = "inject::reaper::tests::a_process_of_many_threads_that_executes_itself";
        command.args(["--ignored", "--exact", name, "--nocapture"]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command
    }

    #[test]
    #[ignore = "it never ends by itself: the next test starts and kills it"]
    fn a_process_of_many_threads_that_executes_itself() {
        for _ in 0..THREADS {
            std::thread::spawn(|| std::thread::sleep(Duration::from_secs(3600)));
        }
        // The youngest thread, which is traced last.
        let last = std::thread::spawn(|| {
            std::thread::sleep(Duration::from_millis(3));
            executing().exec()
        });
        panic!("{}", last.join().expect("no panic"));
    }

    struct Executing(Child);

    impl Drop for Executing {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    /// Holds a process again and again; how often all went well.
    fn hold_often(pid: i32) -> Result<u32, InjectError> {
        let (root, mut held) = (ProcRoot::default(), 0);
        for _ in 0..HOLDS {
            match Hold::on(&root, &[pid]) {
                Ok(hold) => held += u32::from(!hold.is_empty()),
                // The latter where another test holds somebody.
                Err(InjectError::Gone(_) | InjectError::Stuck(_)) => {}
                Err(other) => return Err(other),
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(held)
    }

    #[test]
    fn a_process_that_executes_another_program_meanwhile_holds_nobody_up() {
        let child = Executing(executing().spawn().expect("this program"));
        let pid = child.0.id().cast_signed();
        let (done, is_done) = channel();
        let start = Instant::now();
        std::thread::spawn(move || done.send(hold_often(pid)));
        let held = is_done.recv_timeout(LONGEST).expect("who traces it waits for itself");
        let Some(held) = live("a_process_that_executes_another_program_meanwhile", held) else {
            return;
        };
        assert!(held > 0, "never held in {:?}", start.elapsed());
    }
}
