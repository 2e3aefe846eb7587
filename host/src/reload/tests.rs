//! The log of an unchanged error, and the configuration of a missing ConfigMap. `tests/behaviour` covers reloads themselves.

use std::io::Write;
use std::sync::{Mutex, PoisonError};

use tracing_subscriber::fmt::MakeWriter;
use weir_apiserver::ApiServer;
use weir_store::disk::{CachedValue, DiskCache, DiskConfig};
use weir_upstream::{Reconnects, Tasks, Upstream, UpstreamConfig};

use super::*;
use crate::cli::Workbench;
use crate::lookups::FileView;
use crate::node_facts::NodeFacts;
use weir_process::WatchedFiles;
use weir_upstream::clock;

/// The log lines of this thread.
#[derive(Clone, Default)]
struct LogLines(Arc<Mutex<Vec<u8>>>);

impl Write for LogLines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for LogLines {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

impl LogLines {
    /// Collects the lines until the guard is dropped.
    fn collect(&self) -> tracing::subscriber::DefaultGuard {
        // Whether anybody wants a line is decided once for all threads. Where nobody but this thread does, the end of another
        // test's guard may decide it for this one.
        static ANYBODY: std::sync::Once = std::sync::Once::new();
        ANYBODY.call_once(|| drop(tracing::subscriber::set_global_default(tracing_subscriber::registry())));
        let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(self.clone()).finish();
        tracing::subscriber::set_default(subscriber)
    }

