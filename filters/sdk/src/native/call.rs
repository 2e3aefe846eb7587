//! The call that is running on this thread: what imports answer from, and the first fault. A fault does not unwind:
//! reads go on with empty answers, and the runner fails the call when it returns.

use std::cell::RefCell;
use std::rc::Rc;

use super::Node;
use super::runner::Fault;
use super::store::Store;

thread_local! {
    static CALL: RefCell<Option<Call>> = const { RefCell::new(None) };
}

/// One running call of a filter.
struct Call {
    node: Rc<Node>,
    /// None while the filter is being configured.
    store: Option<Rc<Store>>,
    fault: Option<Fault>,
}

/// Runs `body` as a call; with its answer, the fault that it had.
pub(super) fn run<T>(node: &Rc<Node>, store: Option<&Rc<Store>>, body: impl FnOnce() -> T) -> (T, Option<Fault>) {
    let call = Call { node: Rc::clone(node), store: store.map(Rc::clone), fault: None };
    let outer = CALL.replace(Some(call));
    let answer = body();
    let call = CALL.replace(outer);
    (answer, call.and_then(|call| call.fault))
}

/// Notes a fault; the first one counts.
pub(super) fn fail(fault: Fault) {
    CALL.with_borrow_mut(|call| {
        if let Some(call) = call {
            call.fault.get_or_insert(fault);
        }
    });
}

/// The node of the running call.
pub(super) fn node() -> Rc<Node> {
    CALL.with_borrow(|call| call.as_ref().map(|call| Rc::clone(&call.node)).unwrap_or_default())
}

/// The cluster of the running call; without one, the call fails.
pub(super) fn store() -> Option<Rc<Store>> {
    let store = CALL.with_borrow(|call| call.as_ref().and_then(|call| call.store.clone()));
    if store.is_none() {
        fail(Fault::Misuse("the cluster may not be asked while a filter is configured".to_owned()));
    }
    store
}
