//! Hostile guests: `tests/hostile/*.wat`, which the build script makes into components.

use std::path::Path;

/// The component of a hostile guest, by its file name without `.wat`.
#[must_use]
pub fn hostile(name: &str) -> Vec<u8> {
    let path = Path::new(env!("WEIR_HOSTILE_GUESTS")).join(format!("{name}.wasm"));
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The same component with other bytes: it has one more custom section, which means nothing.
///
/// # Panics
/// Never: the section is short.
#[must_use]
pub fn variant(component: &[u8], number: u8) -> Vec<u8> {
    let name = b"variant";
    let length = u8::try_from(name.len()).unwrap();
    [component, &[0, length + 2, length], name, &[number]].concat()
}
