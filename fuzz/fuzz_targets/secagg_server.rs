//! libFuzzer entry point of `secagg_server`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::targets::server::run(data));
