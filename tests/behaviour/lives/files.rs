//! What somebody makes of the files of the cache directory.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use redb::TableDefinition;
use weir_tests::daemon::own_uid;

use super::history::Collection;
use super::model::{Blob, File, Slot, World};
use super::moves::{By, CacheFile};
use super::site::{cluster, setup};

/// Another node, which is in another cluster.
pub(super) struct Donor(tempfile::TempDir);

const DONOR: &str = "edge-z";
const DATABASE: &str = "cache/watch-cache.redb";
const META: TableDefinition<&str, &str> = TableDefinition::new("meta");

impl Donor {
    pub(super) async fn new() -> Self {
        let (server, folder) = (cluster("cluster-z", 5000).await, tempfile::tempdir().unwrap());
        let weir = setup(server.url(), folder.path(), DONOR).start_ready().await;
        weir.client("kube-proxy").with("authorization", "Bearer proxy").json(Collection::Services.path()).await;
        assert_eq!(weir.stop().await, Some(0));
        assert!(folder.path().join(DATABASE).exists());
        // The key of its Secrets.
        let key = folder.path().join("cache.key");
        std::fs::write(&key, [9; 32]).unwrap();
        std::fs::set_permissions(&key, PermissionsExt::from_mode(0o600)).unwrap();
        Self(folder)
    }

    fn file() -> File {
        File { has_any: Some(true), ..File::new(DONOR, Some(9)) }
    }
}

impl CacheFile {
    fn path(self, folder: &Path) -> Option<PathBuf> {
        Some(match self {
            Self::Database => folder.join(DATABASE),
            Self::AsideNode => folder.join(DATABASE).with_extension("redb.node"),
            Self::AsideCluster => folder.join(DATABASE).with_extension("redb.cluster"),
            Self::AsideFormat => folder.join(DATABASE).with_extension("redb.format"),
            Self::Key => folder.join("cache.key"),
            Self::LastTime => folder.join("cache/last-time"),
            Self::OfflineSince => folder.join("cache/offline-since"),
            Self::Any(number) => {
                let mut others = Vec::new();
                files(&folder.join("cache"), &mut others);
                others.retain(|path| !path.display().to_string().contains("watch-cache.redb"));
                others.sort();
                let place = usize::from(number) % others.len().max(1);
                others.get(place)?.clone()
            }
        })
    }

    fn slot(self) -> Option<Slot> {
        match self {
            Self::Database => Some(Slot::Main),
            Self::AsideNode => Some(Slot::Node),
            Self::AsideCluster => Some(Slot::Cluster),
            Self::AsideFormat => Some(Slot::Format),
            _ => None,
        }
    }
}

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        found.push(entry.path());
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            files(&entry.path(), found);
        }
    }
}

pub(super) fn remove(path: &Path) {
    match std::fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => std::fs::remove_dir_all(path).unwrap(),
        Ok(_) => std::fs::remove_file(path).unwrap(),
        Err(_) => {}
    }
}

/// Replaces a file.
pub(super) fn replace(folder: &Path, donor: &Donor, file: CacheFile, by: By) {
    if let Some(path) = file.path(folder).filter(|path| path.parent().is_some_and(Path::exists)) {
        put(by, &path, donor, file);
    }
}

/// What may be there after [`replace`].
pub(super) fn replaced(world: &World, file: CacheFile, by: By) -> Vec<World> {
    let Some(slot) = file.slot() else { return vec![world.clone()] };
    let with = |blob: Option<Blob>| {
        let mut world = world.clone();
        world.0.remove(&slot);
        world.0.extend(blob.map(|blob| (slot, blob)));
        world
    };
    let before = world.0.get(&slot).cloned();
    match (by, before) {
        (By::Nothing, _) => vec![with(None)],
        (By::OtherNodes, _) => vec![with(Some(Blob::File(Donor::file())))],
        (By::Unreadable | By::OtherOwner | By::Half | By::Flipped(_), None) => vec![world.clone()],
        (By::Half | By::Flipped(_), Some(Blob::File(mut file))) => {
            let whole = Blob::File(file.clone());
            file.harm();
            vec![with(Some(Blob::File(file))), with(Some(Blob::Junk)), with(Some(whole)), with(None)]
        }
        (By::Unreadable | By::OtherOwner, Some(_)) if own_uid() == 0 => vec![world.clone()],
        (By::Half | By::Flipped(_), Some(Blob::Junk)) => vec![world.clone()],
        _ => vec![with(Some(Blob::Junk))],
    }
}

