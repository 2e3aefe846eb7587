//! Checks the imports and exports of a module before any of its code runs, so that an error names the interface.

use wasmtime::component::Component;
use wasmtime::component::types::ComponentItem;

use super::engine::Engine;
use super::wasi;

/// The interfaces of the contract that a filter may import. It must export [`EXPORT`].
const CONTRACT: &[&str] = &["weir:filter/objects", "weir:filter/cluster", "weir:filter/node", "weir:filter/log"];
const EXPORT: &str = "weir:filter/module";

/// The reason why a module was refused before it ran.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refused {
    /// It imports an interface that filters cannot use: HTTP, or an interface of another host.
    #[error("it imports {0}, which a filter may not have{hint}", hint = hint(.0))]
    Import(String),
    /// It imports WASI of another version than 0.2: Weir serves 0.2 alone.
    #[error(
        "it imports {0}, and Weir serves WASI 0.2: build it with tools for WASI 0.2, such as the Rust target wasm32-wasip2"
    )]
    Wasi(String),
    /// It does not export the filter interface. It is a module for another world, or a library.
    #[error("it does not export {EXPORT}: it is not a Weir filter{0}")]
    World(String),
}

/// What to do about an import.
fn hint(import: &str) -> &'static str {
    if import.starts_with("wasi:http/") {
        return ". Filters send no requests: look objects up by weir:filter/cluster, and build the module without HTTP \
                (componentize-js: disableFeatures: ['http', 'fetch-event'])";
    }
    ""
}

/// Whether a version of WASI is one that Weir serves. An import without one is judged by its interface.
fn is_served(version: &str) -> bool {
    version.is_empty() || version.starts_with("0.2.")
}

/// Checks that a filter may have all imports of a component, and that the component exports a filter.
///
/// # Errors
/// Names the first import that is not allowed, or the missing export.
pub(super) fn approve(engine: &Engine, component: &Component) -> Result<(), Refused> {
    let component = component.component_type();
    for (name, item) in component.imports(engine.inner()) {
        let (interface, version) = name.split_once('@').unwrap_or((name, ""));
        if interface.starts_with("wasi:") && !is_served(version) {
            return Err(Refused::Wasi(name.to_owned()));
        }
        let types_only = matches!(&item.ty, ComponentItem::ComponentInstance(instance)
            if instance.exports(engine.inner()).all(|(_, export)| matches!(export.ty, ComponentItem::Type(_))));
        if !CONTRACT.contains(&interface) && !wasi::INTERFACES.contains(&interface) && !types_only {
            return Err(Refused::Import(name.to_owned()));
        }
    }
    let exports: Vec<_> = component.exports(engine.inner()).map(|(name, _)| name.to_owned()).collect();
    if exports.iter().any(|name| name.starts_with(EXPORT)) {
        return Ok(());
    }
    Err(Refused::World(match exports.first() {
        None => " (it exports nothing)".to_owned(),
        Some(first) => format!(" (it exports {first})"),
    }))
}
