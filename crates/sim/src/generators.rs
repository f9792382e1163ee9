//! Synthetic address streams with known answers: what simulators are compared on.
//!
//! Both mix sequential 8-byte steps through 32 MiB, random places in 64 MiB and random places
//! in a small hot region; every fourth access is a store. They are made by one xorshift
//! sequence from a fixed start, so that every tool sees the same addresses.

use crate::record::{AccessKind, Record};

/// How the three regions are mixed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mix {
    /// Half sequential, a quarter random, a quarter in a hot region of 256 KiB: mostly misses
    /// of a first level of 32 KiB. 5,488,175 misses there in 10 million accesses.
    MissHeavy,
    /// A fifth sequential, a tenth random, the rest in a hot region of 16 KiB: mostly hits.
    /// 1,324,127 misses there in 10 million accesses.
    Hot,
}

const SEQUENTIAL: (u64, u64) = (0x1000_0000, 32 << 20);
const RANDOM: (u64, u64) = (0x2000_0000, 64 << 20);
const HOT: u64 = 0x4000_0000;

/// The stream of a mix; it never ends.
#[derive(Clone, Debug)]
pub struct MixStream {
    mix: Mix,
    state: u64,
    step: u64,
}

impl MixStream {
    /// From the beginning.
    pub const fn new(mix: Mix) -> MixStream {
        MixStream { mix, state: 0x9e37_79b9_7f4a_7c15, step: 0 }
    }

    fn word(&mut self) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.state
    }
}

impl Iterator for MixStream {
    type Item = Record;

    fn next(&mut self) -> Option<Record> {
        let word = self.word();
        let (part, store, hot) = match self.mix {
            Mix::MissHeavy => {
                let part = [0, 0, 1, 2][(word >> 60 & 3) as usize];
                (part, word >> 58 & 3 == 0, 256 << 10)
            }
            Mix::Hot => {
                let tenth = (word >> 55) % 10;
                let part = if tenth < 2 { 0 } else { 1 + u64::from(tenth > 2) };
                (part, word >> 50 & 3 == 0, 16 << 10)
            }
        };
        let within = |size: u64| word & (size - 1) & !7;
        let address = match part {
            0 => {
                self.step += 8;
                SEQUENTIAL.0 + (self.step - 8) % SEQUENTIAL.1
            }
            1 => RANDOM.0 + within(RANDOM.1),
            _ => HOT + within(hot),
        };
        Some(Record::plain(address, if store { AccessKind::Store } else { AccessKind::Load }))
    }
}
