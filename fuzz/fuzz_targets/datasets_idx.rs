//! libFuzzer entry point of `datasets_idx`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::targets::idx::run(data));
