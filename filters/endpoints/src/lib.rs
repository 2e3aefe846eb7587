//! Bundled filter endpoints.
