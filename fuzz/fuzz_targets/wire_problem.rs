//! libFuzzer entry point of `wire_problem`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::targets::wire_problem::run(data));
