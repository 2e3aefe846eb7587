//! The fuzz target `document`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_fuzz::bodies::document(data));
