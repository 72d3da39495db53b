//! See `hob_fuzz::chat_frame`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| hob_fuzz::chat_frame(data));
