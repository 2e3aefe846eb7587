//! A store whose reader the API server refuses.

use http::{Method, StatusCode};
use weir_apiserver::{Action, End};

use super::disk::{Confidentiality, DiskConfig, StoreName};
use super::*;
use crate::cache::Collection;

fn services() -> Collection {
    let request = weir_kube::RequestInfo::parse(&Method::GET, &"/api/v1/services".parse().unwrap()).unwrap();
    Collection::whole(request.resource().unwrap())
}

fn refuse(api: &ApiServer, code: StatusCode) {
    let body = format!(r#"{{"kind":"Status","code":{}}}"#, code.as_u16());
    api.on_request(move |_| Action::json(code.as_u16(), body.clone()));
    api.close_watches(End::Clean);
}

fn open_disk(folder: &std::path::Path) -> Arc<DiskCache> {
    DiskCache::new(DiskConfig::new(&folder.join("cache"), "node"), Arc::default())
}

fn stores(url: &str, disk: &Arc<DiskCache>) -> ResourceStores {
    StoresFixture { url: url.to_owned(), disk: Some(disk.clone()), ..StoresFixture::default() }.open()
}

async fn until_refused(store: &StoreHandle, refused: bool) {
    let mut changes = store.subscribe();
    within(async {
        while store.is_refused() != refused {
            changes.changed().await.unwrap();
        }
    })
    .await;
}

#[tokio::test]
async fn a_store_is_refused_from_401_or_403_until_the_next_list_or_watch_also_after_a_restart() {
    for code in [StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN] {
        let folder = tempfile::tempdir().unwrap();
        let api = ApiServer::builder().start().await.unwrap();
        api.store().put(service("a", json!({}))).unwrap();
        let disk = open_disk(folder.path());
        let store = stores(api.url(), &disk).open(&StoreReader::Daemon, &services()).unwrap();
        within(store.state().wait_for(|state| state.synced)).await.unwrap();
        within(api.open_watches().wait_for(|open| *open == 1)).await.unwrap();
        disk.flush().await;
        assert!(!store.is_refused());
        refuse(&api, code);
        until_refused(&store, true).await;
        // The link is cut at once: no list comes between.
        disk.close().await;
        drop(store);

        let disk = open_disk(folder.path());
        let store = stores("http://127.0.0.1:1", &disk).open(&StoreReader::Daemon, &services()).unwrap();
        within(store.restored()).await;
        assert!(store.is_refused() && store.snapshot().objects.size() == 1, "{code}");
        disk.close().await;
        drop(store);

        let disk = open_disk(folder.path());
        api.clear_hook();
        let store = stores(api.url(), &disk).open(&StoreReader::Daemon, &services()).unwrap();
        within(store.restored()).await;
        until_refused(&store, false).await;
        disk.close().await;
        let row = open_disk(folder.path());
        let name = StoreName::new("daemon", &services());
        assert!(row.restore(&name, Confidentiality::Plain).await.is_some());
        assert!(!row.store_status(&name).unwrap().refused, "{code}");
    }
}

#[tokio::test]
async fn an_expired_version_refuses_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let api = ApiServer::builder().start().await.unwrap();
    api.store().put(service("a", json!({}))).unwrap();
    let store = stores(api.url(), &open_disk(folder.path())).open(&StoreReader::Daemon, &services()).unwrap();
    within(store.state().wait_for(|state| state.synced)).await.unwrap();
    within(api.open_watches().wait_for(|open| *open == 1)).await.unwrap();
    let mut requests = api.request_count();
    requests.mark_unchanged();
    refuse(&api, StatusCode::GONE);
    within(requests.changed()).await.unwrap();
    api.clear_hook();
    within(api.open_watches().wait_for(|open| *open == 1)).await.unwrap();
    assert!(!store.is_refused() && store.snapshot().objects.size() == 1);
}
