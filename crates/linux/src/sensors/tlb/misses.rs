//! The misses of the TLB that a look stands for, whichever way they follow from it.

use super::replay::{ReplayedLook, part, replay};
use super::sensor::SensorLook;
use super::shape::TlbShape;
use super::turnover::late;
use crate::random::Shuffler;
use crate::sensors::superpage_map::SuperpageMap;

/// The misses that a look stands for.
pub(crate) fn misses(
    shape: &TlbShape,
    map: &SuperpageMap,
    look: &SensorLook,
    random: &mut Shuffler,
) -> ReplayedLook {
    if look.slow {
        return late(look.window, &look.sampled, random);
    }
    replay(shape, part(shape, map, &look.sampled), look.window, &look.sampled, random)
}
