//! The SDK for Weir filters in Rust.
//!
//! Built for `wasm32-wasip2`, a filter runs in the daemon and uses the contract in `wit/`. Built for the development
//! machine, the same filter runs on `weir-document`, the daemon's document engine, in an environment that the test
//! provides. Plain `cargo test` therefore tests it: see [`mod@cases`] and [`native`].
//!
//! A complete filter, which hides objects with an annotation:
//!
//! ```
//! use serde::Deserialize;
//! use weir_filter::{Error, Filter, Object, Plan, Verdict};
//!
//! #[derive(Deserialize)]
//! #[serde(deny_unknown_fields)]
//! struct HideMarked {
//!     annotation: String,
//! }
//!
//! impl Filter for HideMarked {
//!     type Settings = Self;
//!
//!     fn configure(settings: Self) -> Result<Self, Error> {
//!         Ok(settings)
//!     }
//!
//!     fn plan(&self) -> Plan {
//!         Plan::matching(["kube-proxy/services#get;list;watch"])
//!     }
//!
//!     fn filter(&self, object: &mut Object<'_>) -> Result<Verdict, Error> {
//!         let hidden = object.annotation(&self.annotation).is_some_and(|value| value == "true");
//!         Ok(if hidden { Verdict::Hide } else { Verdict::Keep })
//!     }
//! }
//!
//! weir_filter::export!(HideMarked);
//! ```

pub mod cluster;
mod column;
mod error;
mod filter;
pub mod log;
mod memo;
pub mod node;
mod object;
mod path;
mod settings;
mod string_set;
mod value;

#[cfg(not(target_family = "wasm"))]
pub mod cases;
/// Compiles and runs the code in the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
#[cfg(target_family = "wasm")]
#[doc(hidden)]
pub mod guest;
#[cfg(not(target_family = "wasm"))]
pub mod native;

#[cfg(target_family = "wasm")]
use guest as backend;
#[cfg(not(target_family = "wasm"))]
use native::backend;

pub use column::{Column, Rows};
pub use error::Error;
pub use filter::{Filter, Lookup, Plan, Verdict};
pub use memo::Memo;
pub use object::Object;
pub use path::Path;
pub use string_set::StringSet;
pub use value::Value;

/// Exports a [`Filter`] from this crate's module. Name, version and summary come from Cargo.toml (`name`, or the
/// library's own, `version`, `description`). On other targets the macro only checks the type.
#[macro_export]
macro_rules! export {
    ($filter:ty) => {
        #[cfg(target_family = "wasm")]
        const _: () = {
            struct Component;

            ::std::thread_local! {
                static FILTER: ::std::cell::OnceCell<$filter> = const { ::std::cell::OnceCell::new() };
            }

            impl $crate::guest::bindings::exports::weir::filter::module::Guest for Component {
                fn describe() -> $crate::guest::bindings::exports::weir::filter::module::Description {
                    $crate::guest::describe(
                        ::std::env!("CARGO_CRATE_NAME"),
                        ::std::env!("CARGO_PKG_VERSION"),
                        ::std::env!("CARGO_PKG_DESCRIPTION"),
                    )
                }

                fn configure(
                    settings: ::std::string::String,
                ) -> ::std::result::Result<
                    $crate::guest::bindings::exports::weir::filter::module::Plan,
                    ::std::string::String,
                > {
                    FILTER.with(|slot| $crate::guest::configure(slot, &settings))
                }

                fn filter(
                    object: &$crate::guest::bindings::exports::weir::filter::module::Object,
                ) -> ::std::result::Result<
                    $crate::guest::bindings::exports::weir::filter::module::Verdict,
                    ::std::string::String,
                > {
                    FILTER.with(|slot| $crate::guest::filter(slot, object))
                }
            }

    $crate::guest::bindings::export!(Component with_types_in $crate::guest::bindings);
        };

        #[cfg(not(target_family = "wasm"))]
        const _: fn() = || {
            fn is_filter<F: $crate::Filter>() {}
            is_filter::<$filter>();
        };
    };
}

/// Defines a test that runs all case files in the crate's folder `cases` natively: `weir_filter::cases!(MyFilter);`
#[macro_export]
macro_rules! cases {
    ($filter:ty) => {
        #[cfg(test)]
        #[test]
        fn cases() -> ::std::result::Result<(), $crate::cases::Failures> {
            $crate::cases::check::<$filter>(::std::concat!(::std::env!("CARGO_MANIFEST_DIR"), "/cases"))
        }
    };
}
