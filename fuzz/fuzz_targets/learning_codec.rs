//! libFuzzer entry point of `learning_codec`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::targets::codec::run(data));
