//! The fuzz target `scan`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_fuzz::scan::scan(data));
