//! libFuzzer entry point of `wire_certificate`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::targets::certificate::run(data));
