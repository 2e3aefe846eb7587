//! Reads YAML, and thereby JSON, as `kubectl` does, and says what is wrong with it in words for people: the parser's own
//! errors speak to programmers. Numbers are those that sigs.k8s.io/yaml reads: `010` is 8, `010268` is 10268, `1.0` is 1.

use serde_json::{Number, Value};
use serde_saphyr::Error;

/// Floats below this have the same integer in JSON and in an `i64`.
const WHOLE: f64 = 9_007_199_254_740_992.0;

/// Reads a text with one document. Empty documents do not count, as the `---` that Helm writes at an end; a text with
/// nothing but comments is null.
///
/// # Errors
/// One line: what is wrong, and where.
pub fn yaml_document(text: &str) -> Result<Value, String> {
    let mut documents = yaml_documents(text)?;
    match documents.len() {
        0 => Ok(Value::Null),
        1 => Ok(documents.remove(0)),
        many => Err(format!("it has {many} YAML documents, separated by lines with `---`: one is read here, give one")),
    }
}

/// Reads the documents of a text, without empty ones.
///
/// # Errors
/// One line: what is wrong, and where.
pub fn yaml_documents(text: &str) -> Result<Vec<Value>, String> {
    let options = serde_saphyr::options! { with_snippet: false, legacy_octal_numbers: true };
    let documents = serde_saphyr::from_multiple_with_options(text, options);
    let mut documents: Vec<Value> = documents.map_err(|error| in_words(&error))?;
    documents.iter_mut().for_each(make_whole);
    documents.retain(|document| !document.is_null());
    Ok(documents)
}

/// Reads bytes as UTF-8.
///
/// # Errors
/// Their encoding, if it can be recognized, and the offset of the first wrong byte.
pub fn utf8(bytes: &[u8]) -> Result<&str, String> {
    str::from_utf8(bytes).map_err(|error| {
        let is_utf16 = bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]);
        if is_utf16 {
            return "it is UTF-16 text: save it as UTF-8".to_owned();
        }
        let before = bytes.get(..error.valid_up_to()).unwrap_or_default();
        let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
        format!("it is not UTF-8 text, see line {line}: save it as UTF-8")
    })
}

/// Makes an integer of each float without a fraction, as Go writes it in JSON.
fn make_whole(value: &mut Value) {
    match value {
        Value::Number(number) if number.is_f64() => {
            let float = number.as_f64().filter(|float| float.fract() == 0.0 && float.abs() < WHOLE);
            if let Some(float) = float {
                *number = Number::from(float as i64);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(make_whole),
        Value::Object(members) => members.values_mut().for_each(make_whole),
        _ => {}
    }
}

/// The reason for people, on one line.
fn in_words(error: &Error) -> String {
    let error = error.without_snippet();
    let reason = match error {
        Error::DuplicateMappingKey { key: Some(key), .. } => format!("the key {key:?} is there twice: keep one"),
        Error::DuplicateMappingKey { .. } => "a key is there twice: keep one".to_owned(),
        Error::NonFiniteFloat { value, .. } => {
            format!("{value} is not a number that JSON has: put it in quotes if it is text")
        }
        Error::UnknownAnchor { .. } => "an alias (`*name`) names no anchor (`&name`) before it".to_owned(),
        Error::Eof { .. } => "the text ends too early: a value is missing".to_owned(),
        Error::Budget { .. }
        | Error::AliasReplayCounterOverflow { .. }
        | Error::AliasReplayLimitExceeded { .. }
        | Error::AliasExpansionLimitExceeded { .. }
        | Error::AliasReplayStackDepthExceeded { .. } => {
            "the document is too large, too deep, or has too many aliases".to_owned()
        }
        Error::AliasError { error, .. } => return in_words(error),
        Error::Message { msg, .. } | Error::ExternalMessage { msg, .. } => msg.clone(),
        other => return one_line(&other.to_string()),
    };
    match error.location() {
        Some(location) if location.line() > 0 => {
            format!("line {}, column {}: {}", location.line(), location.column(), one_line(&reason))
        }
        _ => one_line(&reason),
    }
}

fn one_line(text: &str) -> String {
    text.replace(['\n', '\r'], " ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// What the parser does not read as sigs.k8s.io/yaml does: underscores that are not single between digits, or in a
    /// fraction; a number beyond a float, which is refused; words in mixed case.
    const UNLIKE: &[&str] = &["1__000", "1_000_", "1_000.5", "1e400", "tRUE", "nULL"];

    #[test]
    fn scalars_are_read_as_kubectl_reads_them() {
        let mut unlike = Vec::new();
        for line in include_str!("../yaml/values.txt").lines() {
            let (text, wanted) = line.split_once('\t').unwrap();
            let found = yaml_document(text);
            let is_alike = match wanted {
                "error" => found.is_err(),
                wanted => found == Ok(serde_json::from_str::<Value>(wanted).unwrap()),
            };
            if !is_alike {
                unlike.push(text);
            }
        }
        assert_eq!(unlike, UNLIKE);
    }

    #[test]
    fn empty_documents_do_not_count() {
        for text in ["a: 1\n---\n", "---\na: 1\n---\n# end\n", "# first\n---\na: 1\n", "{\"a\": 1}", "\u{feff}a: 1\n"] {
            assert_eq!(yaml_document(text), Ok(json!({"a": 1})), "{text}");
        }
        for text in ["", "# nothing\n", "---\n", "---\n---\n"] {
            assert_eq!(yaml_document(text), Ok(Value::Null), "{text:?}");
        }
        let two = yaml_document("a: 1\n---\nb: 2\n").unwrap_err();
        assert_eq!(two, "it has 2 YAML documents, separated by lines with `---`: one is read here, give one");
        assert_eq!(yaml_documents("a: 1\n---\n---\nb: 2\n").unwrap().len(), 2);
    }

    #[test]
    fn errors_have_the_line_and_no_words_of_a_library() {
        for (text, wanted) in [
            ("a: 1\nb: 2\na: 3\n", "line 3, column 1: the key \"a\" is there twice: keep one"),
            ("a: 1\nb: .inf\n", "line 2, column 4: .inf is not a number that JSON has: put it in quotes if it is text"),
            ("a: *b\n", "line 1, column 4: an alias (`*name`) names no anchor (`&name`) before it"),
            ("a: [1\n", "line "),
            ("a:\n\tb: 1\n", "line 2, "),
            ("a: b: c\n", "line 1, "),
        ] {
            let error = yaml_document(text).unwrap_err();
            assert!(error.starts_with(wanted), "{text:?}: {error}");
            for word in ["Options", "Policy", "from_", "serde", "budget"] {
                assert!(!error.contains(word), "{text:?}: {error}");
            }
        }
    }

    #[test]
    fn bytes_that_are_no_utf8_are_named() {
        assert_eq!(utf8(b"a: 1"), Ok("a: 1"));
        assert_eq!(utf8(&[0xff, 0xfe, b'a', 0]), Err("it is UTF-16 text: save it as UTF-8".to_owned()));
        assert_eq!(utf8(b"a: 1\nb: \xe4\n"), Err("it is not UTF-8 text, see line 2: save it as UTF-8".to_owned()));
    }
}
