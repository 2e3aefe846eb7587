//! The file operations, done on the files of another folder. An inode is an open descriptor of a file there, so that it stays the
//! same file when it is renamed or removed.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, chown, lchown};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime};

use fuser::{
    BsdFileFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, InitFlags,
    KernelConfig, LockOwner, OpenAccMode, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory,
    ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, Request, TimeOrNow, WriteFlags,
};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT};

use super::Gate;

/// The name of the file at which the thread stops. No listing shows it.
pub(super) const HELD: &str = ".weir-test-held";
/// Its inode.
const HELD_INODE: u64 = u64::MAX;
/// How long the kernel may use names and attributes without asking.
const LIFE: Duration = Duration::ZERO;
/// Each open file reads its content again: it may have been changed in the backing folder, which causes no event here.
const FRESH: FopenFlags = FopenFlags::empty();
const NEW: Generation = Generation(0);

#[derive(Debug)]
pub(super) struct Passthrough {
    gate: Arc<Gate>,
    /// The inode of the folder itself, which the kernel knows by another number.
    root: u64,
    open: Mutex<Open>,
}

#[derive(Debug)]
struct Open {
    inodes: HashMap<u64, Inode>,
    files: HashMap<u64, Arc<File>>,
    folders: HashMap<u64, Vec<(u64, FileType, std::ffi::OsString)>>,
    next: u64,
}

#[derive(Debug)]
struct Inode {
    /// Opened with `O_PATH`.
    file: File,
    /// The kernel forgets as many.
    lookups: u64,
}

impl Open {
    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
}

fn located(path: &Path) -> io::Result<File> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW;
    OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path)
}

fn bad_handle() -> io::Error {
    io::Error::from_raw_os_error(Errno::EBADF.code())
}

