//! A storage that is only read.

use redb::StorageBackend as _;

use super::storage::MemoryStorage;
use super::*;
use crate::disk::overlay::Overlay;

/// Random writes and lengths, compared with a plain vector. The base stays as it was.
#[test]
fn it_reads_what_was_written_and_the_base_stays() {
    let data: Vec<u8> = (0..20_000).map(|at| random(at).to_le_bytes()[0]).collect();
    let base = MemoryStorage::new(data.clone());
    let overlay = Overlay::new(base.clone()).unwrap();
    let mut model = data.clone();
    for step in 0..400 {
        let (what, offset, length) = (random(step), random(step + 1000) % 30_000, random(step + 2000) % 9000);
        let (start, end) = (usize::try_from(offset).unwrap(), usize::try_from(offset + length).unwrap());
        if what % 8 == 0 {
            overlay.set_len(offset).unwrap();
            model.resize(start, 0);
        } else if what % 2 == 0 {
            let bytes: Vec<u8> = (0..length).map(|at| random(at ^ (step << 20)).to_le_bytes()[0]).collect();
            overlay.write(offset, &bytes).unwrap();
            model.resize(model.len().max(end), 0);
            model[start..end].copy_from_slice(&bytes);
        } else {
            let mut out = vec![0; end - start];
            let read = overlay.read(offset, &mut out);
            assert_eq!(read.is_ok(), end <= model.len(), "{step}");
            assert!(read.is_err() || out == model[start..end], "{step}");
        }
        assert_eq!(overlay.len().unwrap(), model.len() as u64);
    }
    assert_eq!(*base.data.lock().unwrap(), data);
}
