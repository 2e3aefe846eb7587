//! Cuts a protobuf list, `{1 metadata, 2 repeated items}` in its envelope, into its items, and joins what becomes of them.
//!
//! A list has its length in front, so that all of it must be there before any of it leaves. Memory: the body, 12 bytes
//! an item, and what edited items are now; what is kept is never copied.

use super::{
    envelope::{Envelope, all},
    spell,
    wire::{Wire, put_varint, single, varint_length},
};
use crate::{
    Error, TypeMeta,
    json::{ListMeta, Outcome, SplitError},
};
use bytes::Bytes;
use std::ops::Range;

/// The tag of an item.
const ITEM: u8 = 2 << 3 | 2;

/// A list by its items.
#[derive(Debug, Clone)]
pub struct List {
    envelope: Envelope,
    meta: ListMeta,
    items: Vec<Item>,
}

#[derive(Debug, Clone)]
struct Item {
    /// Where its tag begins.
    start: u32,
    /// Where its bytes are. Positions fit: an envelope has at most 31 bits of them.
    from: u32,
    end: u32,
}

/// A list that is ready to leave.
#[derive(Debug, Clone)]
pub struct Joined {
    /// How long all chunks together are.
    pub length: usize,
    /// The body, in order. What was kept shares the bytes that came.
    pub chunks: Vec<Bytes>,
}

impl List {
    /// Finds the items of a whole body. What is in them is not looked at.
    pub fn parse(body: Bytes) -> Result<List, SplitError> {
        let part = |source| SplitError::Part { offset: 0, source };
        let envelope = Envelope::open(body).map_err(part)?;
        let bytes = envelope.body();
        let list = envelope.raw().map_or(0..0, |raw| raw.value.clone());
        let records = all(bytes, list.clone(), 2).map_err(part)?;
        let items = records.iter().map(|item| Item {
            start: item.start as u32,
            from: item.value.start as u32,
            end: item.value.end as u32,
        });
        let items = items.collect();
        let meta = metadata(&envelope, list).map_err(part)?;
        Ok(List { envelope, meta, items })
    }

    /// What the list says about itself.
    pub fn meta(&self) -> &ListMeta {
        &self.meta
    }

    /// What its items are: the list's kind without `List`. None for a kind that is no list.
    pub fn item_type(&self) -> Option<TypeMeta> {
        let TypeMeta { api_version, kind } = self.envelope.type_meta();
        let kind = kind.strip_suffix("List")?;
        Some(TypeMeta { api_version: api_version.clone(), kind: kind.to_owned() })
    }

    /// How many items there are.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether there is no item.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// The bytes of one item, without an envelope.
    pub fn item(&self, index: usize) -> Option<Bytes> {
        let item = self.items.get(index)?;
        let at = item.from as usize..item.end as usize;
        (at.end <= self.envelope.body().len()).then(|| self.envelope.body().slice(at))
    }

    /// What leaves: runs of kept items are one slice. There must be one outcome for each item. If nothing is dropped or
    /// edited, it is the body that came.
    pub fn join(&self, outcomes: impl IntoIterator<Item = Outcome>) -> Result<Joined, SplitError> {
        let body = self.envelope.body();
        let Some(raw) = self.envelope.raw() else {
            return Ok(Joined { length: body.len(), chunks: vec![body.clone()] });
        };
        let mut join = Join { body, chunks: Vec::new(), length: 0, run: raw.value.start..raw.value.start };
        let mut outcomes = outcomes.into_iter();
        let mut changed = false;
        for (i, item) in self.items.iter().enumerate() {
            let Some(outcome) = outcomes.next() else {
                return Err(SplitError::Outcomes { items: self.items.len(), outcomes: i });
            };
            let edited = match outcome {
                Outcome::Keep => continue,
                Outcome::Drop => None,
                Outcome::Edit(bytes) => Some(bytes),
            };
            changed = true;
            join.keep_to(item.start as usize);
            if let Some(bytes) = edited {
                let mut head = vec![ITEM];
                put_varint(bytes.len() as u64, &mut head);
                join.push(head.into());
                join.push(bytes);
            }
            join.run = item.end as usize..item.end as usize;
        }
        let more = outcomes.count();
        if more > 0 {
            return Err(SplitError::Outcomes { items: self.items.len(), outcomes: self.items.len() + more });
        }
        if !changed {
            return Ok(Joined { length: body.len(), chunks: vec![body.clone()] });
        }
        join.keep_to(raw.value.end);
        let Join { mut chunks, length, .. } = join;
        // What is before the list, with the list's own length, goes in front.
        let mut head = Vec::with_capacity(raw.length_at + varint_length(length as u64));
        head.extend_from_slice(body.get(..raw.length_at).unwrap_or_default());
        put_varint(length as u64, &mut head);
        let tail = body.slice(raw.value.end..);
        let length = head.len() + length + tail.len();
        chunks.insert(0, head.into());
        if !tail.is_empty() {
            chunks.push(tail);
        }
        Ok(Joined { length, chunks })
    }
}

