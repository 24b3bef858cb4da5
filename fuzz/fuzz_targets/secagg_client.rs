//! libFuzzer entry point of `secagg_client`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::targets::client::run(data));
