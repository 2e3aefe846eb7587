use std::fs;
use std::io::{Read as _, Seek as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt, symlink};
use std::process::{Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant, SystemTime};

use super::HangingFolder;
use crate::client::PATIENCE;

fn folder() -> Option<(tempfile::TempDir, HangingFolder)> {
    let backing = tempfile::tempdir().unwrap();
    let folder = HangingFolder::new(backing.path())?;
    Some((backing, folder))
}

#[test]
fn files_are_those_of_the_backing_folder() {
    let Some((backing, folder)) = folder() else { return };
    let file = folder.join("file");
    fs::write(&file, "one").unwrap();
    assert_eq!(fs::read(backing.path().join("file")).unwrap(), b"one");
    // A rename over another file, and a file without a name.
    fs::write(folder.join("aside"), "two, longer").unwrap();
    let mut old = fs::File::options().read(true).append(true).open(&file).unwrap();
    fs::rename(folder.join("aside"), &file).unwrap();
    assert_eq!(fs::read_to_string(&file).unwrap(), "two, longer");
    old.write_all(b" more").unwrap();
    old.rewind().unwrap();
    let mut text = String::new();
    old.read_to_string(&mut text).unwrap();
    assert_eq!(text, "one more");
    old.sync_all().unwrap();
    // In place and shorter.
    fs::write(&file, "3").unwrap();
    assert_eq!((fs::read_to_string(&file).unwrap().as_str(), fs::metadata(&file).unwrap().len()), ("3", 1));
    fs::set_permissions(&file, PermissionsExt::from_mode(0o640)).unwrap();
    let time = SystemTime::UNIX_EPOCH + Duration::new(1_000_000, 123_456_789);
    fs::File::options().write(true).open(&file).unwrap().set_times(fs::FileTimes::new().set_modified(time)).unwrap();
    let metadata = fs::metadata(&file).unwrap();
    assert_eq!((metadata.mode() & 0o777, metadata.modified().unwrap()), (0o640, time));
    fs::remove_file(&file).unwrap();
    assert!(!backing.path().join("file").exists());
    assert_eq!(fs::File::create_new(&file).unwrap().metadata().unwrap().len(), 0);
    assert!(fs::File::create_new(&file).is_err());
}

#[test]
fn folders_and_links_are_those_of_the_backing_folder() {
    let Some((backing, folder)) = folder() else { return };
    fs::create_dir_all(folder.join("a/b")).unwrap();
    symlink("a/b", folder.join("link")).unwrap();
    assert_eq!(fs::read_link(folder.join("link")).unwrap(), std::path::Path::new("a/b"));
    for n in 0..500 {
        fs::write(folder.join(format!("link/file-{n:03}")), "x").unwrap();
    }
    fs::hard_link(folder.join("a/b/file-000"), folder.join("hard")).unwrap();
    assert_eq!(fs::metadata(folder.join("hard")).unwrap().nlink(), 2);
    let mut names: Vec<_> = fs::read_dir(folder.join("a/b")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!((names.len(), names[499].to_str()), (500, Some("file-499")));
    fs::File::open(folder.join("a/b")).unwrap().sync_all().unwrap();
    fs::rename(folder.join("a"), folder.join("c")).unwrap();
    assert!(!folder.join("link/file-000").exists() && backing.path().join("c/b/file-000").exists());
    assert!(fs::remove_dir(folder.join("c")).is_err(), "it is not empty");
    fs::remove_dir_all(folder.join("c")).unwrap();
    let names: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names.len(), 2, "the held file is not shown: {names:?}");
}

#[test]
fn a_lock_excludes_others() {
    let Some((_backing, folder)) = folder() else { return };
    let (one, other) = (fs::File::create(folder.join("lock")).unwrap(), fs::File::open(folder.join("lock")).unwrap());
    one.lock().unwrap();
    assert!(other.try_lock().is_err());
    drop(one);
    // A process that another test is starting may still have a copy.
    other.lock().unwrap();
}

#[test]
fn requests_wait_while_it_hangs() {
    let Some((_backing, mut folder)) = folder() else { return };
    fs::write(folder.join("file"), "text").unwrap();
    for _ in 0..3 {
        folder.hang();
        let (sender, answers) = channel();
        for n in 0..4 {
            let (path, list, sender) = (folder.join("file"), folder.path().to_owned(), sender.clone());
            std::thread::spawn(move || {
                let is_there = match n {
                    0 => fs::metadata(path).is_ok(),
                    1 => fs::read(path).is_ok(),
                    2 => fs::write(path, "text").is_ok(),
                    _ => fs::read_dir(list).is_ok(),
                };
                sender.send(is_there).unwrap();
            });
        }
        assert_eq!(answers.recv_timeout(Duration::from_millis(200)), Err(RecvTimeoutError::Timeout));
        folder.release();
        for _ in 0..4 {
            assert!(answers.recv_timeout(PATIENCE).unwrap());
        }
    }
}

/// As a mounted NFS server lets them: a test whose daemon is killed goes on.
#[test]
fn a_process_that_waits_can_be_killed_and_the_folder_dropped() {
    let Some((_backing, mut folder)) = folder() else { return };
    fs::write(folder.join("file"), "text").unwrap();
    let script = r#"exec 3<"$0/file"; echo ready; read x; exec cat "$0/file""#;
    let mut command = Command::new("sh");
    command.args(["-c", script]).arg(folder.path()).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut children: Vec<_> = (0..2).map(|_| command.spawn().unwrap()).collect();
    for child in &mut children {
        child.stdout.as_mut().unwrap().read_exact(&mut [0; 6]).unwrap();
    }
    folder.hang();
    for child in &mut children {
        child.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    }
    for child in &children {
        let (waits, begun) = (format!("/proc/{}/wchan", child.id()), Instant::now());
        while !fs::read_to_string(&waits).unwrap().contains("request_wait") {
            assert!(begun.elapsed() < PATIENCE, "it does not wait");
            std::thread::yield_now();
        }
    }
    children[0].kill().unwrap();
    children[0].wait().unwrap();
    drop(folder);
    assert!(!children[1].wait().unwrap().success(), "its request fails");
}
