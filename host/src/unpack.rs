//! Unpacks a module that is compressed with gzip, wherever its bytes come from: a ConfigMap holds 1 MiB in all, and what fits
//! there is the same file in the modules directory and for the commands. Bounded by the largest module.

use std::io::{self, Read as _};

use bytes::Bytes;
use flate2::read::MultiGzDecoder;

use weir_spec::MAX_MODULE;

/// The first bytes of gzip.
const GZIP: &[u8] = &[0x1f, 0x8b];

/// Returns the module in a gzip file, also in one of several members, as `cat a.gz b.gz` and `pigz` make. Other bytes are
/// returned as they are.
///
/// # Errors
/// The file is cut off or damaged, or has something after its end, or the module is too large.
pub(crate) fn unpacked(bytes: Bytes) -> io::Result<Bytes> {
    if !bytes.starts_with(GZIP) {
        return Ok(bytes);
    }
    let mut module = Vec::new();
    let read = MultiGzDecoder::new(&*bytes).take(MAX_MODULE as u64 + 1).read_to_end(&mut module);
    read.map_err(|error| io::Error::new(error.kind(), reason(&error, module.is_empty())))?;
    if module.len() > MAX_MODULE {
        return Err(io::Error::other(format!("the module in the gzip file is larger than {MAX_MODULE} bytes")));
    }
    Ok(module.into())
}

/// What is wrong with a gzip file, and what to do.
fn reason(error: &io::Error, nothing_read: bool) -> &'static str {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => "the gzip file is cut off: compress the module again, or copy the whole file",
        _ if nothing_read => "the gzip file is damaged: compress the module again",
        _ => "the gzip file is damaged, or something stands after its end: compress the module again",
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn packed(bytes: &[u8]) -> Vec<u8> {
        let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
        gzip.write_all(bytes).unwrap();
        gzip.finish().unwrap()
    }

    #[test]
    fn gzip_is_unpacked_up_to_the_largest_module_and_all_else_is_as_it_is() {
        let module = Bytes::from_static(b"\0asm module");
        assert_eq!(unpacked(module.clone()).unwrap(), module);
        assert_eq!(unpacked(packed(&module).into()).unwrap(), module);
        let bomb = unpacked(packed(&vec![0; MAX_MODULE + 1]).into()).unwrap_err().to_string();
        assert_eq!(bomb, format!("the module in the gzip file is larger than {MAX_MODULE} bytes"));
    }

    #[test]
    fn all_members_of_a_gzip_file_are_the_module() {
        let two = [packed(b"\0asm "), packed(b"module")].concat();
        assert_eq!(unpacked(two.into()).unwrap(), Bytes::from_static(b"\0asm module"));
        let half = packed(&vec![0; MAX_MODULE / 2 + 1]);
        let bomb = unpacked([half.clone(), half].concat().into()).unwrap_err().to_string();
        assert!(bomb.contains("is larger than"), "{bomb}");
    }

    #[test]
    fn a_damaged_gzip_file_is_refused_with_what_to_do() {
        let whole = packed(b"\0asm module");
        let error = |bytes: Vec<u8>| unpacked(bytes.into()).unwrap_err().to_string();
        assert!(error(whole[..15].to_vec()).contains("is cut off"));
        assert!(
            error([&whole[..], b"rest"].concat()).contains("is cut off")
                || error([&whole[..], b"rest"].concat()).contains("after its end")
        );
        let mut damaged = whole.clone();
        let sum = damaged.len() - 6;
        damaged[sum] ^= 1;
        assert!(error(damaged).contains("is damaged"));
    }
}
