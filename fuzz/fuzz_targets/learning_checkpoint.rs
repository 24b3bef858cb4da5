//! libFuzzer entry point of `learning_checkpoint`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::targets::checkpoint::run(data));
