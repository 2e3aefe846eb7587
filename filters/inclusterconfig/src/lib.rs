//! Bundled filter inclusterconfig.
