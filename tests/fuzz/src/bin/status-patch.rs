//! The fuzz target `status-patch`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_fuzz::bodies::status_patch(data));