    /// Returns the lines that contain a text.
    fn with(&self, text: &str) -> Vec<String> {
        let bytes = self.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap().lines().filter(|line| line.contains(text)).map(str::to_owned).collect()
    }
}

fn config_map() -> ConfigSource {
    ConfigSource::ConfigMap { namespace: "kube-system".to_owned(), name: "weir-filters".to_owned() }
}

fn client(url: &str) -> (kube::Client, Reconnects) {
    let config = UpstreamConfig::new(kube::Config::new(url.parse().unwrap()));
    let upstream = Arc::new(Upstream::new(&config, Arc::default()).unwrap());
    (upstream.client(), upstream.connectivity().reconnects())
}

#[tokio::test(start_paused = true)]
async fn retries_with_the_same_error_are_logged_once() {
    let log = LogLines::default();
    let _guard = log.collect();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("filters.yaml");
    let view = FileView::new("node", [], Vec::new(), None).unwrap();
    let status = Arc::<FilterStatus>::default();
    let reloader = Reloader {
        node: watch::channel(NodeState::Known(NodeFacts::default())).1,
        source: ConfigSource::File(path.clone()),
        state: watch::channel(SourceState::Pending).1,
        modules: Modules::default(),
        loader: Workbench::temporary().unwrap().loader(view),
        serving: watch::channel(Serving::Unknown).0,
        status: status.clone(),
        metrics: Arc::default(),
        tried: LastTried::default(),
        last_good: None,
    };
    let metrics = reloader.metrics.clone();
    let tasks = Tasks::default();
    tasks.spawn_until_stop(reloader.run());
    tokio::time::sleep(MAX_RETRY * 3).await;
    assert!(metrics.refused() > 3, "{}", metrics.refused());
    assert_eq!(log.with("configuration refused").len(), 1, "{:?}", log.with(""));

    std::fs::write(&path, "data: {}").unwrap();
    while log.with("apiVersion: missing").is_empty() {
        tokio::time::sleep(RETRY).await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_outage_of_the_api_server_is_logged_once() {
    let log = LogLines::default();
    let _guard = log.collect();
    let tasks = Tasks::default();
    let state = watch_source(&config_map(), client("http://127.0.0.1:1"), None, &tasks);
    tokio::time::sleep(Duration::from_secs(300)).await;
    let lines = log.with("cannot watch the configuration");
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].contains("127.0.0.1:1") && lines[0].contains("Connection refused"), "{lines:?}");
    assert!(matches!(*state.borrow(), SourceState::Pending));
}

#[tokio::test(start_paused = true)]
async fn attempts_become_rare_while_the_api_server_is_away() {
    // It accepts connections and closes them.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let tasks = Tasks::default();
    let _state = watch_source(&config_map(), client(&url), None, &tasks);
    let mut attempts = 0;
    let _ = tokio::time::timeout(Duration::from_secs(600), async {
        while listener.accept().await.is_ok() {
            attempts += 1;
        }
    })
    .await;
    assert!((10..100).contains(&attempts), "{attempts} attempts in ten minutes");
}

#[tokio::test]
async fn a_missing_config_map_is_a_configuration_without_filters_and_with_a_warning() {
    let server = ApiServer::builder().start().await.unwrap();
    let tasks = Tasks::default();
    let mut state = watch_source(&config_map(), client(server.url()), None, &tasks);
    let state = state.wait_for(|state| !matches!(state, SourceState::Pending)).await.unwrap().clone();
    let SourceState::Valid(configuration) = state else { panic!("{state:?}") };
    assert!(configuration.filters.is_empty());
    let warning = "ConfigMap kube-system/weir-filters does not exist, so no filter is active";
    assert_eq!(configuration.warnings, [warning]);
}

/// A place on disk for the last good configuration. A test opens it again, as a restarted daemon does.
fn last_good(folder: &std::path::Path) -> (Arc<DiskCache>, LastGood) {
    let disk = DiskCache::new(DiskConfig::new(&folder.join("cache"), "node"), Arc::default());
    (disk.clone(), LastGood::new(disk, &folder.join("cache"), &config_map()))
}

async fn first_state(url: &str, last_good: LastGood) -> Arc<SourcedConfiguration> {
    let tasks = Tasks::default();
    let mut state = watch_source(&config_map(), client(url), Some(last_good), &tasks);
    let state = state.wait_for(|state| !matches!(state, SourceState::Pending));
    let state = tokio::time::timeout(Duration::from_secs(20), state).await.expect("a configuration").unwrap().clone();
    let SourceState::Valid(configuration) = state else { panic!("{state:?}") };
    configuration
}

fn a_config_map() -> k8s_openapi::api::core::v1::ConfigMap {
    serde_json::from_value(serde_json::json!({
        "metadata": {"name": "weir-filters"},
        "data": {"filter_a": "kube-proxy/services#list"},
        "binaryData": {"a.wasm": "AGFzbQ=="},
    }))
    .unwrap()
}

#[tokio::test]
async fn without_an_api_server_the_last_good_configuration_is_used_and_its_age_is_a_warning() {
    // One refuses connections, the other accepts them and never responds.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    for url in ["http://127.0.0.1:1".to_owned(), format!("http://{}", silent.local_addr().unwrap())] {
        for map in [Some(a_config_map()), None] {
            let folder = tempfile::tempdir().unwrap();
            let (disk, place) = last_good(folder.path());
            let active = SourcedConfiguration::of_api_server("ConfigMap", map.clone()).unwrap();
            place.keep(&active, &[]).await;
            disk.close().await;
            let read = first_state(&url, last_good(folder.path()).1).await;
            assert_eq!((&read.filters, &read.binary_data), (&active.filters, &active.binary_data));
            let warning = read.warnings.last().unwrap();
            assert!(warning.contains("last good configuration, activated "), "{warning}");
        }
    }
}

#[tokio::test]
async fn what_the_api_server_answers_counts_more_than_the_last_good_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let (_disk, place) = last_good(folder.path());
    place.keep(&SourcedConfiguration::of_api_server("ConfigMap", Some(a_config_map())).unwrap(), &[]).await;
    let server = ApiServer::builder().start().await.unwrap();
    let read = first_state(server.url(), place).await;
    assert!(read.filters.is_empty(), "the ConfigMap does not exist");
}

