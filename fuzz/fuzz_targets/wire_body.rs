//! libFuzzer entry point of `wire_body`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::targets::wire_body::run(data));
