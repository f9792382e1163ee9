//! The reader of machine files over arbitrary text.

#![no_main]

use huepage_sim::machine::Machine;

libfuzzer_sys::fuzz_target!(|text: &str| {
    if let Err(error) = Machine::parse(text) {
        assert!(!error.to_string().contains('\n'), "{error}");
    }
});
