//! The generated tables of `deploy/`: flags from the definition of the command line, configuration keys from the
//! table of the parser, metrics from the registry.
//!
//! The test fails if a committed text differs. `make docs-tables` rewrites them.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;

use crate::config::{ConfigKey, FILTER_KEYS, NESTED_KEYS, definition};
use crate::metrics::Metrics;

/// Set to rewrite the files instead of comparing them.
const UPDATE: &str = "WEIR_UPDATE_DOCS";

#[test]
fn the_tables_of_flags_keys_and_metrics_are_up_to_date() {
    let tables = [
        ("flags.md", "flags", flags()),
        ("filters.md", "configuration keys", configuration_keys()),
        ("monitoring.md", "metrics", metrics()),
    ];
    for (page, name, table) in tables {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy").join(page);
        let committed = std::fs::read_to_string(&path).unwrap();
        let text = replace(&committed, name, &table);
        if std::env::var_os(UPDATE).is_some() {
            std::fs::write(&path, text).unwrap();
        } else {
            assert!(committed == text, "the table of deploy/{page} is out of date: run `make docs-tables`\n{text}");
        }
    }
}

/// Prometheus and Kubernetes naming: base units, `_total` for counters only.
#[test]
fn metrics_follow_the_naming_conventions() {
    for metric in registered() {
        let name = &metric.name;
        assert!(name.starts_with("weir_") || name.starts_with("process_"), "{name}");
        assert_eq!(name.ends_with("_total"), metric.kind == "counter", "{name}");
        assert!(name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'), "{name}");
        for unit in ["_milliseconds", "_ms", "_kilobytes", "_mb"] {
            assert!(!name.contains(unit), "{name}: use seconds and bytes");
        }
    }
}

/// Replaces the text between the markers of a table.
fn replace(text: &str, name: &str, table: &str) -> String {
    let (begin, end) = (format!("<!-- BEGIN GENERATED: {name} -->\n"), format!("<!-- END GENERATED: {name} -->"));
    let (before, rest) = text.split_once(&begin).unwrap_or_else(|| panic!("{begin} is missing"));
    let (_, after) = rest.split_once(&end).unwrap_or_else(|| panic!("{end} is missing"));
    format!("{before}{begin}\n{table}\n{end}{after}")
}

fn flags() -> String {
    let command = definition();
    let mut text = String::new();
    for command in command.get_subcommands().filter(|command| !command.is_hide_set()) {
        let positional: String = command
            .get_positionals()
            .map(|argument| format!(" {}", argument.get_id().as_str().to_uppercase()))
            .collect();
        let about = command.get_about().map(ToString::to_string).unwrap_or_default();
        let _ = writeln!(text, "### `weir {}{positional}`\n\n{about}.\n", command.get_name());
        text += "| flag | default | environment variable | meaning |\n|---|---|---|---|\n";
        let hidden =
            |argument: &&clap::Arg| argument.is_hide_set() || ["help", "version"].contains(&argument.get_id().as_str());
        for argument in command.get_positionals().chain(command.get_opts()).filter(|argument| !hidden(argument)) {
            text += &flag(argument);
        }
        text += "\n";
    }
    text.trim_end().to_owned() + "\n"
}

fn flag(argument: &clap::Arg) -> String {
    let value = argument.get_value_names().filter(|_| argument.get_action().takes_values());
    let value = value.map(|names| format!(" {}", names.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")));
    let name = match (argument.get_short(), argument.get_long()) {
        (Some(short), Some(long)) => format!("`-{short}`, `--{long}`"),
        (_, Some(long)) => format!("`--{long}{}`", value.unwrap_or_default()),
        _ => format!("`{}`", argument.get_id().as_str().to_uppercase()),
    };
    let environment = argument.get_env().map(|name| format!("`{}`", name.to_string_lossy())).unwrap_or_default();
    let defaults: Vec<_> = argument.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
    let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
    // A default that is not constant is part of the help text.
    let (help, default) = match help.strip_suffix(']').and_then(|help| help.split_once(" [default: ")) {
        Some((help, default)) if default.contains(' ') => (help.to_owned(), default.to_owned()),
        Some((help, default)) => (help.to_owned(), format!("`{default}`")),
        None if defaults.is_empty() || !argument.get_action().takes_values() => (help, String::new()),
        None => (help, format!("`{}`", defaults.join(","))),
    };
    row([&name, &default, &environment, &help])
}

fn configuration_keys() -> String {
    let mut text = "| key | default | meaning |\n|---|---|---|\n".to_owned();
    let line =
        |prefix: &str, key: &ConfigKey| row([&format!("`{prefix}{}`", key.name), &(key.default)(), key.description]);
    for key in FILTER_KEYS {
        text += &line("", key);
        for (outer, keys) in NESTED_KEYS.iter().filter(|(outer, _)| *outer == key.name) {
            text.extend(keys.iter().map(|key| line(&format!("{outer}."), key)));
        }
    }
    text
}

fn metrics() -> String {
    let mut text = "| metric | type | labels | meaning |\n|---|---|---|---|\n".to_owned();
    for Metric { name, kind, labels, help } in registered() {
        text += &row([&format!("`{name}`"), &kind, &labels, &help]);
    }
    text
}

/// A metric as the admin port exports it.
struct Metric {
    name: String,
    kind: String,
    labels: String,
    help: String,
}

/// All metrics, by name.
fn registered() -> Vec<Metric> {
    let mut registry = Registry::default();
    Metrics::register(&mut registry).sample();
    let mut text = String::new();
    encode(&mut text, &registry).unwrap();
    let (mut help, mut kind, mut found) = (String::new(), String::new(), BTreeMap::new());
    for line in text.lines() {
        let mut words = line.splitn(4, ' ');
        match (words.next(), words.next(), words.next(), words.next()) {
            (Some("#"), Some("HELP"), _, Some(text)) => help = text.trim_end_matches('.').to_owned(),
            (Some("#"), Some("TYPE"), _, Some(text)) => kind = text.to_owned(),
            (Some("#"), ..) => {}
            (Some(series), ..) => {
                let (name, labels) = series.split_once('{').unwrap_or((series, ""));
                let labels: Vec<_> = labels.split("\",").filter_map(|label| label.split_once('=')).collect();
                let labels: Vec<_> = labels.iter().map(|(name, _)| format!("`{name}`")).collect();
                let (labels, help, kind) = (labels.join(", "), help.clone(), kind.clone());
                found.entry(name.to_owned()).or_insert(Metric { name: name.to_owned(), kind, labels, help });
            }
            _ => {}
        }
    }
    found.into_values().collect()
}

fn row<const COLUMNS: usize>(cells: [&str; COLUMNS]) -> String {
    let cells = cells.map(|cell| cell.replace('|', "\\|").replace('\n', " "));
    cells.iter().fold("|".to_owned(), |row, cell| row + " " + cell + " |") + "\n"
}
