//! weir.
