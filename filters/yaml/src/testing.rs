//! Random texts for the tests of what edits YAML.

#![allow(clippy::expect_used, clippy::indexing_slicing, reason = "its callers are tests")]

/// Endless texts: these forms, with up to four pieces of YAML put into each, some of them of a key. The same ones each time.
///
/// # Panics
/// There are no forms.
pub fn random_texts<'a>(forms: &'a [&'a str], key: &str) -> impl Iterator<Item = String> + 'a {
    let pieces = [
        key,
        &format!("{key}: /a\n"),
        ": ",
        ":\n",
        "\n",
        "  ",
        "- ",
        "# c",
        " # c\n",
        "[",
        "]",
        "{",
        "}",
        ", ",
        "'",
        "\"",
        "b",
        "&x ",
        "*x",
        &format!("&y {key}\n"),
        "*y : ",
        "\nd: *x\n",
        "? ",
        "~",
        "|\n  t\n",
        ">-\n  t\n",
        "\nc: |+\n  t",
        "\r",
        "\u{85}",
        "\u{2028}",
        "\u{feff}",
    ]
    .map(str::to_owned);
    let mut state = 7_u64;
    let mut random = move |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(state >> 33).expect("31 bits") % below
    };
    std::iter::repeat_with(move || {
        let mut text = forms[random(forms.len())].to_owned();
        for _ in 0..=random(3) {
            let at = random(text.len() + 1);
            if text.is_char_boundary(at) {
                text.insert_str(at, &pieces[random(pieces.len())]);
            }
        }
        text
    })
}
