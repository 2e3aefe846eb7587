//! The fuzz target `protobuf-document`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_fuzz::bodies::protobuf::document(data));
