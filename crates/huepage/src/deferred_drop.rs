//! Values whose end may wait for a process: they end on threads of their own, so that nobody else waits.

use std::sync::mpsc::channel;
use std::time::Duration;

/// Drops a value on a thread of its own.
pub fn drop_behind<T: Send + 'static>(value: T) {
    std::thread::spawn(move || drop(value));
}

/// Drops a value on a thread of its own, and waits so long for it; whether it ended in time.
pub fn drop_within<T: Send + 'static>(value: T, limit: Duration) -> bool {
    let (done, ended) = channel();
    std::thread::spawn(move || {
        drop(value);
        let _ = done.send(());
    });
    ended.recv_timeout(limit).is_ok()
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::Receiver;

    use super::*;

    #[test]
    fn what_does_not_end_is_not_waited_for() {
        struct Slow(Receiver<()>);
        impl Drop for Slow {
            fn drop(&mut self) {
                let _ = self.0.recv();
            }
        }
        let (go_on, waits) = channel();
        assert!(!drop_within(Slow(waits), Duration::from_millis(20)));
        go_on.send(()).unwrap();
        assert!(drop_within(1, Duration::from_secs(60)));
    }
}
