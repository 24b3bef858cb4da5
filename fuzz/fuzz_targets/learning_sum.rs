//! libFuzzer entry point of `learning_sum`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::targets::sum::run(data));
