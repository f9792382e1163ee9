//! See `drmemtrace` of `src/lib.rs`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| huepage_fuzz::run("drmemtrace", bytes));