#[tokio::test]
async fn a_damaged_configuration_on_disk_is_not_used() {
    let folder = tempfile::tempdir().unwrap();
    let (disk, place) = last_good(folder.path());
    for bytes in
        [&b"{}"[..], b"", br#"{"activated":"2026-01-01T00:00:00Z","content":{"ConfigMap":{"data":{"x":"y"}}}}"#]
    {
        let value = CachedValue { bytes: bytes.to_vec(), expires: clock::now() + MAX_RETRY };
        disk.put("configuration/kube-system/weir-filters", value, false).await;
        assert!(place.read("offline").await.is_none());
    }
}

#[tokio::test]
async fn each_copy_of_the_last_good_configuration_comes_back_from_the_other() {
    let folder = tempfile::tempdir().unwrap();
    let (disk, place) = last_good(folder.path());
    place.keep(&SourcedConfiguration::of_api_server("ConfigMap", Some(a_config_map())).unwrap(), &[]).await;
    let filters = async |place: &LastGood| {
        let read = place.read("offline").await.map(|read| read.filters.clone());
        place.written().await;
        read
    };
    let kept = filters(&place).await;
    assert!(kept.is_some());
    let path = folder.path().join("cache").join("last-good");
    let copy = std::fs::read(&path).unwrap();
    for bit in 0..8 * copy.len() {
        let mut damaged = copy.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        std::fs::write(&path, damaged).unwrap();
        assert_eq!(filters(&place).await, kept, "{bit}");
        assert_eq!(std::fs::read(&path).unwrap(), copy, "{bit}: it is written again");
    }
    for damaged in [&b""[..], &copy[..copy.len() / 2]] {
        std::fs::write(&path, damaged).unwrap();
        assert_eq!(filters(&place).await, kept);
        assert_eq!(std::fs::read(&path).unwrap(), copy);
    }
    // A damaged watch cache, and then one from before the copy.
    disk.close().await;
    std::fs::write(folder.path().join("cache").join("watch-cache.redb"), b"damaged").unwrap();
    let (disk, place) = last_good(folder.path());
    assert_eq!(filters(&place).await, kept);
    disk.close().await;
    std::fs::remove_file(&path).unwrap();
    let (disk, place) = last_good(folder.path());
    assert_eq!(filters(&place).await, kept);
    assert_eq!(std::fs::read(&path).unwrap(), copy);
    // Neither of them is used where both are damaged.
    disk.remove("configuration/kube-system/weir-filters").await;
    std::fs::write(&path, b"damaged").unwrap();
    assert_eq!(filters(&place).await, None);
}

#[tokio::test]
async fn a_copy_of_another_cluster_or_source_is_not_used() {
    let folder = tempfile::tempdir().unwrap();
    let (disk, place) = last_good(folder.path());
    disk.confirm_cluster("one".to_owned()).await;
    place.keep(&SourcedConfiguration::of_api_server("ConfigMap", Some(a_config_map())).unwrap(), &[]).await;
    place.written().await;
    disk.confirm_cluster("two".to_owned()).await;
    assert!(place.read("refused").await.is_none(), "of another cluster");
    disk.confirm_cluster("one".to_owned()).await;
    assert!(place.read("refused").await.is_some());
    let source = ConfigSource::File("/other".into());
    let other = LastGood::new(disk, &folder.path().join("cache"), &source);
    assert!(other.read("refused").await.is_none(), "of another source");
}

#[tokio::test]
async fn a_file_that_was_written_a_moment_ago_is_not_waited_for_if_it_was_in_force_before() {
    let folder = tempfile::tempdir().unwrap();
    let (path, source) =
        (folder.path().join("filters.yaml"), |path: &std::path::Path| ConfigSource::File(path.to_owned()));
    let disk = DiskCache::new(DiskConfig::new(&folder.path().join("cache"), "node"), Arc::default());
    let place = LastGood::new(disk, &folder.path().join("cache"), &source(&path));
    let manifest = "apiVersion: v1\nkind: ConfigMap\ndata:\n  filters.yaml: 'filters: []'\n";
    place.keep(&SourcedConfiguration::of_file("file", manifest.to_owned()).unwrap(), &[]).await;
    let mut took = Vec::new();
    for text in [manifest.to_owned(), format!("{manifest}# changed\n")] {
        std::fs::write(&path, &text).unwrap();
        let (files, begun) = (WatchedFiles::new([(path.clone(), 1 << 20)]), Instant::now());
        let state = super::source::read_first(&path, &files, Some(&place)).await;
        let Some(SourceState::Valid(read)) = state else { panic!("{state:?}") };
        assert_eq!(read.origin, super::last_good::Origin::File(text));
        took.push(begun.elapsed());
        // A file that was read at once counts as read.
        let change = tokio::time::timeout(Duration::from_millis(600), files.changed()).await;
        assert!(change.is_err(), "nothing has changed since");
    }
    assert!(took[0] < took[1], "only the other one waits until nobody writes it: {took:?}");
}
