//! The fuzz target `protobuf-frame`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_fuzz::bodies::protobuf::frame(data));
