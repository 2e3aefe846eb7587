//! The file behind a path is followed, however it is replaced, and never half of it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests: a panic is the report")]

use std::io::Write as _;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use weir_process::{FileRead, WatchedFiles};

/// The time between two looks that no event causes.
const SCAN: Duration = Duration::from_secs(5);
/// The largest file.
const LIMIT: usize = 1 << 20;

/// A folder with a file, and its follower.
async fn followed(path: &Path, content: &str) -> WatchedFiles {
    std::fs::write(path, content).unwrap();
    let files = WatchedFiles::new([(path.to_owned(), LIMIT)]);
    assert_eq!(settled(&files, path).await.as_deref(), Some(content));
    files.begin().await;
    files
}

/// Reads a file that nobody is writing.
async fn settled(files: &WatchedFiles, path: &Path) -> Option<String> {
    loop {
        match files.read(path, LIMIT, Duration::ZERO).await {
            Ok(FileRead::Complete(bytes)) => return Some(String::from_utf8(bytes).unwrap()),
            Ok(FileRead::BeingWritten) => tokio::time::sleep(Duration::from_millis(20)).await,
            Err(_) => return None,
        }
    }
}

/// An event reported the change, not a scan.
async fn assert_changed(files: &WatchedFiles) {
    let began = Instant::now();
    tokio::time::timeout(4 * SCAN, files.changed()).await.expect("a change is reported");
    assert!(began.elapsed() < SCAN - Duration::from_secs(1), "only a scan has found it: {:?}", began.elapsed());
}

async fn assert_unchanged(files: &WatchedFiles) {
    assert!(tokio::time::timeout(Duration::from_millis(500), files.changed()).await.is_err(), "nothing has changed");
}

/// Files that hold one way each to the same content, and what replaces it.
struct Case {
    name: &'static str,
    /// Returns the path to follow.
    prepare: fn(&Path) -> PathBuf,
    replace: fn(&Path),
}

fn write(path: &Path, content: &str) {
    std::fs::write(path, content).unwrap();
}

fn rename(from: &Path, to: &Path) {
    std::fs::rename(from, to).unwrap();
}

fn folder(path: &Path, content: &str) {
    std::fs::create_dir_all(path).unwrap();
    write(&path.join("file"), content);
}

const CASES: &[Case] = &[
    Case {
        name: "renamed into place",
        prepare: |root| root.join("file"),
        replace: |root| {
            write(&root.join("aside"), "new");
            rename(&root.join("aside"), &root.join("file"));
        },
    },
    Case {
        name: "written in place",
        prepare: |root| root.join("file"),
        replace: |root| write(&root.join("file"), "new"),
    },
    Case {
        name: "kubelet's swap of the link ..data",
        prepare: |root| {
            folder(&root.join("..1"), "old");
            folder(&root.join("..2"), "new");
            symlink("..1", root.join("..data")).unwrap();
            symlink("..data/file", root.join("link")).unwrap();
            root.join("link")
        },
        replace: |root| {
            symlink("..2", root.join("..tmp")).unwrap();
            rename(&root.join("..tmp"), &root.join("..data"));
        },
    },
    Case {
        name: "the folder removed and made again",
        prepare: |root| {
            folder(&root.join("folder"), "old");
            root.join("folder/file")
        },
        replace: |root| {
            std::fs::remove_dir_all(root.join("folder")).unwrap();
            folder(&root.join("folder"), "new");
        },
    },
    Case {
        name: "the folder behind a link that is swapped",
        prepare: |root| {
            folder(&root.join("one"), "old");
            folder(&root.join("two"), "new");
            symlink("one", root.join("now")).unwrap();
            root.join("now/file")
        },
        replace: |root| {
            symlink("two", root.join("next")).unwrap();
            rename(&root.join("next"), &root.join("now"));
        },
    },
    Case {
        name: "a link to a file elsewhere that is replaced there",
        prepare: |root| {
            folder(&root.join("elsewhere"), "old");
            symlink("elsewhere/file", root.join("link")).unwrap();
            root.join("link")
        },
        replace: |root| {
            write(&root.join("elsewhere/aside"), "new");
            rename(&root.join("elsewhere/aside"), &root.join("elsewhere/file"));
        },
    },
    Case {
        name: "a folder above renamed away and another in its place",
        prepare: |root| {
            folder(&root.join("above/below"), "old");
            folder(&root.join("other/below"), "new");
            root.join("above/below/file")
        },
        replace: |root| {
            rename(&root.join("above"), &root.join("away"));
            rename(&root.join("other"), &root.join("above"));
        },
    },
    Case {
        name: "the time set back",
        prepare: |root| root.join("file"),
        replace: |root| {
            let file = root.join("file");
            let before = std::fs::metadata(&file).unwrap().modified().unwrap();
            write(&file, "new");
            std::fs::File::options().write(true).open(&file).unwrap().set_modified(before).unwrap();
        },
    },
];

