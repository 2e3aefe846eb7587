//! Bundled filter forwardkubesvctraffic.
