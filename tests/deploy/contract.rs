//! The compatibility promise of `wit/README.md`. `tests/contract` has each released text of the contract, and a module that was
//! built with it: the text may only grow, and the module filters under today's daemon.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use weir_tests::built;
use weir_tests::daemon::Setup;
use weir_tests::edge::edge;

/// The folders of the releases.
fn releases() -> Vec<PathBuf> {
    let folder = built::workspace().join("tests").join("contract");
    let releases = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    // Beside them, `cache` has a file of each form of the watch cache on disk.
    let releases: Vec<_> = releases.filter(|folder| folder.join("world.wit").exists()).collect();
    assert!(!releases.is_empty());
    releases
}

/// The `.wit` files of a folder as one text.
fn contract(folder: &Path) -> String {
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "wit"));
    files.sort();
    files.iter().map(|file| std::fs::read_to_string(file).unwrap()).collect()
}

/// The items of a contract: `interface cluster / resource selection / count : func ( ) -> u32 ;`. Interfaces, worlds and resources
/// are lists of items. Records, enums and variants are one item each, because no field or case may be added.
fn items(text: &str) -> BTreeSet<String> {
    let code: String = text.lines().map(|line| line.split("//").next().unwrap().to_owned() + "\n").collect();
    let mut spaced = String::new();
    for character in code.chars() {
        match character {
            '{' | '}' | ';' | ',' | '(' | ')' | '<' | '>' | ':' => spaced.extend([' ', character, ' ']),
            _ => spaced.push(character),
        }
    }
    let (mut items, mut place, mut item, mut depth) = (BTreeSet::new(), Vec::<String>::new(), String::new(), 0);
    for token in spaced.split_whitespace() {
        let is_list = ["interface ", "world ", "resource "].iter().any(|kind| item.starts_with(kind));
        match token {
            "{" if depth == 0 && is_list => place.push(std::mem::take(&mut item)),
            "}" if depth == 0 && item.is_empty() => drop(place.pop()),
            _ => {
                depth += i32::from(token == "{") - i32::from(token == "}");
                item += token;
                item.push(' ');
                // A `use` has braces and a semicolon.
                let ends = token == ";" || (token == "}" && !item.starts_with("use "));
                if depth == 0 && ends {
                    items.insert(
                        place.iter().map(String::as_str).chain([item.trim_end()]).collect::<Vec<_>>().join("/ "),
                    );
                    item.clear();
                }
            }
        }
    }
    items
}

/// What makes modules of the released contract unusable.
fn broken(released: &str, current: &str) -> Vec<String> {
    let (released, current) = (items(released), items(current));
    let mut broken: Vec<_> = released.difference(&current).map(|item| format!("changed or removed: {item}")).collect();
    // What a module exports, it has in the released form only.
    let exports = released.iter().filter_map(|item| item.split_once("/ export ")?.1.strip_suffix(" ;"));
    let exported: Vec<_> = exports.map(|name| format!("interface {name} / ")).collect();
    let required = |item: &&String| {
        item.contains("/ export ") || exported.iter().any(|interface| item.starts_with(interface.as_str()))
    };
    broken.extend(current.difference(&released).filter(required).map(|item| format!("required: {item}")));
    broken
}

#[test]
fn a_released_contract_only_grows() {
    for release in releases() {
        let broken = broken(&contract(&release), &contract(&built::workspace().join("wit")));
        assert!(broken.is_empty(), "modules of {} would not load:\n{}", release.display(), broken.join("\n"));
    }
}

#[test]
fn changes_that_break_modules_are_found() {
    let text = contract(&built::workspace().join("wit"));
    assert!(items(&text).len() > 40, "{:#?}", items(&text));
    for (from, to, found) in [
        ("count: func() -> u32;", "", "changed or removed: interface cluster / resource selection / count"),
        (
            "count: func() -> u32;",
            "count: func() -> u64;",
            "changed or removed: interface cluster / resource selection",
        ),
        ("    hide,", "    hide,\n    drop,", "changed or removed: interface module / enum verdict"),
        ("    summary: string,", "", "changed or removed: interface module / record description"),
        ("describe: func()", "drain: func();\n  describe: func()", "required: interface module / drain"),
        ("export module;", "export module;\n  export extra;", "required: world filter / export extra"),
        ("import log;", "", "changed or removed: world filter / import log"),
    ] {
        let changed = text.replacen(from, to, 1);
        assert_ne!(changed, text, "{from}");
        let broken = broken(&text, &changed);
        assert!(broken.iter().any(|line| line.starts_with(found)), "{from} -> {to}: {broken:?}");
    }
    for (from, to) in [
        ("count: func() -> u32;", "count: func() -> u32;\n    last: func() -> option<object>;"),
        ("import log;", "import log;\n  import extra;"),
        ("/// Returns the number of objects.", "/// Counts."),
    ] {
        let changed = text.replacen(from, to, 1);
        assert_ne!(changed, text, "{from}");
        assert_eq!(broken(&text, &changed), Vec::<String>::new(), "{from} -> {to}");
    }
}

/// The module's settings are a program: it reads, looks up, edits, logs, and keeps the object.
const PROGRAM: &str = "{ops: [
    {read: [0, name]}, {read: [0, {label: app}]}, {read: [0, {text: spec.type}]}, {read: [0, {column: 'spec.ports[*].port'}]},
    {get: [nodes, false, edge-a]}, {read: [1, {fingerprint: metadata}]}, {find: [services, true, '']}, {select: count},
    {edit: [0, {set: [spec.touched, 1]}]}, {log: 1}, addresses]}";

#[tokio::test]
async fn a_module_of_each_release_filters_under_this_daemon() {
    for release in releases() {
        let module = std::fs::read(release.join("guest.wasm")).unwrap();
        assert!(module.len() < 400_000, "{}: {} bytes", release.display(), module.len());
        let server = edge().await;
        let filters = format!(
            "filters:\n- name: old\n  module: old.wasm\n  match: ['kube-proxy/services']\n  grants: [services, nodes, nodepools.apps.openyurt.io]\n  settings: {PROGRAM}"
        );
        let weir = Setup::new(server.url()).filters(&filters).module("old", &module).start_ready().await;
        let direct = weir.client("other").json("/api/v1/services").await;
        let shown = weir.client("kube-proxy").json("/api/v1/services").await;
        let (direct, shown) = (direct["items"].as_array().unwrap(), shown["items"].as_array().unwrap());
        assert!(!direct.is_empty() && direct.len() == shown.len());
        for (direct, shown) in direct.iter().zip(shown) {
            assert_eq!(direct["metadata"]["name"], shown["metadata"]["name"]);
            assert!(direct["spec"]["touched"].is_null(), "{direct}");
            assert!(shown["spec"]["touched"].is_string(), "{}: {shown}", release.display());
        }
        assert_eq!(weir.metric("weir_filter_failures_total").await, 0.0);
    }
}
