//! libFuzzer entry point of `learning_partition`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::targets::partition::run(data));
