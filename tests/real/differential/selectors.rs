//! Inputs that two parsers are likely to read otherwise: label and field selectors.

use super::random::Random;

/// A label selector that is odd, or none.
pub(super) fn label_selector(random: &mut Random) -> Vec<u8> {
    label_selector_of(random).into_bytes()
}

/// The same of fields.
pub(super) fn field_selector(random: &mut Random) -> Vec<u8> {
    field_selector_of(random).into_bytes()
}

pub(super) fn label_selector_of(random: &mut Random) -> String {
    const KEYS: &[&str] =
        &["app", "a", "in", "notin", "x.io/in", "A-", "-a", "a/b/c", "/a", "X.io/a", "a_.b", "\u{e4}", ""];
    const OPERATORS: &[&str] = &["=", "==", "!=", ">", "<", " in ", " notin ", " = ", "===", "!", "", "=!", "in"];
    const OPERANDS: &[&str] = &[
        "",
        "a",
        "1",
        "-1",
        "007",
        "9223372036854775807",
        "9223372036854775808",
        "(a,b)",
        "(a, b,a)",
        "()",
        "(,)",
        "(,,)",
        "(a,,)",
        "(a,,,)",
        "(,,a)",
        "(a",
        "a)",
        "in",
        "notin",
        "a-",
        "a b",
        "a/b",
        "\u{a0}",
    ];
    const SOUP: &[&str] = &[
        ",", ",", "(", ")", "=", "!", ">", "<", " ", "\t", "\n", "\r", "\0", "\u{a0}", "\x0b", "a", "b", "in", "notin",
        "1", "x/y",
    ];
    if random.one_in(3) {
        return random
            .pick(&["a", "!a", "a=b", "a==b,b!=c", "a in (b,c)", "a notin (b), c", "", "x.io/in>1", "a<7,in in (in)"])
            .to_owned();
    }
    if random.one_in(3) {
        return (0..random.below(13)).map(|_| random.pick(SOUP)).collect();
    }
    let mut text = String::new();
    for n in 0..=random.below(4) {
        text += if n == 0 { "" } else { random.pick(&[",", ",", ", ", " ,", ",,"]) };
        text += if random.one_in(6) { "!" } else { "" };
        text += random.pick(KEYS);
        if random.one_in(15) {
            text += &"a".repeat(60 + random.below(6));
        }
        text += random.pick(OPERATORS);
        text += random.pick(OPERANDS);
        if random.one_in(15) {
            text += &"b".repeat(60 + random.below(6));
        }
    }
    text
}

pub(super) fn field_selector_of(random: &mut Random) -> String {
    const FIELDS: &[&str] = &[
        "metadata.name",
        "metadata.name",
        "metadata.namespace",
        "spec.nodeName",
        "status.phase",
        "type",
        "spec.clusterIP",
        "spec.hostNetwork",
        " metadata.name",
        "metadata.name ",
        "",
        "x",
        "spec.unschedulable",
        "a\\,b",
    ];
    const OPERATORS: &[&str] = &["=", "=", "==", "!=", "!==", "===", "!", "", " = ", "=!"];
    const OPERANDS: &[&str] = &[
        "a", "b", "", "a\\,b", "a\\=b", "a\\\\", "a\\", "\\a", "a=b", "a!b", " a", "o\ne", "a/b", "..", "%", "\u{fc}",
        "\0",
    ];
    const SOUP: &[&str] = &[",", ",", "=", "=", "!", "\\", "\\", " ", "\n", "a", "metadata.name", "b"];
    if random.one_in(3) {
        let usual = [
            "metadata.name=a",
            "metadata.name==a,metadata.name=b",
            "metadata.namespace!=a",
            "metadata.name=a\\,b",
            "",
            ",",
        ];
        return random.pick(&usual).to_owned();
    }
    if random.one_in(3) {
        return (0..random.below(11)).map(|_| random.pick(SOUP)).collect();
    }
    let mut text = String::new();
    for n in 0..=random.below(3) {
        text += if n == 0 { "" } else { random.pick(&[",", ",", ",,", "\\,"]) };
        text += random.pick(FIELDS);
        text += random.pick(OPERATORS);
        text += random.pick(OPERANDS);
    }
    text
}