/// The path of what a file is, also if it has no name any more.
fn path_of(file: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

impl Passthrough {
    pub(super) fn new(backing: &Path, gate: Arc<Gate>) -> io::Result<Self> {
        let file = located(backing)?;
        let root = file.metadata()?.ino();
        let inodes = HashMap::from([(INodeNo::ROOT.0, Inode { file, lookups: 1 })]);
        let open = Open { inodes, files: HashMap::new(), folders: HashMap::new(), next: 0 };
        Ok(Self { gate, root, open: Mutex::new(open) })
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap()
    }

    /// Stays valid until the kernel forgets the inode: one thread does both.
    fn path(&self, inode: INodeNo) -> io::Result<PathBuf> {
        self.open().inodes.get(&inode.0).map(|inode| path_of(&inode.file)).ok_or_else(bad_handle)
    }

    fn child(&self, parent: INodeNo, name: &OsStr) -> io::Result<PathBuf> {
        Ok(self.path(parent)?.join(name))
    }

    fn file(&self, handle: FileHandle) -> io::Result<Arc<File>> {
        self.open().files.get(&handle.0).cloned().ok_or_else(bad_handle)
    }

    fn handle(&self, file: File) -> FileHandle {
        let mut open = self.open();
        let number = open.number();
        open.files.insert(number, Arc::new(file));
        FileHandle(number)
    }

    fn attributes(&self, inode: INodeNo) -> io::Result<FileAttr> {
        if inode.0 == HELD_INODE {
            return Ok(held_attributes());
        }
        let open = self.open();
        let file = &open.inodes.get(&inode.0).ok_or_else(bad_handle)?.file;
        self.attributes_of(&file.metadata()?)
    }

    fn attributes_of(&self, metadata: &Metadata) -> io::Result<FileAttr> {
        let time = |seconds: i64, nanoseconds: i64| {
            SystemTime::UNIX_EPOCH + Duration::new(seconds.unsigned_abs(), u32::try_from(nanoseconds).unwrap_or(0))
        };
        Ok(FileAttr {
            ino: INodeNo(if metadata.ino() == self.root { INodeNo::ROOT.0 } else { metadata.ino() }),
            size: metadata.size(),
            blocks: metadata.blocks(),
            atime: time(metadata.atime(), metadata.atime_nsec()),
            mtime: time(metadata.mtime(), metadata.mtime_nsec()),
            ctime: time(metadata.ctime(), metadata.ctime_nsec()),
            crtime: SystemTime::UNIX_EPOCH,
            kind: FileType::from_std(metadata.file_type()).ok_or_else(bad_handle)?,
            perm: u16::try_from(metadata.mode() & 0o7777).map_err(io::Error::other)?,
            nlink: u32::try_from(metadata.nlink()).map_err(io::Error::other)?,
            uid: metadata.uid(),
            gid: metadata.gid(),
            rdev: u32::try_from(metadata.rdev()).map_err(io::Error::other)?,
            blksize: 4096,
            flags: 0,
        })
    }

    /// Counts one more lookup of what is at a path.
    fn entry(&self, path: &Path) -> io::Result<FileAttr> {
        let file = located(path)?;
        let attributes = self.attributes_of(&file.metadata()?)?;
        self.open().inodes.entry(attributes.ino.0).or_insert(Inode { file, lookups: 0 }).lookups += 1;
        Ok(attributes)
    }

    /// The entry of what a client has created.
    fn created(&self, request: &Request, path: &Path, mode: Option<u32>) -> io::Result<FileAttr> {
        lchown(path, Some(request.uid()), Some(request.gid()))?;
        if let Some(mode) = mode {
            // The umask of this process does not count.
            fs::set_permissions(path, Permissions::from_mode(mode & 0o7777))?;
        }
        self.entry(path)
    }

    fn reopen(&self, inode: INodeNo, flags: OpenFlags) -> io::Result<FileHandle> {
        if inode.0 == HELD_INODE {
            return Ok(FileHandle(0));
        }
        let mode = flags.acc_mode();
        let mut options = OpenOptions::new();
        options.read(mode != OpenAccMode::O_WRONLY).write(mode != OpenAccMode::O_RDONLY);
        Ok(self.handle(options.open(self.path(inode)?)?))
    }

    fn list(&self, inode: INodeNo) -> io::Result<FileHandle> {
        let mut entries = vec![(inode.0, FileType::Directory, ".".into()), (inode.0, FileType::Directory, "..".into())];
        for entry in fs::read_dir(self.path(inode)?)? {
            let entry = entry?;
            let kind = FileType::from_std(entry.file_type()?).ok_or_else(bad_handle)?;
            entries.push((std::os::unix::fs::DirEntryExt::ino(&entry), kind, entry.file_name()));
        }
        let mut open = self.open();
        let number = open.number();
        open.folders.insert(number, entries);
        Ok(FileHandle(number))
    }

    fn make(&self, request: &Request, path: &Path, flags: i32, mode: u32) -> io::Result<(FileAttr, FileHandle)> {
        let mut options = OpenOptions::new();
        let is_new = flags & OFlags::EXCL.bits().cast_signed() != 0;
        let file = options.read(true).write(true).create(true).create_new(is_new).truncate(false).open(path)?;
        Ok((self.created(request, path, Some(mode))?, self.handle(file)))
    }

    fn link_to(&self, inode: INodeNo, path: &Path) -> io::Result<FileAttr> {
        rustix::fs::linkat(CWD, self.path(inode)?, CWD, path, AtFlags::SYMLINK_FOLLOW)?;
        self.entry(path)
    }

    fn link_target(&self, inode: INodeNo) -> io::Result<Vec<u8>> {
        let open = self.open();
        let file = &open.inodes.get(&inode.0).ok_or_else(bad_handle)?.file;
        Ok(rustix::fs::readlinkat(file, "", Vec::new())?.into_bytes())
    }

    fn resize(&self, inode: INodeNo, handle: Option<FileHandle>, size: u64) -> io::Result<()> {
        match handle {
            Some(handle) => self.file(handle)?.set_len(size),
            None => OpenOptions::new().write(true).open(self.path(inode)?)?.set_len(size),
        }
    }

    fn forget_some(&self, inode: INodeNo, lookups: u64) {
        let mut open = self.open();
        if let Some(known) = open.inodes.get_mut(&inode.0) {
            known.lookups = known.lookups.saturating_sub(lookups);
            if known.lookups == 0 && inode != INodeNo::ROOT {
                open.inodes.remove(&inode.0);
            }
        }
    }
}

fn held_attributes() -> FileAttr {
    let time = SystemTime::UNIX_EPOCH;
    FileAttr {
        ino: INodeNo(HELD_INODE),
        size: 0,
        blocks: 0,
        atime: time,
        mtime: time,
        ctime: time,
        crtime: time,
        kind: FileType::RegularFile,
        perm: 0o400,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}

fn put_times(path: &Path, accessed: Option<TimeOrNow>, modified: Option<TimeOrNow>) -> io::Result<()> {
    let time = |time: Option<TimeOrNow>| match time {
        None => Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        Some(TimeOrNow::Now) => Timespec { tv_sec: 0, tv_nsec: UTIME_NOW },
        Some(TimeOrNow::SpecificTime(time)) => {
            let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            Timespec { tv_sec: since.as_secs().cast_signed(), tv_nsec: since.subsec_nanos().into() }
        }
    };
    let times = Timestamps { last_access: time(accessed), last_modification: time(modified) };
    Ok(rustix::fs::utimensat(CWD, path, &times, AtFlags::empty())?)
}

fn read_at(file: &File, offset: u64, size: u32) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; size as usize];
    let mut read = 0;
    while read < bytes.len() {
        match file.read_at(&mut bytes[read..], offset + read as u64)? {
            0 => break,
            more => read += more,
        }
    }
    bytes.truncate(read);
    Ok(bytes)
}

