//! `deploy/troubleshooting.md` has each message that the daemon logs as a warning or an error, by what is wrong, and no other. It
//! has the text of each notice, too.

use std::path::Path;

use crate::{root, source};

/// What logs such a message. A macro has it as its last text, a function as its first.
const CALLS: [&str; 4] = ["warn!(", "error!(", "warn(", "files::begin("];

/// Where the texts of notices are.
const NOTICES: [&str; 4] =
    ["src/admin/notices.rs", "src/admin/health.rs", "src/server_addresses.rs", "store/src/disk/conditions.rs"];

/// The longest name in these files: texts are longer.
const NAME: usize = 40;

#[test]
fn each_warning_and_error_of_the_log_is_in_the_documents() {
    let (messages, documented) = (messages(), documented());
    assert!(messages.len() > 100, "{} messages", messages.len());
    let begins = |message: &str| documented.iter().any(|beginning| message.starts_with(beginning));
    let missing: Vec<_> = messages.iter().filter(|message| !begins(message)).collect();
    assert!(missing.is_empty(), "no row of troubleshooting.md has the beginning of these messages: {missing:#?}");
    let is_logged = |beginning: &str| messages.iter().any(|message| message.starts_with(beginning));
    let stale: Vec<_> = documented.iter().filter(|beginning| !is_logged(beginning)).collect();
    assert!(stale.is_empty(), "troubleshooting.md has messages that are not logged: {stale:#?}");
}

#[test]
fn each_text_of_a_notice_is_in_the_documents() {
    let page = page();
    let mut count = 0;
    for file in NOTICES {
        let source = std::fs::read_to_string(root().join("host").join(file)).unwrap();
        let texts = all_texts(without_tests(&source)).into_iter().filter(|text| text.chars().count() > NAME);
        for text in texts {
            count += 1;
            let missing = text.split('…').find(|part| !page.contains(part.trim()));
            assert_eq!(missing, None, "troubleshooting.md does not have this part of the text {text:?} in {file}");
        }
    }
    assert!(count > 25, "{count} texts");
}

fn page() -> String {
    std::fs::read_to_string(root().join("deploy/troubleshooting.md")).unwrap()
}

/// The beginnings of messages in the table of the page.
fn documented() -> Vec<String> {
    let page = page();
    let (_, section) = page.split_once("\n## Warnings and errors of the log\n").unwrap();
    let rows = section.lines().filter(|line| line.starts_with("| ")).skip(1);
    let cells = rows.filter_map(|row| row.split(" | ").nth(1));
    cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).map(str::to_owned).collect()
}

/// The messages in the sources of the daemon; `…` stands for a value. A message that is a value alone is the text of a notice,
/// which has a row of its own, or of one of these calls.
fn messages() -> Vec<String> {
    let mut files = Vec::new();
    source::files(&root().join("host"), &mut files);
    let is_source = |path: &Path| path.components().any(|part| part.as_os_str() == "src");
    let is_test = |path: &Path| path.components().any(|part| part.as_os_str().to_string_lossy().starts_with("tests"));
    let host = root().join("host");
    files.retain(|file| {
        let path = file.strip_prefix(&host).unwrap();
        is_source(path) && !is_test(path) && !path.starts_with("templates")
    });
    let mut messages = Vec::new();
    for file in &files {
        let text = std::fs::read_to_string(file).unwrap();
        let code = without_tests(&text);
        for call in CALLS {
            let found = code.split(call).skip(1).map(texts);
            let message =
                |mut texts: Vec<String>| if call.ends_with("!(") { texts.pop() } else { texts.into_iter().next() };
            messages.extend(found.filter_map(message).filter(|message| message != "…"));
        }
    }
    messages
}

fn without_tests(source: &str) -> &str {
    source.split("mod tests {").next().unwrap()
}

/// The texts in code that has no character `"`.
fn all_texts(code: &str) -> Vec<String> {
    let (mut texts, mut rest) = (Vec::new(), code);
    while let Some((_, text)) = rest.split_once('"') {
        let end = end_of_text(text);
        texts.push(without_values(&text[..end]));
        rest = &text[end + 1..];
    }
    texts
}

/// The texts among the arguments of a call, whose closing parenthesis is in `code`. Texts in inner parentheses are not counted.
fn texts(code: &str) -> Vec<String> {
    let (mut texts, mut depth, mut rest) = (Vec::new(), 1, code);
    while let Some(at) = rest.find(['"', '(', ')']).filter(|_| depth > 0) {
        let sign = rest.as_bytes()[at];
        rest = &rest[at + 1..];
        match sign {
            b'(' => depth += 1,
            b')' => depth -= 1,
            _ => {
                let end = end_of_text(rest);
                if depth == 1 {
                    texts.push(without_values(&rest[..end]));
                }
                rest = &rest[end + 1..];
            }
        }
    }
    texts
}

/// Where a text ends: at the first quotation mark without a backslash before it.
fn end_of_text(rest: &str) -> usize {
    let mut is_escaped = false;
    let is_end = |byte: u8| {
        let ends = byte == b'"' && !is_escaped;
        is_escaped = byte == b'\\' && !is_escaped;
        ends
    };
    rest.bytes().position(is_end).unwrap()
}

/// The text in one line, with `…` for each `{value}`.
fn without_values(text: &str) -> String {
    let mut lines = text.split("\\\n");
    let line = lines.next().unwrap().to_owned() + &lines.map(str::trim_start).collect::<String>();
    let mut parts = line.split('{');
    let first = parts.next().unwrap().to_owned();
    parts.fold(first, |text, part| text + "…" + part.split_once('}').map_or("", |(_, rest)| rest))
}

#[test]
fn messages_are_found_in_macros_and_calls() {
    let found = |code: &str| texts(code.split_once('(').unwrap().1);
    assert_eq!(found(r#"warn!(reason = format!("{a}"), "the {} is \"down\"", x); f("b")"#), [r#"the … is \"down\""#]);
    assert_eq!(found("begin(&a.join(\"b\"), \"one, \\\n     two\", || c())"), ["one, two"]);
    assert_eq!(found("warn(error) \"a\""), [""; 0]);
}
