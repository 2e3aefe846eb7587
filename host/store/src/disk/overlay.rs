//! A read-only storage. redb's writes, to repair a file that was not closed or within a transaction, stay in memory.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redb::StorageBackend;

/// What is kept of one write at least.
const PAGE: u64 = 4096;
/// The most pages in memory: 64 MiB.
const MAX_PAGES: usize = 16 << 10;

/// Reads from a storage, and writes to memory.
#[derive(Debug)]
pub(super) struct Overlay {
    base: Arc<dyn StorageBackend>,
    written: Mutex<Written>,
}

#[derive(Debug)]
struct Written {
    length: u64,
    /// What of the base still counts.
    base: u64,
    pages: HashMap<u64, Vec<u8>>,
}

impl Overlay {
    pub(super) fn new(base: Arc<dyn StorageBackend>) -> io::Result<Self> {
        let length = base.len()?;
        let written = Mutex::new(Written { length, base: length, pages: HashMap::new() });
        Ok(Self { base, written })
    }

    fn written(&self) -> MutexGuard<'_, Written> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A page of the base, filled up with zeros.
    fn base_page(&self, number: u64, end: u64) -> io::Result<Vec<u8>> {
        let start = number * PAGE;
        let length = end.saturating_sub(start).min(PAGE);
        let mut page = vec![0; to_usize(length)?];
        if length > 0 {
            self.base.read(start, &mut page)?;
        }
        page.resize(to_usize(PAGE)?, 0);
        Ok(page)
    }
}

/// The pages that a range touches, each with the part of the page and of the range.
fn parts(offset: u64, length: usize) -> impl Iterator<Item = (u64, std::ops::Range<usize>, std::ops::Range<usize>)> {
    let end = offset + length as u64;
    (offset / PAGE..end.div_ceil(PAGE)).filter_map(move |number| {
        let start = number * PAGE;
        let (from, to) = (start.max(offset), (start + PAGE).min(end));
        let of_page = to_usize(from - start).ok()?..to_usize(to - start).ok()?;
        let of_range = to_usize(from - offset).ok()?..to_usize(to - offset).ok()?;
        Some((number, of_page, of_range))
    })
}

fn to_usize(number: u64) -> io::Result<usize> {
    usize::try_from(number).map_err(io::Error::other)
}

fn outside() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "outside of the file")
}

impl StorageBackend for Overlay {
    fn len(&self) -> io::Result<u64> {
        Ok(self.written().length)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let written = self.written();
        if offset.saturating_add(out.len() as u64) > written.length {
            return Err(outside());
        }
        for (number, of_page, of_range) in parts(offset, out.len()) {
            let of_base;
            let page = match written.pages.get(&number) {
                Some(page) => page,
                None => {
                    of_base = self.base_page(number, written.base)?;
                    &of_base
                }
            };
            let (from, to) = (page.get(of_page).ok_or_else(outside)?, out.get_mut(of_range).ok_or_else(outside)?);
            to.copy_from_slice(from);
        }
        Ok(())
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        let mut written = self.written();
        written.base = written.base.min(length);
        written.length = length;
        written.pages.retain(|number, _| number * PAGE < length);
        // What is cut off reads as zeros when the file grows again.
        if let Some(last) = written.pages.get_mut(&(length / PAGE)) {
            last.truncate(to_usize(length % PAGE)?);
            last.resize(to_usize(PAGE)?, 0);
        }
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut written = self.written();
        written.length = written.length.max(offset.saturating_add(data.len() as u64));
        for (number, of_page, of_range) in parts(offset, data.len()) {
            if !written.pages.contains_key(&number) {
                if written.pages.len() >= MAX_PAGES {
                    return Err(io::ErrorKind::StorageFull.into());
                }
                let page = self.base_page(number, written.base)?;
                written.pages.insert(number, page);
            }
            let page = written.pages.get_mut(&number).ok_or_else(outside)?;
            let (from, to) = (data.get(of_range).ok_or_else(outside)?, page.get_mut(of_page).ok_or_else(outside)?);
            to.copy_from_slice(from);
        }
        Ok(())
    }

    fn close(&self) -> io::Result<()> {
        self.base.close()
    }
}
