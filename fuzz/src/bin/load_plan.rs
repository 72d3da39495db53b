//! See `hob_fuzz::load_plan`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| hob_fuzz::load_plan(data));
