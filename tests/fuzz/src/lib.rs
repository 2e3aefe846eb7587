//! The bodies of the fuzz targets. `weir-document` replays the corpus through the same ones in its tests.

pub mod bodies;
