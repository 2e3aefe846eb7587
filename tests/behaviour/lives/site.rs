//! The real things of a life: two clusters, the link, the machine with its disk, and the cache directory.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::Duration;

use serde_json::json;
use weir_apiserver::{ApiServer, Backup};
use weir_tests::daemon::{Setup, manifest, own_uid, replace};
use weir_tests::edge::api_server;
use weir_tests::link::Link;
use weir_tests::machine::Machine;
use weir_tests::pki::kubeconfig;

use super::files::Donor;
use super::history::{Collection, Histories, objects};
use super::moves::{Disk, Key, Name};
use crate::behaviour::misfits::Mount;
use crate::behaviour::service;

/// The uid of a user who may not read the cache directory.
const OTHER: u32 = 65534;
/// Room for a few database files.
const MOUNT: &str = "size=96m,mode=0700";

struct Cluster {
    server: ApiServer,
    history: usize,
    backup: Option<(Backup, usize)>,
}

pub(super) struct Site {
    clusters: Vec<Cluster>,
    pub(super) present: usize,
    link: Link,
    pub(super) is_up: bool,
    machine: Option<Machine>,
    mount: Option<Mount>,
    pub(super) is_read_only: bool,
    pub(super) disk: Disk,
    folder: tempfile::TempDir,
    pub(super) histories: Histories,
    keys: Vec<Vec<u8>>,
    first_key: Option<Vec<u8>>,
    writes: u64,
    pub(super) donor: &'static Donor,
}

impl Cluster {
    async fn new(number: usize, histories: &mut Histories) -> Self {
        let server = cluster(&format!("cluster-{number}"), 1000 * number).await;
        let history = histories.begin();
        Self { server, history, backup: None }
    }

    fn record(&self, histories: &mut Histories, version: u64) {
        for collection in Collection::ALL {
            let all = self.server.store().list("v1", collection.kind());
            let of =
                all.iter().filter(|item| collection == Collection::Services || item["metadata"]["name"] == "token");
            histories.record(self.history, collection, version, objects(of));
        }
    }
}

/// A cluster with this identity, which has had some writes before.
pub(super) async fn cluster(uid: &str, writes: usize) -> ApiServer {
    let builder = api_server().known_tokens_only();
    let builder = builder.token("proxy", "system:serviceaccount:kube-system:kube-proxy", &[]);
    let server = builder.token("kubelet", "system:node:edge-a", &["system:nodes"]).start().await.unwrap();
    let store = server.store();
    for _ in 0..writes {
        store.advance();
    }
    store.delete("v1", "Namespace", "", "kube-system");
    let metadata = json!({"name": "kube-system", "uid": uid});
    store.put(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})).unwrap();
    store.load(include_str!("../../demo/cluster.yaml")).unwrap();
    let metadata = json!({"name": "token", "namespace": "default"});
    store.put(json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata})).unwrap();
    server
}

/// The configuration of all starts: a start waits whether somebody is still writing one that is only seconds old, as it is on no
/// node.
static CONFIGURATION: LazyLock<PathBuf> = LazyLock::new(|| {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("filters-of-lives.yaml");
    let text = manifest("filters: []");
    if std::fs::read_to_string(&path).ok().as_ref() != Some(&text) {
        replace(&path, text.as_bytes());
    }
    path
});

/// A daemon with its cache in this folder.
pub(super) fn setup(url: &str, folder: &Path, node: &str) -> Setup {
    let node_credential = kubeconfig(url, "", "token: kubelet");
    Setup::new(url)
        .on_disk(&folder.join("cache"))
        .flag("--config-file", CONFIGURATION.to_str().unwrap())
        .flag("--cache-resources", "services,secrets")
        // On a busy machine, a slow disk is late to report that it is empty.
        .flag("--start-wait", "30s")
        .flag("--node-name", node)
        .file("--node-kubeconfig", "node.yaml", &node_credential)
}

impl Site {
    pub(super) async fn new(donor: &'static Donor) -> Self {
        let mut histories = Histories::default();
        let clusters = vec![Cluster::new(0, &mut histories).await, Cluster::new(1, &mut histories).await];
        for cluster in &clusters {
            cluster.record(&mut histories, cluster.server.store().revision());
        }
        let link = Link::to(&clusters[0].server).await;
        let folder = tempfile::tempdir().unwrap();
        let mount = (own_uid() == 0).then(|| Mount(folder.path().to_owned()));
        mount.iter().for_each(|mount| mount.run(MOUNT));
        Self {
            clusters,
            present: 0,
            link,
            is_up: true,
            machine: Machine::new(),
            mount,
            is_read_only: false,
            disk: Disk::Fine,
            folder,
            histories,
            keys: Vec::new(),
            first_key: None,
            writes: 0,
            donor,
        }
    }

