//! Flags that earlier releases had. An installed unit that still has one ends with what takes its place, not with a guess.

use std::ffi::OsString;

use super::UsageMessage;

/// The flags of `weir serve`, and what to do about each.
pub(super) const REMOVED: [(&str, &str); 3] = [
    ("memory-budget", "--memory is the budget of all parts, and half of it is this one: give twice as much there"),
    ("cache-commit-size", "a commit follows after 4 MiB of changes, leave it out"),
    (
        "cache-check-share",
        "comparisons take up to 1% of what a cache has received, leave it out: --cache-check-interval=0 compares none",
    ),
];

/// The error of a command line or an environment that has some of them.
pub(super) fn error(arguments: &[OsString], is_set: impl Fn(&str) -> bool) -> Option<UsageMessage> {
    let has_flags = |command: &OsString| command == "serve" || command == "dev-daemon";
    if !arguments.get(1).is_some_and(has_flags) {
        return None;
    }
    let is_given = |name: &str| {
        let texts = arguments.iter().filter_map(|argument| argument.to_str()?.strip_prefix("--"));
        texts.map(|text| text.split_once('=').map_or(text, |(flag, _)| flag)).any(|flag| flag == name)
    };
    let lines = REMOVED.iter().flat_map(|(name, instead)| {
        let flag = is_given(name).then(|| format!("--{name}"));
        let variable = Some(variable(name)).filter(|variable| is_set(variable));
        flag.into_iter().chain(variable).map(move |given| format!("error: {given} is no flag any more: {instead}\n"))
    });
    let message: String = lines.collect();
    (!message.is_empty()).then_some(UsageMessage { message, code: 64 })
}

/// The environment variable of a flag.
pub(super) fn variable(name: &str) -> String {
    format!("WEIR_{}", name.replace('-', "_").to_uppercase())
}
