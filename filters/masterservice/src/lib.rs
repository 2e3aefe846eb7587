//! Bundled filter masterservice.
