//! See `hob_fuzz::proxy_request`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| hob_fuzz::proxy_request(data));
