//! See `hob_fuzz::lua_library`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| hob_fuzz::lua_library(data));
