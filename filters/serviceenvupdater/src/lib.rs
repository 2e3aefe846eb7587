//! Bundled filter serviceenvupdater.
