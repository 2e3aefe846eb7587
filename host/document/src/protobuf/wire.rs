//! The protobuf wire format: varints, and the records of a message. Nothing is stored or copied. Every length is
//! checked against the message that contains it.

use crate::Error;
use std::ops::Range;

/// The wire type of a record. Groups are refused, because Kubernetes has none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WireType {
    Varint,
    Fixed,
    Bytes,
}

/// One record of a message. Positions count in the whole object.
#[derive(Debug, Clone)]
pub(crate) struct Record {
    pub(crate) number: u32,
    pub(crate) wire: WireType,
    /// The start of the tag.
    pub(crate) start: usize,
    /// The start of the length, or of the value if there is no length.
    pub(crate) length_at: usize,
    /// The span of the value without its length.
    pub(crate) value: Range<usize>,
}

impl Record {
    /// Returns the span of tag, length and value.
    pub(crate) fn whole(&self) -> Range<usize> {
        self.start..self.value.end
    }

    /// Refuses a value whose wire type differs from the schema's.
    pub(crate) fn written_as(&self, wire: WireType) -> Result<(), Error> {
        if self.wire == wire { Ok(()) } else { Err(Error::malformed(self.start, "a field of the wrong wire type")) }
    }
}

/// The part of a record before its value, which may not have arrived yet.
#[derive(Debug, Clone)]
pub(crate) struct Header {
    pub(crate) number: u32,
    pub(crate) wire: WireType,
    /// The start of the tag.
    pub(crate) start: usize,
    /// The start of the length, or of the value if there is no length.
    pub(crate) length_at: usize,
    /// The start of the value.
    pub(crate) from: usize,
    /// The length of the value, not checked against the message.
    pub(crate) length: u64,
}

/// The maximum size of a header, and of a record without a length, in bytes.
pub(crate) const HEADER: usize = 20;

/// The reason for a length that exceeds its message.
pub(crate) const PAST_THE_END: &str = "the value exceeds its message";

/// Parses the header at `at`, in a message that ends at `end`.
#[inline(always)]
pub(crate) fn header(bytes: &[u8], at: usize, end: usize) -> Result<Header, Error> {
    let (tag, after) = varint(bytes, at, end)?;
    let number = tag >> 3;
    if !(1..1 << 29).contains(&number) {
        return Err(Error::malformed(at, "a field number out of range"));
    }
    let (wire, from, length) = match tag & 7 {
        0 => (WireType::Varint, after, (varint(bytes, after, end)?.1 - after) as u64),
        1 => (WireType::Fixed, after, 8),
        5 => (WireType::Fixed, after, 4),
        2 => {
            let (length, from) = varint(bytes, after, end)?;
            (WireType::Bytes, from, length)
        }
        3 | 4 => return Err(Error::malformed(at, "groups are not supported")),
        _ => return Err(Error::malformed(at, "an unknown wire type")),
    };
    Ok(Header { number: number as u32, wire, start: at, length_at: after, from, length })
}

/// Iterates over the records of one message.
pub(crate) struct Records<'a> {
    bytes: &'a [u8],
    at: usize,
    end: usize,
}

impl<'a> Records<'a> {
    /// Creates an iterator over the message with this span.
    pub(crate) fn new(bytes: &'a [u8], at: Range<usize>) -> Self {
        Records { bytes, at: at.start, end: at.end.min(bytes.len()) }
    }

    /// Returns the next record, or none at the end of the message.
    #[inline(always)]
    pub(crate) fn next(&mut self) -> Result<Option<Record>, Error> {
        if self.at >= self.end {
            return Ok(None);
        }
        let start = self.at;
        if let Some((number, value)) = self.short() {
            self.at = value.end;
            return Ok(Some(Record { number, wire: WireType::Bytes, start, length_at: start + 1, value }));
        }
        self.any()
    }

