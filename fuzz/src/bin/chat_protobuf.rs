//! See `hob_fuzz::chat_protobuf`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| hob_fuzz::chat_protobuf(data));
