//! See `hob_fuzz::schema`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| hob_fuzz::schema(data));
