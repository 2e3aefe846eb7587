//! Recorded reads.
