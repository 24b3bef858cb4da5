//! libFuzzer entry point of `secagg_packing`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::targets::packing::run(data));
