//! The generated host side of `wit/`. Every import may trap: an invalid handle, an undeclared lookup and an unreadable
//! object end the call.

#![allow(
    missing_docs,
    unreachable_pub,
    clippy::all,
    clippy::panic,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "generated code"
)]

wasmtime::component::bindgen!({
    path: "../../wit",
    world: "filter",
    imports: { default: trappable },
    exports: { default: async },
    with: {
        "weir:filter/objects.object": crate::wasm::state::ObjectHandle,
        "weir:filter/objects.path": crate::wasm::state::PathHandle,
        "weir:filter/objects.string-set": crate::wasm::state::StringSetHandle,
        "weir:filter/cluster.selection": crate::wasm::state::SelectionHandle,
    },
});
