//! libFuzzer entry point of `secagg_restore`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::targets::restore::run(data));
