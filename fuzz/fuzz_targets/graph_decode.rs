//! libFuzzer entry point of `graph_decode`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::targets::graph_decode::run(data));
