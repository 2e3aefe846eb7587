//! Bundled filter servicetopology.
