//! Clients that open and read views, while others are closed and counted.

use super::*;
use crate::{Schedules, join};
use shuttle::thread;

pub(crate) const ALL: Schedules = &[
    ("clients_share_one_view", clients_share_one_view),
    ("what_is_open_is_what_is_charged", what_is_open_is_what_is_charged),
];

/// The view of a store that shows what these filters make.
fn key(filter: u64) -> ViewKey {
    let collection = Collection { path: "/api/v1/pods".to_owned(), ..Collection::default() };
    let period = ChainPeriod::new([filter].into(), filter);
    ViewKey { reader: StoreReader::Private("a".into()), collection, period, copy: 0 }
}

fn client() -> Owner {
    Owner::Client("a".into())
}

/// Opens a view or finds it. The view's task holds it until it is closed.
fn open(views: &SharedViews, ledger: &Ledger, owner: &Owner, filter: u64) -> Arc<View> {
    let opener = Opener { component: "", owner, opens: true };
    let new = |_: &OpenViews, _: &ViewKey| Some(Arc::new(View::default()));
    let (view, _locked) = views.find_or_open(ledger, opener, |_| Some(key(filter)), new).unwrap().unwrap();
    view
}

fn clients_share_one_view() {
    let (views, ledger) = (Arc::new(SharedViews::default()), Ledger::new(1 << 30));
    let clients = [0, 1, 2].map(|_| {
        let (views, ledger) = (views.clone(), ledger.clone());
        thread::spawn(move || open(&views, &ledger, &client(), 1))
    });
    let open = join(clients);
    assert!(open.iter().all(|view| Arc::ptr_eq(view, &open[0])), "two clients have a view of their own each");
}

/// A client and a node component read one store through two chains, its list arrives, and all is counted again.
fn what_is_open_is_what_is_charged() {
    let (views, ledger) = (Arc::new(SharedViews::default()), Ledger::new(1 << 30));
    let readers = [(client(), 1), (client(), 2), (Owner::Node, 1)].map(|(owner, filter)| {
        let (views, ledger) = (views.clone(), ledger.clone());
        thread::spawn(move || {
            let view = open(&views, &ledger, &owner, filter);
            view.store.room().allows(1 << 20);
        })
    });
    views.lock().recount(&ledger);
    join(readers);
    let open = views.lock();
    let stores = open.views.values().filter_map(|found| found.store.as_deref());
    let stores: HashMap<_, _> = stores.map(|store| (std::ptr::from_ref(store), store)).collect();
    for owner in [client(), Owner::Node] {
        let of_views = open.views.values().filter(|found| found.is_of(&owner)).map(|found| found.charge.bytes());
        let of_stores = stores.values().filter(|store| *store.owner() == owner).map(|store| store.bytes());
        let charged = of_views.chain(of_stores).sum::<u64>();
        assert_eq!(charged, ledger.used(&owner), "{owner:?} is charged for something else");
    }
    drop(open);
    drop(views);
    assert_eq!(ledger.used(&client()) + ledger.used(&Owner::Node), 0, "something is charged for ever");
}