    /// Returns the next record of this field number.
    #[inline(always)]
    pub(crate) fn of(&mut self, number: u32) -> Result<Option<Record>, Error> {
        while self.at < self.end {
            match self.short() {
                Some((other, value)) if other != number => self.at = value.end,
                _ => match self.next()? {
                    Some(record) if record.number == number => return Ok(Some(record)),
                    _ => {}
                },
            }
        }
        Ok(None)
    }

    /// Returns the field number and the value of the next record, if it has the usual form: a tag of one byte, and a
    /// length of one or two.
    #[inline(always)]
    fn short(&self) -> Option<(u32, Range<usize>)> {
        let [tag, low, high] = self.bytes.get(self.at..)?.first_chunk::<3>()?;
        if tag & 0x87 != 2 || *tag < 8 {
            return None;
        }
        let (length, from) = match (low, high) {
            (0..0x80, _) => (usize::from(*low), self.at + 2),
            (_, 0..0x80) => (usize::from(low & 0x7f) | usize::from(*high) << 7, self.at + 3),
            _ => return None,
        };
        let end = from + length;
        (end <= self.end).then_some((u32::from(tag >> 3), from..end))
    }

    /// Returns the start and the value of the single record of a field number, or none if there is no such record. The
    /// outer none means that the result is unknown, because a record has an unusual form or there are two. It is fast,
    /// because the loop carries only positions.
    #[inline(always)]
    pub(crate) fn quick(bytes: &'a [u8], at: Range<usize>, number: u32) -> Option<Option<(usize, Range<usize>)>> {
        let mut records = Records::new(bytes, at);
        let (mut start, mut from, mut end) = (0, 0, 0);
        while records.at < records.end {
            let (other, value) = records.short()?;
            let this = std::mem::replace(&mut records.at, value.end);
            if other == number {
                if from != 0 {
                    return None;
                }
                (start, from, end) = (this, value.start, value.end);
            }
        }
        Some((from != 0).then_some((start, from..end)))
    }

    #[inline(never)]
    fn any(&mut self) -> Result<Option<Record>, Error> {
        let header = header(self.bytes, self.at, self.end)?;
        match usize::try_from(header.length).ok().and_then(|length| header.from.checked_add(length)) {
            Some(end) if end <= self.end => self.at = end,
            _ => return Err(Error::malformed(header.length_at, PAST_THE_END)),
        }
        let Header { number, wire, start, length_at, from, .. } = header;
        Ok(Some(Record { number, wire, start, length_at, value: from..self.at }))
    }
}

/// The field numbers of a message's records.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FieldNumbers(u64);

impl FieldNumbers {
    /// Reads all records of the message with this span.
    pub(crate) fn of(bytes: &[u8], at: Range<usize>) -> Result<Self, Error> {
        let (mut records, mut found) = (Records::new(bytes, at), 0);
        while let Some(record) = records.next()? {
            // Larger numbers share the last bit.
            found |= 1 << record.number.min(63);
        }
        Ok(Self(found))
    }

    /// Whether the message may have a record of this number; `false` is certain.
    pub(crate) fn may_contain(self, number: u32) -> bool {
        self.0 & (1 << number.min(63)) != 0
    }
}

/// Returns the single record of a field number. A second one is an error, because decoders that merge and decoders that
/// replace would disagree.
#[inline]
pub(crate) fn single(
    bytes: &[u8],
    at: Range<usize>,
    number: u32,
    wire: WireType,
    name: &str,
) -> Result<Option<Record>, Error> {
    if let Some(found) = Records::quick(bytes, at.clone(), number) {
        let Some((start, value)) = found else { return Ok(None) };
        let record = Record { number, wire: WireType::Bytes, start, length_at: start + 1, value };
        return record.written_as(wire).map(|()| Some(record));
    }
    let mut records = Records::new(bytes, at);
    let Some(record) = records.of(number)? else { return Ok(None) };
    record.written_as(wire)?;
    match records.of(number)? {
        None => Ok(Some(record)),
        Some(second) => Err(Error::DuplicateKey { key: name.to_owned(), offset: second.start }),
    }
}

