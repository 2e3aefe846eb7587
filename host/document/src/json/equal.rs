//! Equality of two validated values: members in any order, strings by their unescaped text, numbers by their spelling.
//! Memory: the member spans of the open objects. Each level scans the values below it again, so a depth limit of its
//! own bounds both recursion and time.

use super::{
    check,
    marked::Marked,
    members::{Elements, Members},
    scan::Marks,
    string, token,
};
use crate::Error;

/// Deeper than any Kubernetes object, including a schema inside a schema.
const DEPTH: usize = 64;

/// Compares two values, which it validates first. Values that differ in spelling and are nested deeper than 64 levels
/// are unequal.
pub(crate) fn equal(a: &[u8], b: &[u8]) -> Result<bool, Error> {
    let a_at = check::whole(a)?;
    let b_at = check::whole(b)?;
    if a.get(a_at.clone()) == b.get(b_at.clone()) {
        return Ok(true);
    }
    let (a_marks, b_marks) = (Marks::of(a), Marks::of(b));
    values((Marked::new(a, &a_marks), a_at.start), (Marked::new(b, &b_marks), b_at.start), DEPTH)
}

/// A value: the text that contains it, and its position.
type Place<'a> = (Marked<'a>, usize);

fn values(a: Place<'_>, b: Place<'_>, depth: usize) -> Result<bool, Error> {
    let Some(depth) = depth.checked_sub(1) else {
        return Ok(false);
    };
    match (a.0.get(a.1), b.0.get(b.1)) {
        (Some(b'{'), Some(b'{')) => objects(a, b, depth),
        (Some(b'['), Some(b'[')) => arrays(a, b, depth),
        (Some(b'"'), Some(b'"')) => {
            let (a_text, b_text) = (a.0.quoted(a.1)?, b.0.quoted(b.1)?);
            Ok(string::text(a.0.bytes, a_text)? == string::text(b.0.bytes, b_text)?)
        }
        (Some(b'{' | b'[' | b'"'), _) | (_, Some(b'{' | b'[' | b'"')) => Ok(false),
        _ => Ok(a.0.get(a.1..token::scalar(&a.0, a.1)?) == b.0.get(b.1..token::scalar(&b.0, b.1)?)),
    }
}

fn arrays(a: Place<'_>, b: Place<'_>, depth: usize) -> Result<bool, Error> {
    let mut left = Elements::new(a.0, a.1);
    let mut right = Elements::new(b.0, b.1);
    loop {
        match (left.next()?, right.next()?) {
            (None, None) => return Ok(true),
            (Some(x), Some(y)) => {
                if !values((a.0, x), (b.0, y), depth)? {
                    return Ok(false);
                }
                left.past(a.0.value_end(x)?);
                right.past(b.0.value_end(y)?);
            }
            _ => return Ok(false),
        }
    }
}

fn objects(a: Place<'_>, b: Place<'_>, depth: usize) -> Result<bool, Error> {
    let (left, right) = (sorted(a)?, sorted(b)?);
    if left.len() != right.len() {
        return Ok(false);
    }
    for ((x_key, x), (y_key, y)) in left.iter().zip(&right) {
        if x_key != y_key || !values((a.0, *x), (b.0, *y), depth)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Returns the members sorted by name. A repeated name is an error, because its meaning is ambiguous.
fn sorted<'a>((text, at): Place<'a>) -> Result<Vec<(std::borrow::Cow<'a, str>, usize)>, Error> {
    let mut all = Vec::new();
    let mut members = Members::new(text, at);
    while let Some(member) = members.next()? {
        all.push((string::text(text.bytes, member.key)?, member.value));
        members.past(text.value_end(member.value)?);
    }
    all.sort_unstable();
    if let Some(twice) = all.windows(2).find_map(|pair| match pair {
        [(a, _), (b, at)] if a == b => Some((a, *at)),
        _ => None,
    }) {
        return Err(Error::DuplicateKey { key: twice.0.to_string(), offset: twice.1 });
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::equal;

    #[test]
    fn order_of_members_white_space_and_escapes_do_not_count() {
        let same = |a: &str, b: &str| equal(a.as_bytes(), b.as_bytes()).unwrap();
        assert!(same(r#"{"a":1,"b":[true,null]}"#, r#" { "b" : [ true , null ] , "\u0061" : 1 }"#));
        assert!(same(r#""A""#, r#""\u0041""#));
        assert!(!same("1", "1.0"));
        assert!(!same("[1,2]", "[2,1]"));
        assert!(!same("[1]", "[1,2]"));
        assert!(!same("{}", "[]"));
        assert!(!same(r#"{"a":1}"#, r#"{"a":1,"b":1}"#));
        assert!(!same("null", r#""null""#));
        assert!(equal(br#"{"a":1,"a":1}"#, br#"{"a":1}"#).is_err());
    }
}
