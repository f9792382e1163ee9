//! Orders for a member's thread, which may sleep in poll(2): a bell rings with each.

use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use super::MemberOrder;
use crate::kernel::bell::Bell;
use crate::kernel::wait::wait;

/// How long a sleep without a bell is.
const WITHOUT_BELL: Duration = Duration::from_millis(20);

/// Where orders are given.
#[derive(Clone, Debug)]
pub struct Orders {
    sender: Sender<MemberOrder>,
    bell: Arc<Bell>,
}

/// Where they arrive.
pub struct Inbox {
    receiver: Receiver<MemberOrder>,
    bell: Arc<Bell>,
}

/// Both ends.
pub fn order_channel() -> (Orders, Inbox) {
    let ((sender, receiver), bell) = (channel(), Arc::new(Bell::default()));
    (Orders { sender, bell: Arc::clone(&bell) }, Inbox { receiver, bell })
}

impl Orders {
    /// Gives an order; whether anybody is there to obey.
    pub fn send(&self, order: MemberOrder) -> bool {
        let sent = self.sender.send(order).is_ok();
        self.bell.ring();
        sent
    }

    /// Wakes the thread, which looks for itself what is to be done.
    pub fn ring(&self) {
        self.bell.ring();
    }
}

impl Inbox {
    /// An order that is there.
    pub fn next(&self) -> Option<MemberOrder> {
        self.receiver.try_recv().ok()
    }

    /// The order that comes within this time; `Disconnected`, after as long, if nobody gives orders any more.
    pub fn next_within(&self, time: Duration) -> Result<MemberOrder, RecvTimeoutError> {
        let order = self.receiver.recv_timeout(time);
        if order.as_ref().is_err_and(|error| *error == RecvTimeoutError::Disconnected) {
            std::thread::sleep(time);
        }
        order
    }

    /// Sleeps until the bell rings, a descriptor is readable or closed at its other end, or for so long. Whether
    /// there may be an order is not said.
    pub fn sleep(&self, descriptor: RawFd, longest: Duration) {
        let also = (descriptor, libc::POLLIN);
        match self.bell.descriptor() {
            Some(bell) => wait(&[also, (bell, libc::POLLIN)], longest),
            None => wait(&[also], longest.min(WITHOUT_BELL)),
        }
        self.bell.hush();
    }
}
