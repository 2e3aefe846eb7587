//! module.
