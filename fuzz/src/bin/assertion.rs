//! See `hob_fuzz::assertion`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| hob_fuzz::assertion(data));
