//! Hostile guests: `tests/hostile/*.wat`, which the build script makes into components.

use std::path::Path;

/// The component of a hostile guest, by its file name without `.wat`.
#[must_use]
pub fn hostile(name: &str) -> Vec<u8> {
    let path = Path::new(env!("WEIR_HOSTILE_GUESTS")).join(format!("{name}.wasm"));
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