/// Parses the varint at `at`. Returns it and the position after it.
#[inline(always)]
pub(crate) fn varint(bytes: &[u8], at: usize, end: usize) -> Result<(u64, usize), Error> {
    // Tags and most lengths take one byte, most others take two.
    match bytes.get(at..end) {
        Some([byte, ..]) if *byte < 0x80 => return Ok((u64::from(*byte), at + 1)),
        Some([low, high, ..]) if *high < 0x80 => {
            return Ok((u64::from(low & 0x7f) | u64::from(*high) << 7, at + 2));
        }
        _ => {}
    }
    long_varint(bytes, at, end)
}

fn long_varint(bytes: &[u8], at: usize, end: usize) -> Result<(u64, usize), Error> {
    let mut value = 0u64;
    for (i, byte) in bytes.get(at..end).unwrap_or_default().iter().take(10).enumerate() {
        value |= u64::from(byte & 0x7f) << (7 * i);
        if *byte < 0x80 {
            if i == 9 && *byte > 1 {
                break;
            }
            return Ok((value, at + i + 1));
        }
    }
    Err(Error::malformed(at, "truncated or overlong varint"))
}

/// Writes a varint.
pub(crate) fn put_varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Returns the size of a varint in bytes.
pub(crate) fn varint_length(value: u64) -> usize {
    (64 - (value | 1).leading_zeros() as usize).div_ceil(7)
}

/// Writes a record with a length.
pub(crate) fn put_bytes(number: u32, value: &[u8], out: &mut Vec<u8>) {
    put_varint(u64::from(number) << 3 | 2, out);
    put_varint(value.len() as u64, out);
    out.extend_from_slice(value);
}

/// Writes a record that is a varint.
pub(crate) fn put_number(number: u32, value: u64, out: &mut Vec<u8>) {
    put_varint(u64::from(number) << 3, out);
    put_varint(value, out);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(bytes: &[u8]) -> Result<Vec<Record>, Error> {
        let mut records = Records::new(bytes, 0..bytes.len());
        let mut all = Vec::new();
        while let Some(record) = records.next()? {
            all.push(record);
        }
        Ok(all)
    }

    #[test]
    fn varints_come_back_as_they_were_written() {
        for value in [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX >> 1, u64::MAX] {
            let mut out = Vec::new();
            put_varint(value, &mut out);
            assert_eq!(out.len(), varint_length(value));
            assert_eq!(varint(&out, 0, out.len()), Ok((value, out.len())));
            assert!(varint(&out, 0, out.len() - 1).is_err());
        }
    }

    #[test]
    fn records_are_separated() {
        let mut bytes = Vec::new();
        put_bytes(1, b"ab", &mut bytes);
        put_number(2, 300, &mut bytes);
        bytes.extend([3 << 3 | 5, 0, 0, 0, 0, 4 << 3 | 1, 0, 0, 0, 0, 0, 0, 0, 0]);
        let records = all(&bytes).unwrap();
        assert_eq!(records.iter().map(|record| record.number).collect::<Vec<_>>(), [1, 2, 3, 4]);
        assert_eq!(records[0].value, 2..4);
        assert_eq!(records[3].whole().end, bytes.len());
    }

    #[test]
    fn an_invalid_record_is_an_error() {
        for bad in [
            &[0x0a, 5, 1][..],
            &[0x0a],
            &[0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1],
            &[0x0b],
            &[0x0c],
            &[0x0e, 1],
            &[0x02, 0],
            &[0x08],
            &[0x08, 0x80],
            &[0x0d, 1, 2, 3],
            &[0x09, 1, 2, 3, 4, 5, 6, 7],
            &[0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x02],
            &[0xf8, 0xff, 0xff, 0xff, 0x7f, 0],
        ] {
            assert!(all(bad).is_err(), "{bad:x?}");
        }
    }
}
