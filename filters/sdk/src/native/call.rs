//! The running call of this thread: the environment of its imports, and its first fault. A fault does not unwind. Reads
//! return empty values from then on, and the runner fails the call when it returns.

use std::cell::RefCell;
use std::rc::Rc;

use super::Node;
use super::runner::NativeError;
use super::store::LookupStore;

thread_local! {
    static CALL: RefCell<Option<Call>> = const { RefCell::new(None) };
}

/// One running call of a filter.
struct Call {
    node: Rc<Node>,
    /// None during `configure`.
    store: Option<Rc<LookupStore>>,
    fault: Option<NativeError>,
}

/// Runs `body` as a call. Returns its result and the fault of the call, if any.
pub(super) fn run<T>(
    node: &Rc<Node>,
    store: Option<&Rc<LookupStore>>,
    body: impl FnOnce() -> T,
) -> (T, Option<NativeError>) {
    let call = Call { node: Rc::clone(node), store: store.map(Rc::clone), fault: None };
    let outer = CALL.replace(Some(call));
    let result = body();
    let call = CALL.replace(outer);
    (result, call.and_then(|call| call.fault))
}

/// Records a fault, if it is the first one of the call.
pub(super) fn fail(fault: NativeError) {
    CALL.with_borrow_mut(|call| {
        if let Some(call) = call {
            call.fault.get_or_insert(fault);
        }
    });
}

/// Returns the node of the running call.
pub(super) fn node() -> Rc<Node> {
    CALL.with_borrow(|call| call.as_ref().map(|call| Rc::clone(&call.node)).unwrap_or_default())
}

/// Returns the lookups of the running call. Fails the call during `configure`.
pub(super) fn store() -> Option<Rc<LookupStore>> {
    let store = CALL.with_borrow(|call| call.as_ref().and_then(|call| call.store.clone()));
    if store.is_none() {
        fail(NativeError::Misuse("lookups are not allowed while a filter is configured".to_owned()));
    }
    store
}