fn put(by: By, path: &Path, donor: &Donor, file: CacheFile) {
    let other = match file.slot() {
        Some(_) => donor.0.path().join(DATABASE),
        None => donor.0.path().join("cache.key"),
    };
    let link = |target: &Path| {
        remove(path);
        std::os::unix::fs::symlink(target, path).unwrap();
    };
    let write = |bytes: &[u8]| {
        remove(path);
        std::fs::write(path, bytes).unwrap();
        std::fs::set_permissions(path, PermissionsExt::from_mode(0o600)).unwrap();
    };
    let is_file = std::fs::symlink_metadata(path).is_ok_and(|found| found.is_file());
    match by {
        By::Nothing => remove(path),
        By::Folder => {
            remove(path);
            std::fs::create_dir_all(path.join("more")).unwrap();
        }
        By::Pipe => {
            remove(path);
            assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
        }
        By::LinkToNothing => link(Path::new("/nonexistent/file")),
        By::LinkElsewhere => link(&other),
        By::OtherNodes => write(&std::fs::read(other).unwrap()),
        By::LaterForm => write(&b"weir 99.0 {\"form\": 99}\n".repeat(1000)),
        By::Random => {
            let bytes: Vec<u8> = (0..65_537_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
            write(&bytes);
        }
        By::Unreadable if is_file => std::fs::set_permissions(path, PermissionsExt::from_mode(0o000)).unwrap(),
        By::OtherOwner if is_file && own_uid() == 0 => std::os::unix::fs::chown(path, Some(1), Some(1)).unwrap(),
        By::Half if is_file => {
            let bytes = std::fs::read(path).unwrap();
            std::fs::write(path, &bytes[..bytes.len() / 2]).unwrap();
        }
        By::Flipped(part) if is_file => {
            let mut bytes = std::fs::read(path).unwrap();
            let at = bytes.len() * usize::from(part) / 65_536;
            bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1);
            std::fs::write(path, bytes).unwrap();
        }
        By::Unreadable | By::OtherOwner | By::Half | By::Flipped(_) => {}
    }
}

/// Another release, which has another form, has run once: it has set this one's file aside, and has used its own.
pub(super) fn other_release(world: &World) -> World {
    let mut world = world.clone();
    let is_foreign = |blob: Option<&Blob>| matches!(blob, Some(Blob::File(file)) if file.is_of_other_form);
    if is_foreign(world.0.get(&Slot::Main)) {
        return world;
    }
    let own = is_foreign(world.0.get(&Slot::Format)).then(|| world.0.remove(&Slot::Format)).flatten();
    let foreign = File { is_of_other_form: true, has_any: Some(true), ..File::new("edge-a", None) };
    if let Some(main) = world.0.insert(Slot::Main, own.unwrap_or(Blob::File(foreign))) {
        world.0.insert(Slot::Format, main);
    }
    world
}

/// Does to the files what [`other_release`] says.
pub(super) fn run_other_release(folder: &Path) {
    let (main, aside) = (folder.join(DATABASE), folder.join(DATABASE).with_extension("redb.format"));
    let (spare, is_foreign) = (folder.join("other-release"), |path: &Path| form(path).is_some_and(|form| form == "99"));
    if !folder.join("cache").is_dir() || is_foreign(&main) {
        return;
    }
    if is_foreign(&aside) {
        std::fs::rename(&aside, &spare).unwrap();
    } else {
        write_form(&spare);
    }
    if std::fs::symlink_metadata(&main).is_ok() {
        remove(&aside);
        std::fs::rename(&main, &aside).unwrap();
    }
    std::fs::rename(&spare, &main).unwrap();
}

/// The form of a database; `None` if it is none.
fn form(path: &Path) -> Option<String> {
    std::fs::symlink_metadata(path).ok().filter(std::fs::Metadata::is_file)?;
    // A copy: what is not whole stays as it is.
    let copy = tempfile::NamedTempFile::new().unwrap();
    std::fs::copy(path, copy.path()).ok()?;
    let open = || {
        use redb::ReadableDatabase as _;
        let database = redb::Database::open(copy.path()).ok()?;
        let table = database.begin_read().ok()?.open_table(META).ok()?;
        table.get("format").ok()?.map(|form| form.value().to_owned())
    };
    std::panic::catch_unwind(open).ok().flatten()
}

fn write_form(path: &Path) {
    remove(path);
    let database = redb::Database::create(path).unwrap();
    let write = database.begin_write().unwrap();
    {
        let mut table = write.open_table(META).unwrap();
        table.insert("format", "99").unwrap();
        table.insert("node", "edge-a").unwrap();
    }
    write.commit().unwrap();
}
