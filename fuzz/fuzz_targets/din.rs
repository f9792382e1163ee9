//! The reader of Dinero's text over arbitrary bytes.

#![no_main]

mod drain;

use huepage_sim::trace::Format;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| drain::drain(bytes, Format::Din));