struct Join<'a> {
    body: &'a Bytes,
    chunks: Vec<Bytes>,
    length: usize,
    /// Bytes that leave as they came and are not pushed yet, as far as they are known.
    run: Range<usize>,
}

impl Join<'_> {
    fn keep_to(&mut self, end: usize) {
        if self.run.start < end && end <= self.body.len() {
            self.push(self.body.slice(self.run.start..end));
        }
        self.run = end..end;
    }

    fn push(&mut self, chunk: Bytes) {
        self.length += chunk.len();
        self.chunks.push(chunk);
    }
}

/// metadata: {2 resourceVersion, 3 continue}.
fn metadata(envelope: &Envelope, list: Range<usize>) -> Result<ListMeta, Error> {
    let bytes = envelope.body();
    let mut meta = ListMeta {
        api_version: Some(envelope.type_meta().api_version.clone()),
        kind: Some(envelope.type_meta().kind.clone()),
        ..ListMeta::default()
    };
    if let Some(record) = single(bytes, list, 1, Wire::Bytes, "metadata")? {
        let text = |number, name| {
            let text = single(bytes, record.value.clone(), number, Wire::Bytes, name)?;
            text.map(|text| spell::utf8(bytes, text.value).map(str::to_owned)).transpose()
        };
        meta.resource_version = text(2, "resourceVersion")?;
        meta.continue_token = text(3, "continue")?.filter(|token| !token.is_empty());
    }
    Ok(meta)
}

#[cfg(test)]
mod tests {
    use super::{super::wire::put_bytes, *};

    fn list(items: &[&[u8]]) -> Bytes {
        let (mut meta, mut list) = (Vec::new(), Vec::new());
        put_bytes(2, b"77", &mut meta);
        put_bytes(3, b"", &mut meta);
        put_bytes(1, &meta, &mut list);
        for item in items {
            put_bytes(2, item, &mut list);
        }
        Envelope::seal(&TypeMeta { api_version: "v1".into(), kind: "ServiceList".into() }, &list)
    }

    fn bytes(joined: &Joined) -> Vec<u8> {
        let all = joined.chunks.concat();
        assert_eq!(all.len(), joined.length);
        all
    }

    #[test]
    fn items_are_found_and_metadata_is_told() {
        let parsed = List::parse(list(&[b"a", b"", b"ccc"])).unwrap();
        assert_eq!(parsed.len(), 3);
        assert_eq!(parsed.item(0).unwrap(), "a");
        assert_eq!(parsed.item(2).unwrap(), "ccc");
        assert_eq!(parsed.item(3), None);
        assert_eq!(parsed.meta().resource_version.as_deref(), Some("77"));
        assert_eq!(parsed.meta().continue_token, None);
        assert_eq!(parsed.item_type().unwrap().kind, "Service");
    }

    #[test]
    fn joined_lists_are_what_a_list_of_the_outcomes_would_be() {
        let long = [5; 200];
        let body = list(&[b"a", b"bb", &long, b"d"]);
        let parsed = List::parse(body.clone()).unwrap();
        let outcome = |digit: usize, edit: &'static [u8]| match digit {
            0 => Outcome::Keep,
            1 => Outcome::Drop,
            _ => Outcome::Edit(Bytes::from_static(edit)),
        };
        let items: [&[u8]; 4] = [b"a", b"bb", &long, b"d"];
        for case in 0..81 {
            let digits = [case % 3, case / 3 % 3, case / 9 % 3, case / 27];
            let joined = parsed.join(digits.iter().map(|digit| outcome(*digit, b"edited"))).unwrap();
            let expected: Vec<&[u8]> = items
                .iter()
                .zip(digits)
                .filter(|(_, digit)| *digit != 1)
                .map(|(item, digit)| if digit == 0 { *item } else { b"edited" })
                .collect();
            assert_eq!(bytes(&joined), list(&expected), "{case}");
        }
        let kept = parsed.join(vec![Outcome::Keep; 4]).unwrap();
        assert_eq!(kept.chunks, [body]);
    }

    #[test]
    fn one_outcome_is_needed_for_each_item() {
        let parsed = List::parse(list(&[b"a", b"b"])).unwrap();
        for count in [0, 1, 3] {
            assert!(matches!(parsed.join(vec![Outcome::Drop; count]), Err(SplitError::Outcomes { .. })));
        }
    }

    #[test]
    fn bodies_cut_anywhere_are_errors_or_shorter_by_whole_records() {
        let body = list(&[b"a", b"bb", b"ccc"]);
        for end in 0..body.len() {
            if let Ok(parsed) = List::parse(body.slice(..end)) {
                assert!(parsed.is_empty() || parsed.len() == 3, "{end}");
            }
        }
    }
}
