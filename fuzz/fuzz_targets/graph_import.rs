//! libFuzzer entry point of `graph_import`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::targets::graph_import::run(data));
