//! The grammar of paths.

use super::{Path, Segment};

fn segments(expression: &str) -> Vec<Segment> {
    Path::parse(expression).unwrap().segments().to_vec()
}

fn name(name: &str) -> Segment {
    Segment::Name(name.to_owned().into())
}

fn refused(expression: &str) -> usize {
    Path::parse(expression).unwrap_err().position
}

#[test]
fn names_indexes_and_wildcards_are_read() {
    assert_eq!(segments("$"), []);
    assert_eq!(segments("spec.type"), [name("spec"), name("type")]);
    assert_eq!(segments("$.spec.type"), [name("spec"), name("type")]);
    assert_eq!(segments("$['spec']"), [name("spec")]);
    assert_eq!(segments("['spec'].x"), [name("spec"), name("x")]);
    assert_eq!(
        segments("subsets[*].addresses[12]['a/b.c'][\"d'\"]"),
        [name("subsets"), Segment::Wildcard, name("addresses"), Segment::Index(12), name("a/b.c"), name("d'")]
    );
    assert_eq!(segments("[*][0]"), [Segment::Wildcard, Segment::Index(0)]);
}

#[test]
fn quoted_names_take_the_escapes_of_json_and_the_single_quote() {
    assert_eq!(segments(r#"['it\'s "q" \" \\ \u00fc \ud83d\ude00']"#), [name("it's \"q\" \" \\ ü 😀")]);
    assert_eq!(segments("['']"), [name("")]);
    refused(r"['\x']");
    refused(r"['\ud800']");
    refused("['a\u{1}']");
}

#[test]
fn an_error_has_the_position_of_the_first_wrong_byte() {
    assert_eq!(refused(""), 0);
    assert_eq!(refused("."), 0);
    assert_eq!(refused("a..b"), 2);
    assert_eq!(refused("a."), 2);
    assert_eq!(refused("a[b]"), 2);
    assert_eq!(refused("a[0"), 3);
    assert_eq!(refused("a[-1]"), 2);
    assert_eq!(refused("a[01]"), 2);
    assert_eq!(refused("a[4294967296]"), 2);
    assert_eq!(refused("a['b"), 3);
    assert_eq!(refused("a/b"), 1);
    assert_eq!(refused("$a"), 1);
    assert_eq!(refused("a[0]b"), 4);
    assert_eq!(refused("a b"), 1);
    assert_eq!(refused("$$"), 1);
}

#[test]
fn length_and_segments_are_bounded() {
    assert!(Path::parse(&"a".repeat(1024)).is_ok());
    assert!(Path::parse(&"a".repeat(1025)).is_err());
    assert!(Path::parse(&"[*]".repeat(32)).is_ok());
    assert!(Path::parse(&"[*]".repeat(33)).is_err());
}

#[test]
fn wildcards_are_counted_and_the_last_one_bounds_the_rows() {
    let path = Path::parse("a[*].b[*].c").unwrap();
    assert_eq!(path.wildcards(), 2);
    assert_eq!(path.rows_in().unwrap().len(), 3);
    assert_eq!(Path::parse("a.b").unwrap().rows_in(), None);
}

#[test]
fn a_path_of_the_program_equals_the_parsed_one() {
    static DEEP: Path = crate::path!("$.a[*][12]['b/\"c']['ü'].d-1");
    for (fixed, text) in [(crate::path!("$"), "$"), (DEEP.clone(), DEEP.text()), (crate::path!("[*]"), "[*]")] {
        let parsed = Path::parse(text).unwrap();
        assert_eq!((fixed.segments(), &fixed), (parsed.segments(), &parsed));
    }
    assert_eq!((DEEP.segments().len(), DEEP.wildcards()), (6, 1));
}

#[test]
fn equal_texts_are_equal_paths() {
    assert_eq!(Path::parse("a.b").unwrap(), Path::parse("a.b").unwrap());
    assert_ne!(Path::parse("a.b").unwrap(), Path::parse("$.a.b").unwrap());
}
