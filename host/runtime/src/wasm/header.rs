//! What bytes are by their beginning, so that a file that is no component is refused by what it is and not by what a parser of
//! WebAssembly makes of it.

/// How each WebAssembly binary begins.
const WASM: &[u8] = b"\0asm";
/// How a core module goes on: version 1, layer 0. A component has layer 1.
const CORE: &[u8] = &[1, 0, 0, 0];
/// The beginnings of files that are given as modules by mistake.
const OTHERS: &[(&[u8], &str)] = &[
    (&[0x1f, 0x8b], "it is compressed with gzip: unpack it"),
    (&[0x28, 0xb5, 0x2f, 0xfd], "it is compressed with zstd: unpack it, or compress it with gzip"),
    (&[0xfd, b'7', b'z', b'X', b'Z'], "it is compressed with xz: unpack it, or compress it with gzip"),
    (b"BZh", "it is compressed with bzip2: unpack it, or compress it with gzip"),
    (b"PK", "it is a zip archive: give the component in it"),
    (b"\x7fELF", "it is a program or compiled code: give the component that it was made from"),
];

/// Returns why bytes are no WebAssembly component, judging by their first bytes, and what would be right.
#[must_use]
pub fn not_wasm(bytes: &[u8]) -> Option<&'static str> {
    match bytes.strip_prefix(WASM) {
        Some(rest) if rest.starts_with(CORE) => Some(
            "it is a core WebAssembly module, and no component: build it for wasm32-wasip2, or make a component of it with \
             `wasm-tools component new`",
        ),
        Some(_) => None,
        None if bytes.is_empty() => Some("it is empty: give a WebAssembly component"),
        None => Some(foreign(bytes)),
    }
}

fn foreign(bytes: &[u8]) -> &'static str {
    if let Some((_, what)) = OTHERS.iter().find(|(beginning, _)| bytes.starts_with(beginning)) {
        return what;
    }
    match str::from_utf8(bytes) {
        Ok(_) => "it is text: give a WebAssembly component",
        Err(_) => "it is no WebAssembly: give a component, which begins with \\0asm",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_component_is_named_by_what_it_is() {
        for (bytes, part) in [
            (&b""[..], "it is empty"),
            (b"name: a", "it is text"),
            (b"\0asm\x01\0\0\0\0", "a core WebAssembly module"),
            (b"\x1f\x8b\x08", "compressed with gzip"),
            (b"\x28\xb5\x2f\xfd", "compressed with zstd"),
            (b"PK\x03\x04", "a zip archive"),
            (b"\x7fELF", "a program or compiled code"),
            (b"\xff\xfe", "it is no WebAssembly"),
        ] {
            let reason = not_wasm(bytes).unwrap();
            assert!(reason.contains(part), "{reason}");
        }
        assert_eq!(not_wasm(b"\0asm\x0d\0\x01\0"), None);
    }
}