#[tokio::test]
async fn a_file_is_followed_however_it_is_replaced() {
    for Case { name, prepare, replace } in CASES {
        let root = TempDir::new().unwrap();
        write(&root.path().join("file"), "old");
        let path = prepare(root.path());
        let files = WatchedFiles::new([(path.clone(), LIMIT)]);
        assert_eq!(settled(&files, &path).await.as_deref(), Some("old"), "{name}");
        files.begin().await;
        // Each watch goes on after a change.
        for turn in 0..2 {
            println!("{name}, {turn}");
            if turn > 0 {
                write(&path, "old");
                assert_changed(&files).await;
                assert_eq!(settled(&files, &path).await.as_deref(), Some("old"), "{name}");
                write(&path, "new");
            } else {
                replace(root.path());
            }
            assert_changed(&files).await;
            assert_eq!(settled(&files, &path).await.as_deref(), Some("new"), "{name}");
        }
        write(&root.path().join("neighbour"), "x");
        assert_unchanged(&files).await;
    }
}

#[tokio::test]
async fn a_file_counts_when_it_is_closed_for_all_readers() {
    let root = TempDir::new().unwrap();
    let path = root.path().join("file");
    let files = followed(&path, "all of it").await;
    let mut writer = std::fs::File::create(&path).unwrap();
    for part in ["half ", "of ", "it"] {
        writer.write_all(part.as_bytes()).unwrap();
        assert_unchanged(&files).await;
        assert!(matches!(files.read(&path, LIMIT, Duration::ZERO).await, Ok(FileRead::BeingWritten)));
        assert_eq!(files.read_soon(&path, LIMIT).await.unwrap_err().kind(), std::io::ErrorKind::ResourceBusy);
    }
    drop(writer);
    assert_changed(&files).await;
    assert_eq!(files.read_soon(&path, LIMIT).await.unwrap(), b"half of it");
    assert_eq!(settled(&files, &path).await.as_deref(), Some("half of it"));
}

#[tokio::test]
async fn a_file_that_replaces_one_that_is_being_written_counts() {
    let root = TempDir::new().unwrap();
    let path = root.path().join("file");
    let files = followed(&path, "old").await;
    let mut former = std::fs::File::options().append(true).open(&path).unwrap();
    former.write_all(b"er").unwrap();
    write(&root.path().join("aside"), "new");
    rename(&root.path().join("aside"), &path);
    assert_changed(&files).await;
    // It has no name any more.
    former.write_all(b"est").unwrap();
    assert_unchanged(&files).await;
    assert_eq!(settled(&files, &path).await.as_deref(), Some("new"));
}

#[tokio::test]
async fn files_and_folders_may_come_and_go() {
    let root = TempDir::new().unwrap();
    let path = root.path().join("late/file");
    let files = WatchedFiles::new([(path.clone(), LIMIT)]);
    assert_eq!(settled(&files, &path).await, None);
    assert_unchanged(&files).await;
    folder(&root.path().join("late"), "here");
    assert_changed(&files).await;
    assert_eq!(settled(&files, &path).await.as_deref(), Some("here"));
    std::fs::remove_dir_all(root.path().join("late")).unwrap();
    assert_changed(&files).await;
    assert_eq!(settled(&files, &path).await, None);
}

#[tokio::test]
async fn content_that_the_owner_has_read_is_no_change_and_a_newly_followed_file_is_none() {
    let root = TempDir::new().unwrap();
    let (path, other) = (root.path().join("file"), root.path().join("other"));
    let files = followed(&path, "one").await;
    write(&path, "two");
    assert_eq!(settled(&files, &path).await.as_deref(), Some("two"));
    assert_unchanged(&files).await;
    write(&other, "x");
    files.follow([(path.clone(), LIMIT), (other.clone(), LIMIT)]);
    assert_eq!(settled(&files, &other).await.as_deref(), Some("x"));
    assert_unchanged(&files).await;
    write(&other, "y");
    assert_changed(&files).await;
    files.follow([(path.clone(), LIMIT)]);
    write(&other, "z");
    assert_unchanged(&files).await;
    write(&path, "three");
    assert_changed(&files).await;
}

#[tokio::test]
async fn a_folder_is_followed_by_its_entries() {
    let root = TempDir::new().unwrap();
    write(&root.path().join("a"), "before");
    let files = WatchedFiles::new([(root.path().to_owned(), 0)]);
    files.begin().await;
    write(&root.path().join("a"), "x");
    assert_changed(&files).await;
    // Longer than the times of files may be the same.
    tokio::time::sleep(Duration::from_millis(2500)).await;
    assert_unchanged(&files).await;
    write(&root.path().join("a"), "yy");
    assert_changed(&files).await;
    tokio::time::sleep(Duration::from_millis(2500)).await;
    assert_unchanged(&files).await;
    let mut slow = std::fs::File::create(root.path().join("a")).unwrap();
    slow.write_all(b"half").unwrap();
    assert_unchanged(&files).await;
    drop(slow);
    assert_changed(&files).await;
    std::fs::remove_file(root.path().join("a")).unwrap();
    assert_changed(&files).await;
    assert_unchanged(&files).await;
}

#[tokio::test]
async fn a_file_that_is_too_large_is_not_read_and_another_one_counts() {
    let root = TempDir::new().unwrap();
    let path = root.path().join("file");
    let files = followed(&path, "small").await;
    std::fs::File::create(&path).unwrap().set_len(1 << 40).unwrap();
    assert_changed(&files).await;
    let error = files.read(&path, LIMIT, Duration::ZERO).await.unwrap_err();
    assert_eq!(error.to_string(), format!("it has {} bytes, and at most {LIMIT} are read", 1_u64 << 40));
    assert_unchanged(&files).await;
    write(&path, "small again");
    assert_changed(&files).await;
}
