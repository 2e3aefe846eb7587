//! Hostile guests: `tests/hostile/*.wat`, made into components by the build script.

use std::path::Path;

/// A hostile guest as a component, by its file's name without `.wat`.
#[must_use]
pub fn hostile(name: &str) -> Vec<u8> {
    let path = Path::new(env!("WEIR_HOSTILE_GUESTS")).join(format!("{name}.wasm"));
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
