//! libFuzzer entry point of `secagg_message`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::targets::messages::run(data));
