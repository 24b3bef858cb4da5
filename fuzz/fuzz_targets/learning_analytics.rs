//! libFuzzer entry point of `learning_analytics`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::targets::analytics::run(data));
