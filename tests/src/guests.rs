//! Hostile guests: `tests/hostile/*.wat`, made into components.

use std::path::PathBuf;

use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
use wit_parser::Resolve;

use crate::built::workspace;

/// The little of wasi:cli that a hostile guest imports.
const WASI_CLI: &str = "package wasi:cli@0.2.6;\ninterface exit { exit: func(status: result); }\n";

/// A hostile guest as a component, by its file's name without `.wat`.
#[must_use]
pub fn hostile(name: &str) -> Vec<u8> {
    let path = folder().join(format!("{name}.wat"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut module = wat::parse_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    if text.lines().any(|line| line.starts_with("(component")) {
        return module;
    }
    let mut resolve = Resolve::default();
    resolve.push_str("cli.wit", WASI_CLI).expect("the stand-in for wasi:cli parses");
    resolve.push_dir(workspace().join("wit")).expect("wit/ parses");
    let package = resolve.push_path(folder().join("hostile.wit")).expect("hostile.wit parses").0;
    let world = resolve.select_world(&[package], Some("hostile")).expect("the hostile world is there");
    embed_component_metadata(&mut module, &resolve, world, StringEncoding::UTF8).expect("metadata can be embedded");
    ComponentEncoder::default()
        .module(&module)
        .and_then(|encoder| encoder.validate(true).encode())
        .unwrap_or_else(|error| panic!("{}: {error:#}", path.display()))
}

fn folder() -> PathBuf {
    workspace().join("tests").join("hostile")
}
