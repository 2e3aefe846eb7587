//! Bundled filter discardcloudservice.
