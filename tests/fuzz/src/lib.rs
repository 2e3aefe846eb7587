//! The functions of the fuzz targets. The tests of `weir-document` replay the corpus through them.

pub mod bodies;
pub mod scan;
