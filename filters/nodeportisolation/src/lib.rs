//! Bundled filter nodeportisolation.
