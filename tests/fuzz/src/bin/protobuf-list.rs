//! The fuzz target `protobuf-list`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_fuzz::bodies::protobuf::list(data));
