//! An OCI image layout in one tar file: manifests, and blobs named by their digests. Each blob that is read has the digest of
//! its name.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::path::Path;

use bytes::Bytes;
use weir_spec::{Digest, MAX_MODULE};

use crate::manifest::{Descriptor, Index};

/// The largest file in bytes: a module, and 16 MiB for its manifests and signatures.
pub const MAX_LAYOUT: u64 = (MAX_MODULE + (16 << 20)) as u64;
/// The most files in it.
const MAX_FILES: usize = 256;
/// The name of a blob.
const BLOBS: &str = "blobs/sha256/";

/// Manifests and blobs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Layout {
    manifests: Vec<Descriptor>,
    blobs: BTreeMap<Digest, Bytes>,
}

/// The annotation with a manifest's tag.
const TAG: &str = "org.opencontainers.image.ref.name";

/// Why a file is no layout.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LayoutError {
    /// It cannot be read or written, or is no tar file.
    #[error(transparent)]
    File(#[from] io::Error),
    /// It is larger than any module with its signatures.
    #[error("it is larger than {MAX_LAYOUT} bytes, or has more than {MAX_FILES} files")]
    TooLarge,
    /// A blob has been altered.
    #[error("{named} in it has the digest {found}: it is damaged")]
    Altered {
        /// The name of the blob.
        named: Digest,
        /// What it is.
        found: Digest,
    },
    /// It has no index.
    #[error("it is not an OCI layout: its index.json is missing or malformed")]
    Index,
}

impl Layout {
    /// Reads a layout. Every blob is verified.
    ///
    /// # Errors
    /// It is no layout, or too large, or damaged.
    pub fn read(reader: impl Read) -> Result<Self, LayoutError> {
        let mut layout = Self::default();
        let mut index = None;
        let mut archive = tar::Archive::new(reader.take(MAX_LAYOUT + 1));
        let mut total = 0;
        for (count, entry) in archive.entries()?.enumerate() {
            let mut entry = entry?;
            total += entry.size();
            if count >= MAX_FILES || total > MAX_LAYOUT {
                return Err(LayoutError::TooLarge);
            }
            if !entry.header().entry_type().is_file() {
                continue;
            }
            let path = entry.path()?.to_string_lossy().trim_start_matches("./").to_owned();
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes)?;
            if path == "index.json" {
                index = Some(serde_json::from_slice::<Index>(&bytes).map_err(|_| LayoutError::Index)?);
            } else if let Some(named) = path.strip_prefix(BLOBS).and_then(|hex| format!("sha256:{hex}").parse().ok()) {
                let found = layout.add(bytes.into());
                if found != named {
                    return Err(LayoutError::Altered { named, found });
                }
            }
        }
        layout.manifests = index.ok_or(LayoutError::Index)?.manifests;
        Ok(layout)
    }

    /// Reads the layout in a file.
    ///
    /// # Errors
    /// As [`Layout::read`].
    pub fn open(path: &Path) -> Result<Self, LayoutError> {
        let file = std::fs::File::open(path)?;
        if !file.metadata()?.is_file() {
            return Err(io::Error::other("it is not a regular file").into());
        }
        Self::read(io::BufReader::new(file))
    }

    /// Writes the layout. The same content gives the same bytes.
    ///
    /// # Errors
    /// The writer fails.
    pub(crate) fn write(&self, writer: impl Write) -> io::Result<()> {
        let mut archive = tar::Builder::new(writer);
        append(&mut archive, "oci-layout", br#"{"imageLayoutVersion":"1.0.0"}"#)?;
        let index = Index { schema_version: 2, manifests: self.manifests.clone() };
        append(&mut archive, "index.json", &serde_json::to_vec(&index)?)?;
        for (digest, bytes) in &self.blobs {
            append(&mut archive, &format!("{BLOBS}{}", digest.hex()), bytes)?;
        }
        archive.into_inner()?.flush()
    }

    /// Writes the layout to a file, which is complete or not there.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn save(&self, path: &Path) -> io::Result<()> {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let part = path.with_extension("part");
        let file = std::fs::File::create(&part)?;
        self.write(io::BufWriter::new(&file))?;
        file.sync_all()?;
        std::fs::rename(&part, path)?;
        std::fs::File::open(folder)?.sync_all()
    }

    /// Returns a blob or a manifest.
    #[must_use]
    pub(crate) fn blob(&self, digest: &Digest) -> Option<&Bytes> {
        self.blobs.get(digest)
    }

    /// Returns all that is content: what no manifest of the index is.
    pub(crate) fn blobs(&self) -> impl Iterator<Item = (&Digest, &Bytes)> {
        let is_manifest = |digest: &Digest| self.manifests.iter().any(|manifest| manifest.digest == digest.to_string());
        self.blobs.iter().filter(move |(digest, _)| !is_manifest(digest))
    }

    /// Returns the manifests in the order in which they refer to each other, with their tags.
    pub(crate) fn manifests(&self) -> impl Iterator<Item = (&Descriptor, &Bytes, Option<&str>)> {
        self.manifests.iter().filter_map(|manifest| {
            let bytes = self.blobs.get(&manifest.digest.parse().ok()?)?;
            let tag = manifest.annotations.as_ref().and_then(|annotations| annotations.get(TAG));
            Some((manifest, bytes, tag.map(String::as_str)))
        })
    }

    /// Returns the digests of the artifacts: the first manifest, and what others name as their subject.
    #[must_use]
    pub fn first(&self) -> Option<Digest> {
        self.manifests.first()?.digest.parse().ok()
    }

    pub(crate) fn add(&mut self, blob: Bytes) -> Digest {
        let digest = Digest::of(&blob);
        self.blobs.insert(digest, blob);
        digest
    }

    pub(crate) fn add_manifest(&mut self, media_type: &str, manifest: Bytes, tag: Option<&str>) -> Digest {
        // A manifest that exists is far smaller than its type's bound.
        let size = i64::try_from(manifest.len()).unwrap_or(i64::MAX);
        let digest = self.add(manifest);
        let annotations = tag.map(|tag| BTreeMap::from([(TAG.to_owned(), tag.to_owned())]));
        self.manifests.push(Descriptor {
            media_type: media_type.to_owned(),
            digest: digest.to_string(),
            size,
            annotations,
            ..Descriptor::default()
        });
        digest
    }
}

