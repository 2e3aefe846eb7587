//! The fuzz target `path`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_fuzz::bodies::path(data));