    pub(super) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(super) fn setup(&self, name: Name) -> Setup {
        let setup = setup(&self.link.url(), self.folder(), name.text());
        match &self.machine {
            Some(machine) => machine.run(setup, self.folder()),
            None => setup,
        }
    }

    /// The daemon of another user; `None` if only root may start one.
    pub(super) fn setup_of_other(&self) -> Option<Setup> {
        (own_uid() == 0).then(|| setup(&self.link.url(), self.folder(), Name::Right.text()).user(OTHER))
    }

    pub(super) fn server(&self) -> &ApiServer {
        &self.clusters[self.present].server
    }

    pub(super) fn history(&self) -> usize {
        self.clusters[self.present].history
    }

    /// Whether what is to be on disk gets there.
    pub(super) fn is_writable(&self) -> bool {
        !self.is_read_only && matches!(self.disk, Disk::Fine | Disk::Slow)
    }

    pub(super) fn change(&mut self, collection: Collection, name: &str) -> u64 {
        self.writes += 1;
        let mut object = service(name, "ClusterIP");
        if collection == Collection::Secrets {
            object = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": "default"}});
        }
        object["metadata"]["labels"] = json!({"write": self.writes.to_string()});
        let cluster = &self.clusters[self.present];
        let version = cluster.server.store().put(object).unwrap();
        cluster.record(&mut self.histories, version);
        version
    }

    pub(super) fn delete(&mut self, name: &str) {
        let cluster = &self.clusters[self.present];
        if let Some(version) = cluster.server.store().delete("v1", "Service", "default", name) {
            cluster.record(&mut self.histories, version);
        }
    }

    pub(super) async fn put_link(&mut self, is_up: bool) {
        if is_up != self.is_up {
            self.is_up = is_up;
            if is_up { self.link.up().await } else { self.link.down().await }
        }
    }

    /// Puts another cluster at the end of the link, which is down.
    pub(super) fn put_cluster(&mut self, number: usize) {
        self.present = number;
        self.link.lead_to(&self.clusters[number].server);
    }

    pub(super) fn back_up(&mut self) {
        let cluster = &mut self.clusters[self.present];
        cluster.backup = Some((cluster.server.store().backup(), cluster.history));
    }

    pub(super) fn has_backup(&self) -> bool {
        self.clusters[self.present].backup.is_some()
    }

    /// Puts the cluster back while the link is down.
    pub(super) fn restore(&mut self, writes: u8) {
        let cluster = &mut self.clusters[self.present];
        let Some((backup, history)) = &cluster.backup else { return };
        cluster.server.store().restore(backup);
        cluster.history = self.histories.fork(*history, backup.revision());
        for n in 0..writes {
            self.change(Collection::Services, &format!("restored-{}", n % 3));
        }
    }

    pub(super) fn put_disk(&mut self, disk: Disk) {
        let Some(machine) = &self.machine else { return };
        self.disk = disk;
        machine.put_disk_full(disk == Disk::Full);
        if disk == Disk::Fails {
            machine.put_writes_fail(true);
        }
        machine.put_sync_fails(disk == Disk::SyncFails);
        machine.put_sync(if disk == Disk::Slow { Duration::from_millis(200) } else { Duration::ZERO });
    }

    pub(super) fn put_read_only(&mut self, is_read_only: bool) {
        let Some(mount) = self.mount.as_ref().filter(|_| self.is_read_only != is_read_only) else { return };
        if mount.try_remount(if is_read_only { "ro" } else { "rw" }) {
            self.is_read_only = is_read_only;
        }
    }

    pub(super) fn put_clock_ahead(&self, hours: i32) {
        self.machine.iter().for_each(|machine| machine.put_clock_ahead(i64::from(hours) * 3600));
    }

    pub(super) fn key_file(&self) -> PathBuf {
        self.folder().join("cache.key")
    }

    /// The key that a daemon finds; `None` if there is none that it takes.
    pub(super) fn key(&mut self) -> Option<usize> {
        use std::os::unix::fs::MetadataExt as _;
        let found = std::fs::metadata(self.key_file()).ok()?;
        if !found.is_file() || found.len() != 32 || found.mode() & 0o077 != 0 || ![0, own_uid()].contains(&found.uid())
        {
            return None;
        }
        let bytes = std::fs::read(self.key_file()).ok()?;
        self.first_key.get_or_insert_with(|| bytes.clone());
        let known = self.keys.iter().position(|key| *key == bytes);
        Some(known.unwrap_or_else(|| {
            self.keys.push(bytes);
            self.keys.len() - 1
        }))
    }

    pub(super) fn put_key(&mut self, key: Key) {
        self.key();
        let file = self.key_file();
        super::files::remove(&file);
        let bytes = match key {
            Key::Away => return,
            Key::Back => self.first_key.clone(),
            Key::Other => Some(vec![7; 32]),
        };
        if let Some(bytes) = bytes {
            std::fs::write(&file, bytes).unwrap();
            std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).unwrap();
        }
    }
}
