//! Bundled filter nodeportaddresses.
