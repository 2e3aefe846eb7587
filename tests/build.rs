//! Builds components from the hostile guests in `hostile/*.wat` for the tests.

use std::path::Path;

use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
use wit_parser::Resolve;

/// The functions of wasi:cli that a hostile guest imports.
const WASI_CLI: &str = "package wasi:cli@0.2.6;\ninterface exit { exit: func(status: result); }\n";

/// What timers are.
const WASI_IO: &str = "package wasi:io@0.2.6;\ninterface poll { resource pollable; }\n";

/// The function of wasi:clocks that a hostile guest imports.
const WASI_CLOCKS: &str = "package wasi:clocks@0.2.6;\ninterface monotonic-clock {
  use wasi:io/poll@0.2.6.{pollable};
  subscribe-duration: func(when: u64) -> pollable;
}\n";

type Failed = Box<dyn std::error::Error>;

fn main() -> Result<(), Failed> {
    println!("cargo::rerun-if-changed=hostile");
    println!("cargo::rerun-if-changed=../wit");
    let out = std::env::var("OUT_DIR")?;
    println!("cargo::rustc-env=WEIR_HOSTILE_GUESTS={out}");
    for entry in std::fs::read_dir("hostile")? {
        let path = entry?.path();
        let (Some(name), true) = (path.file_stem(), path.extension().is_some_and(|extension| extension == "wat"))
        else {
            continue;
        };
        let component = component(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        std::fs::write(Path::new(&out).join(name).with_extension("wasm"), component)?;
    }
    Ok(())
}

fn component(path: &Path) -> Result<Vec<u8>, Failed> {
    let text = std::fs::read_to_string(path)?;
    let mut module = wat::parse_str(&text)?;
    if text.lines().any(|line| line.starts_with("(component")) {
        return Ok(module);
    }
    let mut resolve = Resolve::default();
    for (name, text) in [("cli.wit", WASI_CLI), ("io.wit", WASI_IO), ("clocks.wit", WASI_CLOCKS)] {
        resolve.push_str(name, text)?;
    }
    resolve.push_dir("../wit")?;
    let package = resolve.push_file("hostile/hostile.wit")?;
    let world = resolve.select_world(&[package], Some("hostile"))?;
    embed_component_metadata(&mut module, &resolve, world, StringEncoding::UTF8)?;
    Ok(ComponentEncoder::default().module(&module)?.validate(true).encode()?)
}