fn append(archive: &mut tar::Builder<impl Write>, name: &str, bytes: &[u8]) -> io::Result<()> {
    let mut header = tar::Header::new_gnu();
    header.set_size(bytes.len() as u64);
    header.set_mode(0o644);
    header.set_mtime(0);
    archive.append_data(&mut header, name, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout() -> Layout {
        let mut layout = Layout::default();
        layout.add_manifest("application/json", Bytes::from_static(b"{}"), Some("v1"));
        layout.add(Bytes::from_static(b"blob"));
        layout
    }

    fn written(layout: &Layout) -> Vec<u8> {
        let mut bytes = Vec::new();
        layout.write(&mut bytes).unwrap();
        bytes
    }

    #[test]
    fn a_layout_is_read_as_it_was_written() {
        let bytes = written(&layout());
        assert_eq!(bytes, written(&layout()), "it is reproducible");
        let read = Layout::read(&*bytes).unwrap();
        assert_eq!(read, layout());
        assert_eq!(
            read.manifests().map(|(_, bytes, tag)| (&**bytes, tag)).collect::<Vec<_>>(),
            [(&b"{}"[..], Some("v1"))]
        );
        assert_eq!(read.blobs().count(), 1);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.tar");
        read.save(&path).unwrap();
        assert_eq!(Layout::open(&path).unwrap(), read);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn damage_is_found() {
        let whole = written(&layout());
        let is_true = |read: &Layout| read.blobs.iter().all(|(digest, blob)| *digest == Digest::of(blob));
        for position in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[position] ^= 1;
            // A bit in padding does not count, and an end may be missing where a file ends.
            for read in [Layout::read(&*bytes), Layout::read(&whole[..position])].into_iter().flatten() {
                assert!(is_true(&read), "{position}");
            }
        }
        let content = whole.windows(5).position(|window| window == b"blob\0").unwrap();
        let mut bytes = whole;
        bytes[content] = b'B';
        assert!(matches!(Layout::read(&*bytes), Err(LayoutError::Altered { .. })));
        assert!(matches!(Layout::read(&b""[..]), Err(LayoutError::Index)));
        assert!(matches!(Layout::open(Path::new("/")), Err(LayoutError::File(_))));
    }

    #[test]
    fn a_layout_is_bounded() {
        let mut large = Vec::new();
        let mut archive = tar::Builder::new(&mut large);
        for count in 0..=MAX_FILES {
            append(&mut archive, &format!("file-{count}"), b"").unwrap();
        }
        drop(archive);
        assert!(matches!(Layout::read(&*large), Err(LayoutError::TooLarge)));
        let mut header = tar::Header::new_gnu();
        header.set_path("index.json").unwrap();
        header.set_size(MAX_LAYOUT + 1);
        header.set_cksum();
        assert!(matches!(Layout::read(header.as_bytes().as_slice()), Err(LayoutError::TooLarge)));
    }
}