/// Sends an error, or what became of the request.
macro_rules! answer {
    ($reply:ident, $result:expr, $value:pat => $sent:expr) => {
        match $result {
            Ok($value) => $sent,
            Err(error) => $reply.error(Errno::from(error)),
        }
    };
}

impl Filesystem for Passthrough {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // Without them a lookup holds a lock of the folder that no other process leaves.
        let wanted = InitFlags::FUSE_AUTO_INVAL_DATA | InitFlags::FUSE_PARALLEL_DIROPS;
        config.add_capabilities(wanted).map_err(|missing| io::Error::other(format!("{missing:?}")))
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let found = match name.to_str() {
            Some(HELD) => Ok(held_attributes()),
            _ => self.child(parent, name).and_then(|path| self.entry(&path)),
        };
        answer!(reply, found, found => reply.entry(&LIFE, &found, NEW));
    }

    fn forget(&self, _: &Request, inode: INodeNo, lookups: u64) {
        self.forget_some(inode, lookups);
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        if inode.0 == HELD_INODE {
            self.gate.pass();
        }
        answer!(reply, self.attributes(inode), found => reply.attr(&LIFE, &found));
    }

    fn setattr(
        &self,
        _: &Request,
        inode: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        accessed: Option<TimeOrNow>,
        modified: Option<TimeOrNow>,
        _: Option<SystemTime>,
        handle: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let done = || {
            let path = self.path(inode)?;
            if uid.is_some() || gid.is_some() {
                chown(&path, uid, gid)?;
            }
            mode.map_or(Ok(()), |mode| fs::set_permissions(&path, Permissions::from_mode(mode & 0o7777)))?;
            size.map_or(Ok(()), |size| self.resize(inode, handle, size))?;
            if accessed.is_some() || modified.is_some() {
                put_times(&path, accessed, modified)?;
            }
            self.attributes(inode)
        };
        answer!(reply, done(), found => reply.attr(&LIFE, &found));
    }

    fn readlink(&self, _: &Request, inode: INodeNo, reply: ReplyData) {
        answer!(reply, self.link_target(inode), target => reply.data(&target));
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        device: u32,
        reply: ReplyEntry,
    ) {
        let done = || {
            let (path, kind) = (self.child(parent, name)?, rustix::fs::FileType::from_raw_mode(mode));
            rustix::fs::mknodat(CWD, &path, kind, Mode::from_raw_mode(mode & !umask), device.into())?;
            self.created(request, &path, Some(mode & !umask))
        };
        answer!(reply, done(), found => reply.entry(&LIFE, &found, NEW));
    }

    fn mkdir(&self, request: &Request, parent: INodeNo, name: &OsStr, mode: u32, umask: u32, reply: ReplyEntry) {
        let done = || {
            let path = self.child(parent, name)?;
            fs::create_dir(&path)?;
            self.created(request, &path, Some(mode & !umask))
        };
        answer!(reply, done(), found => reply.entry(&LIFE, &found, NEW));
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer!(reply, self.child(parent, name).and_then(fs::remove_file), () => reply.ok());
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer!(reply, self.child(parent, name).and_then(fs::remove_dir), () => reply.ok());
    }

    fn symlink(&self, request: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        let done = || {
            let path = self.child(parent, name)?;
            std::os::unix::fs::symlink(target, &path)?;
            self.created(request, &path, None)
        };
        answer!(reply, done(), found => reply.entry(&LIFE, &found, NEW));
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        to: INodeNo,
        new: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let done = || {
            let flags = rustix::fs::RenameFlags::from_bits_retain(flags.bits());
            rustix::fs::renameat_with(CWD, self.child(parent, name)?, CWD, self.child(to, new)?, flags)?;
            Ok::<_, io::Error>(())
        };
        answer!(reply, done(), () => reply.ok());
    }

    fn link(&self, _: &Request, inode: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let done = self.child(parent, name).and_then(|path| self.link_to(inode, &path));
        answer!(reply, done, found => reply.entry(&LIFE, &found, NEW));
    }

    fn open(&self, _: &Request, inode: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        answer!(reply, self.reopen(inode, flags), handle => reply.opened(handle, FRESH));
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let done = self.child(parent, name).and_then(|path| self.make(request, &path, flags, mode & !umask));
        answer!(reply, done, (found, handle) => reply.created(&LIFE, &found, NEW, handle, FRESH));
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let done = self.file(handle).and_then(|file| read_at(&file, offset, size));
        answer!(reply, done, bytes => reply.data(&bytes));
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let done = self.file(handle).and_then(|file| file.write_all_at(data, offset));
        answer!(reply, done, () => reply.written(u32::try_from(data.len()).unwrap_or(u32::MAX)));
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.error(Errno::ENOSYS);
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        self.open().files.remove(&handle.0);
        reply.ok();
    }

    fn fsync(&self, _: &Request, _: INodeNo, handle: FileHandle, _: bool, reply: ReplyEmpty) {
        answer!(reply, self.file(handle).and_then(|file| file.sync_all()), () => reply.ok());
    }

    fn opendir(&self, _: &Request, inode: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        answer!(reply, self.list(inode), handle => reply.opened(handle, FRESH));
    }

    fn readdir(&self, _: &Request, _: INodeNo, handle: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let open = self.open();
        let entries = open.folders.get(&handle.0).map(Vec::as_slice).unwrap_or_default();
        for (at, (inode, kind, name)) in (1..).zip(entries).skip(usize::try_from(offset).unwrap_or(usize::MAX)) {
            if reply.add(INodeNo(*inode), at, *kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn releasedir(&self, _: &Request, _: INodeNo, handle: FileHandle, _: OpenFlags, reply: ReplyEmpty) {
        self.open().folders.remove(&handle.0);
        reply.ok();
    }

    fn fsyncdir(&self, _: &Request, inode: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        let done = self.path(inode).and_then(File::open).and_then(|folder| folder.sync_all());
        answer!(reply, done, () => reply.ok());
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        let found = self.path(INodeNo::ROOT).and_then(|path| Ok(rustix::fs::statvfs(path)?));
        let small = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        answer!(reply, found, found => reply.statfs(
            found.f_blocks,
            found.f_bfree,
            found.f_bavail,
            found.f_files,
            found.f_ffree,
            small(found.f_bsize),
            small(found.f_namemax),
            small(found.f_frsize),
        ));
    }
}
