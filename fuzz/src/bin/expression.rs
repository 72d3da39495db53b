//! See `hob_fuzz::expression`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| hob_fuzz::expression(data));
