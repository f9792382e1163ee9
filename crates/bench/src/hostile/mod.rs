//! Programs that attack whoever confines them, and the nest that starts many of them.
//!
//! A nest is one program with many children: one honest program that computes a known answer, and
//! adversaries, some at a time, each with an attack of its own. So one supervisor meets thousands of
//! them. An adversary waits until the supervisor's threads are in it, may give up root, attacks for a
//! moment and says what it gained.

pub mod attack;
pub mod field;
pub mod nest;
pub mod sys;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use attack::{Attack, AttackKind};

use crate::mix::Rng;
use crate::rights::NOBODY;

/// How long an adversary waits for the supervisor.
const WAIT: Duration = Duration::from_millis(600);

/// A violation on purpose: each checker must see its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Plant {
    /// A file in the directory of root's
    File,
    /// A thread that keeps root while its program gives it up
    Rights,
    /// A descriptor with a right
    Descriptor,
    /// A wrong answer of the honest program
    Answer,
    /// The supervisor dies
    Supervisor,
    /// The supervisor stands still
    Hang,
}

/// What an adversary is to do.
#[derive(clap::Args, Clone, Debug)]
pub struct AdversaryOrders {
    /// Its attack
    #[arg(long)]
    pub kind: AttackKind,
    /// Seed of its random numbers
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// A directory that only root may enter
    #[arg(long)]
    pub secret: PathBuf,
    /// Give up root once confined
    #[arg(long)]
    pub drop: bool,
    /// Milliseconds of attack
    #[arg(long, default_value_t = 100)]
    pub millis: u64,
    /// What it does wrong on purpose
    #[arg(long)]
    pub plant: Option<Plant>,
}

/// An adversary's life: prints `confined` if it was, then `gained WHAT` for all that it gained.
pub fn adversary(orders: &AdversaryOrders) {
    let _ = sys::end_with_parent();
    sys::ignore(libc::SIGPIPE);
    let mut rng = Rng::with_seed(orders.seed);
    let attack_time = Duration::from_millis(orders.millis);
    attack::prepare(orders.kind, &mut rng, Instant::now() + WAIT + attack_time);
    if wait_for_supervisor() {
        println!("confined");
    }
    plant(orders);
    std::thread::sleep(Duration::from_micros(rng.usize(..20_000) as u64));
    if orders.drop && sys::become_user(NOBODY).is_err() {
        println!("gained nothing: it cannot give up root");
    }
    let until = Instant::now() + attack_time;
    let mut attack = Attack { until, secret: orders.secret.clone(), rng, gained: Vec::new() };
    attack.run(orders.kind);
    attack.gained.sort();
    attack.gained.dedup();
    attack.gained.iter().for_each(|what| println!("gained {what}"));
    // Threads of the attack may hang in memory that nobody serves any more.
    crate::sys::exit_now(0);
}

/// Whether the supervisor's threads came; waits some time for them.
fn wait_for_supervisor() -> bool {
    let started = Instant::now();
    while started.elapsed() < WAIT {
        if field::threads().len() >= 2 {
            return true;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    false
}

/// Does on purpose what must not happen.
fn plant(orders: &AdversaryOrders) {
    match orders.plant {
        Some(Plant::File) => {
            let _ = std::fs::write(orders.secret.join("planted"), "");
        }
        Some(Plant::Rights) => {
            std::thread::spawn(|| {
                let _ = sys::name_thread(c"huepage-agent");
                std::thread::sleep(Duration::from_secs(5));
            });
            std::thread::sleep(Duration::from_millis(20));
            let _ = sys::become_user_alone(NOBODY);
            std::thread::sleep(Duration::from_millis(400));
        }
        Some(Plant::Descriptor) => {
            let device = std::fs::File::open("/dev/kmsg").map(std::os::fd::OwnedFd::from);
            let right = device.ok().map(field::Loot::of).and_then(|loot| loot.right());
            right.iter().for_each(|what| println!("gained {what}"));
        }
        Some(Plant::Answer | Plant::Supervisor | Plant::Hang) | None => {}
    }
}
