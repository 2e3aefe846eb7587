//! Sets aside what the daemon cannot use of the cache directory: pipes, links, folders in the place of files, and machine code that
//! others may have written. Reading a pipe would take for ever, a link may lead anywhere, and a folder cannot be replaced by a file.

use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt};
use std::path::{Path, PathBuf};

use super::OTHERS_WRITE;
use crate::pods::cert_store;
use crate::reload::file_copy;
use weir_access::Outage;

use crate::{server_addresses, server_file, time_file};

/// What is a folder in the cache directory. Everything else is a file.
const FOLDERS: [&str; 4] = ["code", "compiled", "compiling", "modules"];
/// Machine code that the daemon runs: nobody else may have written it.
const CODE: [&str; 2] = ["code", "compiled"];
/// The watch cache, which tends to files of its own: nothing is lost of one that does not fit.
const WATCH_CACHE: &str = "watch-cache.redb";
/// What is a file there. Nothing else is touched: a directory may be shared, by mistake, with what is not Weir's.
const FILES: [&str; 10] = [
    WATCH_CACHE,
    file_copy::NAME,
    time_file::NAME,
    Outage::FILES[0],
    Outage::FILES[1],
    Outage::FILES[2],
    server_file::NAME,
    server_addresses::NAME,
    cert_store::CERTIFICATE,
    cert_store::PENDING_KEY,
];
/// How many of one name are kept aside. They are the operator's to remove.
const MAX_ASIDE: usize = 8;
/// The suffix of files that are set aside.
const ASIDE: &str = "unusable";

/// Sets aside what cannot be used, and makes what belongs to the daemon readable. Failures are logged: the parts of the daemon that
/// read it do without.
pub(super) fn tidy(directory: &Path) {
    tidy_folder(directory, Some(FOLDERS.as_slice()));
}

/// `folders`: the names that must be folders, others must be files; `None`: both may be there.
fn tidy_folder(directory: &Path, folders: Option<&[&str]>) {
    let Ok(entries) = std::fs::read_dir(directory) else { return };
    for entry in entries.flatten() {
        let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
        let Ok(metadata) = std::fs::symlink_metadata(&path) else { continue };
        let is_own = folders.is_none_or(|folders| folders.contains(&name.as_str()) || FILES.contains(&name.as_str()));
        if name.contains(ASIDE) || !is_own {
            continue;
        }
        let kind = metadata.file_type();
        if kind.is_file() || kind.is_dir() {
            make_readable(&path, &metadata);
        }
        if name.starts_with(WATCH_CACHE) {
            continue;
        }
        let must_be_folder = folders.map(|folders| folders.contains(&name.as_str()));
        match unusable(&name, &metadata, must_be_folder) {
            Some(reason) => set_aside(&path, &reason),
            None if kind.is_dir() => tidy_folder(&path, None),
            None => {}
        }
    }
}

/// Why something cannot be used.
fn unusable(name: &str, metadata: &std::fs::Metadata, must_be_folder: Option<bool>) -> Option<String> {
    let own = rustix::process::geteuid().as_raw();
    let (kind, owner, mode) = (metadata.file_type(), metadata.uid(), metadata.mode() & 0o7777);
    if !kind.is_file() && !kind.is_dir() {
        return Some("it is neither a file nor a folder".to_owned());
    }
    match must_be_folder {
        Some(true) if kind.is_file() => return Some("it is a file, and must be a folder".to_owned()),
        Some(false) if kind.is_dir() => return Some("it is a folder, and must be a file".to_owned()),
        _ => {}
    }
    let is_trusted = owner == own && mode & OTHERS_WRITE == 0;
    (must_be_folder.is_some() && CODE.contains(&name) && !is_trusted).then(|| {
        format!(
            "it belongs to uid {owner} with mode {mode:o}: it must belong to uid {own}, and nobody else may write to it"
        )
    })
}

fn make_readable(path: &Path, metadata: &std::fs::Metadata) {
    let needed = if metadata.is_dir() { 0o700 } else { 0o600 };
    let mode = metadata.mode() & 0o7777;
    // Somebody else's file cannot be changed, and is not used.
    if mode & needed != needed && std::fs::set_permissions(path, PermissionsExt::from_mode(mode | needed)).is_ok() {
        tracing::warn!(path = %path.display(), reason = format!("its mode was {mode:o}"), "made usable in the cache directory");
    }
}

fn set_aside(path: &Path, reason: &str) {
    let place = |n: usize| {
        let mut aside = path.as_os_str().to_owned();
        aside.push(format!(".{ASIDE}{}", if n == 0 { String::new() } else { format!(".{n}") }));
        PathBuf::from(aside)
    };
    let is_free = |aside: &PathBuf| std::fs::symlink_metadata(aside).is_err();
    let moved = match (0..MAX_ASIDE).map(place).find(is_free) {
        Some(aside) => std::fs::rename(path, &aside).map(|()| aside),
        None => Err(io::Error::other(format!("{MAX_ASIDE} of this name were set aside before: remove them"))),
    };
    let path = path.display();
    match moved {
        Ok(aside) => {
            let aside = aside.display();
            tracing::warn!(%path, reason, %aside, "set aside in the cache directory: it cannot be used");
        }
        Err(error) => tracing::warn!(%path, reason, %error, "cannot be used in the cache directory, nor set aside"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_used_is_set_aside_and_the_rest_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for folder in ["code/modules", "compiled", "last-time", "watch-cache.redb.damaged", "src"] {
            std::fs::create_dir_all(path(folder)).unwrap();
        }
        for file in ["modules", "offline-since", "compiled/a", "code/modules/x", "watch-cache.redb"] {
            std::fs::write(path(file), file).unwrap();
        }
        std::os::unix::fs::symlink("/etc/passwd", path("serving-certificate.pem")).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(path("compiled/pipe")).status().unwrap().success());
        let allow = |name: &str, mode| std::fs::set_permissions(path(name), PermissionsExt::from_mode(mode)).unwrap();
        allow("watch-cache.redb", 0o000);
        allow("compiled/a", 0o640);
        // An earlier start.
        std::fs::create_dir_all(path("last-time.unusable/more")).unwrap();
        for _ in 0..2 {
            tidy(folder.path());
            for gone in ["last-time", "modules", "serving-certificate.pem", "compiled/pipe"] {
                assert!(std::fs::symlink_metadata(path(gone)).is_err(), "{gone}");
                assert!(std::fs::symlink_metadata(path(&format!("{gone}.unusable"))).is_ok(), "{gone}");
            }
            assert!(path("last-time.unusable/more").exists() && path("last-time.unusable.1").is_dir());
            assert!(path("src").is_dir(), "what is not Weir's stays");
            for kept in ["offline-since", "compiled/a", "code/modules/x", "watch-cache.redb"] {
                assert_eq!(std::fs::read_to_string(path(kept)).unwrap(), kept);
            }
            assert!(path("watch-cache.redb.damaged").is_dir());
            assert_eq!(path("watch-cache.redb").metadata().unwrap().mode() & 0o777, 0o600);
        }
        allow("code", 0o777);
        tidy(folder.path());
        assert!(!path("code").exists() && path("compiled/a").exists() && path("code.unusable/modules/x").exists());
    }
}
