//! See `hob_fuzz::pipeline_plan`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| hob_fuzz::pipeline_plan(data));
