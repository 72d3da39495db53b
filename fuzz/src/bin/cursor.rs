//! See `hob_fuzz::cursor`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| hob_fuzz::cursor(data));
