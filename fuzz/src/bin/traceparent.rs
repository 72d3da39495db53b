//! See `hob_fuzz::traceparent`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| hob_fuzz::traceparent(data));
