//! Judges a module by its imports and exports before anything of it runs, so that a refusal names the interface.

use wasmtime::component::Component;
use wasmtime::component::types::ComponentItem;

use super::engine::Engine;
use super::wasi;

/// Interfaces of the contract that a filter may import, and the one it must export.
const CONTRACT: &[&str] = &["weir:filter/objects", "weir:filter/cluster", "weir:filter/node", "weir:filter/log"];
const EXPORT: &str = "weir:filter/module";

/// Why a module was refused unseen.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refused {
    /// It asks for something that filters do not get: files, sockets, another host's interface.
    #[error("it imports {0}, which a filter may not have")]
    Import(String),
    /// It does not export the filter interface: a module of another world, or a library.
    #[error("it does not export {EXPORT}: it is not a Weir filter{0}")]
    World(String),
}

/// Says whether a component's imports are all ones that a filter may have, and whether it exports a filter.
///
/// # Errors
/// With the first import that is not allowed, or when the export is missing.
pub(super) fn approve(engine: &Engine, component: &Component) -> Result<(), Refused> {
    let component = component.component_type();
    for (name, item) in component.imports(engine.inner()) {
        let interface = name.split_once('@').map_or(name, |(interface, _)| interface);
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
