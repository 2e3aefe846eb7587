//! A folder whose file system stops answering, as NFS and CephFS do: FUSE over a folder of this machine.
//!
//! One thread answers one request after another, and a hang stops it. Later requests wait in the kernel, where a process that is
//! killed can leave them, as with NFS. So the only request that the thread holds is one of its own, on a file that nobody else
//! sees and that no lock of the kernel covers. FLUSH is not implemented: the kernel lets no process leave that one.
//!
//! The kernel asks for names and attributes each time, and for content each time that a file is opened. A change of the backing
//! folder is seen at once and causes no event, like one by another machine.

mod passthrough;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;

use fuser::{BackgroundSession, Config, MountOption, Session, SessionACL};
use nix::mount::{MntFlags, umount2};

use self::passthrough::{HELD, Passthrough};
use crate::plane::{skipped, skipped_part};

/// The mounted folder. Dropping it fails all requests and unmounts it, so that no process waits for it any more.
#[derive(Debug)]
pub struct HangingFolder {
    mount: tempfile::TempDir,
    gate: Arc<Gate>,
    session: Option<BackgroundSession>,
    /// The file whose attributes the thread does not return while it hangs.
    held: Option<File>,
    /// Waits for them.
    waiting: Option<JoinHandle<()>>,
}

/// Stops the thread that answers.
#[derive(Debug, Default)]
struct Gate {
    state: Mutex<GateState>,
    changed: Condvar,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum GateState {
    /// Requests are answered.
    #[default]
    Open,
    /// The next request for the held file stops the thread.
    Closing,
    /// The thread has stopped.
    Closed,
}

impl Gate {
    fn put(&self, state: GateState) {
        *self.state.lock().unwrap() = state;
        self.changed.notify_all();
    }

    fn wait_while(&self, state: GateState) {
        let waited = self.changed.wait_while(self.state.lock().unwrap(), |now| *now == state);
        drop(waited.unwrap());
    }

    /// Stops the calling thread if the gate is to be closed, until it is opened.
    fn pass(&self) {
        if *self.state.lock().unwrap() == GateState::Closing {
            self.put(GateState::Closed);
            self.wait_while(GateState::Closed);
        }
    }
}

impl HangingFolder {
    /// Mounts a view of `backing`. Returns `None` and reports the skipped test if this machine cannot mount it.
    ///
    /// # Panics
    /// If it cannot be mounted though the kernel has FUSE, and `CI` is set.
    #[must_use]
    pub fn new(backing: &Path) -> Option<Self> {
        let (mount, gate) = (tempfile::tempdir().unwrap(), Arc::<Gate>::default());
        let files = Passthrough::new(backing, gate.clone()).unwrap();
        let mut config = Config::default();
        config.mount_options = vec![MountOption::FSName("weir-test".to_owned()), MountOption::DefaultPermissions];
        config.acl = SessionACL::All;
        let session = match Session::new(files, mount.path(), &config).and_then(Session::spawn) {
            Ok(session) => session,
            // Nothing that the project installs gives it to a kernel.
            Err(error) if !Path::new("/dev/fuse").exists() => {
                skipped_part("fuse", &format!("this machine has no /dev/fuse: {error}"));
                return None;
            }
            Err(error) => {
                skipped(&format!("no FUSE file system can be mounted here: {error}"));
                return None;
            }
        };
        let mut folder = Self { mount, gate, session: Some(session), held: None, waiting: None };
        let held = File::open(folder.path().join(HELD)).unwrap();
        // After the first close, the kernel knows that there is no FLUSH.
        drop(held.try_clone().unwrap());
        folder.held = Some(held);
        Some(folder)
    }

    /// The mount point.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.mount.path()
    }

    /// The path of a file below it.
    #[must_use]
    pub fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.path().join(name)
    }

    /// From now on no request is answered.
    ///
    /// # Panics
    /// If it hangs already.
    pub fn hang(&mut self) {
        assert!(self.waiting.is_none(), "it hangs already");
        let held = self.held.as_ref().unwrap().try_clone().unwrap();
        self.gate.put(GateState::Closing);
        self.waiting = Some(std::thread::spawn(move || drop(held.metadata())));
        self.gate.wait_while(GateState::Closing);
    }

    /// Answers all requests that wait, and later ones.
    pub fn release(&mut self) {
        self.gate.put(GateState::Open);
        if let Some(waiting) = self.waiting.take() {
            waiting.join().unwrap();
        }
    }
}

impl Drop for HangingFolder {
    fn drop(&mut self) {
        // FORCE fails all requests. DETACH does not mind processes that have files open.
        let _ = umount2(self.path(), MntFlags::MNT_FORCE | MntFlags::MNT_DETACH);
        self.release();
        self.held = None;
        if let Some(session) = self.session.take() {
            let _ = session.umount_and_join();
        }
    }
}
