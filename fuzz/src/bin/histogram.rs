//! See `hob_fuzz::histogram`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| hob_fuzz::histogram(data));
