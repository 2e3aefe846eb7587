//! Reads the dependencies of a crate from its sources, without a compiler.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::graph::Graph;

/// The manifests of a folder and of the crates in it.
pub(crate) fn manifests(folder: &Path) -> Vec<PathBuf> {
    let mut found: Vec<_> = std::fs::read_dir(folder)
        .expect("the folder is read")
        .map(|entry| entry.expect("an entry").path().join("Cargo.toml"))
        .chain([folder.join("Cargo.toml")])
        .filter(|manifest| manifest.exists())
        .collect();
    found.sort();
    found
}

/// The name of a crate and its dependencies in this workspace, without those of tests.
pub(crate) fn dependencies(manifest: &Path) -> (String, Vec<String>) {
    let text = std::fs::read_to_string(manifest).expect("the manifest is read");
    let (mut section, mut name, mut found) = ("", String::new(), Vec::new());
    for line in text.lines().map(str::trim) {
        if line.starts_with('[') {
            section = line;
        } else if let (true, Some(rest)) = (section == "[package]", line.strip_prefix("name = ")) {
            name = rest.trim_matches('"').to_owned();
        } else if section == "[dependencies]" && line.starts_with("weir") {
            let end = line.find(['.', ' ', '=']).unwrap_or(line.len());
            found.push(line[..end].to_owned());
        }
    }
    (name, found)
}

/// The Rust and Go files below a folder, in order.
pub(crate) fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    let mut entries: Vec<_> =
        std::fs::read_dir(folder).expect("the folder is read").map(|entry| entry.expect("an entry").path()).collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            if path.file_name().is_some_and(|name| name != "target") {
                files(&path, found);
            }
        } else if path.extension().is_some_and(|extension| extension == "rs" || extension == "go") {
            found.push(path);
        }
    }
}

/// A piece of code, and the only files of `host/` that may have it, tests apart.
pub(crate) type Place = (&'static str, &'static [&'static str]);

/// Asserts that these pieces of code are where they may be, and nowhere else. Other files than those that count do not.
pub(crate) fn assert_places(places: &[Place], counts: impl Fn(&str) -> bool) {
    let host = crate::root().join("host");
    let mut paths = Vec::new();
    files(&host, &mut paths);
    let (mut wrong, mut codes) = (Vec::new(), BTreeMap::new());
    for (name, allowed) in places {
        let mut found = Vec::new();
        for path in &paths {
            let relative = path.strip_prefix(&host).expect("it is below").to_string_lossy().into_owned();
            if relative.split('/').any(|part| part.starts_with("tests")) || !counts(&relative) {
                continue;
            }
            let code = codes.entry(path).or_insert_with(|| {
                let text = std::fs::read_to_string(path).expect("a source is read");
                without_tests(&tokens_and_strings(&text))
            });
            let wanted = tokens_and_strings(name);
            if code.windows(wanted.len()).any(|tokens| tokens == wanted) {
                found.push(relative);
            }
        }
        wrong.extend(
            found.iter().filter(|file| !allowed.contains(&file.as_str())).map(|file| format!("{file}: {name}")),
        );
        wrong.extend(
            allowed
                .iter()
                .filter(|file| !found.iter().any(|found| found == *file))
                .map(|file| format!("no {name} in {file}")),
        );
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The graph of the top-level modules of a crate.
pub(crate) fn modules(src: &Path) -> Graph {
    let mut paths = Vec::new();
    files(src, &mut paths);
    let mut sources = BTreeMap::new();
    for path in &paths {
        let relative = path.strip_prefix(src).expect("it is below").with_extension("");
        let module: Vec<String> = relative.iter().map(|part| part.to_string_lossy().into_owned()).collect();
        if !module.iter().any(|part| part == "tests") && module != ["main"] {
            sources.insert(module, without_tests(&tokens(&std::fs::read_to_string(path).expect("it is read"))));
        }
    }
    let lib = sources.remove(&["lib".to_owned()][..]).unwrap_or_default();
    // `lib` has no tests, so a module that only tests declare is not in it.
    let declared = |name: &str| lib.windows(3).any(|tokens| tokens[0] == "mod" && tokens[1] == name);
    let exports = exports(&lib, &sources);
    let mut graph = Graph::default();
    for (module, tokens) in &sources {
        let Some(top) = module.first().filter(|top| declared(top)) else { continue };
        let place = format!("{}.rs", module.join("/"));
        for name in root_names(tokens, module.len()) {
            let to = if declared(&name) { Some(name) } else { exports.get(&name).cloned() };
            if let Some(to) = to {
                graph.add(top, &to, &place);
            }
        }
    }
    graph
}

/// The names at the root of a crate, and the top-level module of each.
fn exports(lib: &[String], sources: &BTreeMap<Vec<String>, Vec<String>>) -> BTreeMap<String, String> {
    let mut exports = BTreeMap::new();
    for mut leaf in re_exports(lib) {
        leaf.retain(|part| part != "self" && part != "crate");
        let (Some(top), Some(last)) = (leaf.first().cloned(), leaf.last().cloned()) else { continue };
        if last != "*" {
            exports.insert(last, top);
            continue;
        }
        let Some(tokens) = sources.get(&leaf[..leaf.len() - 1]) else { continue };
        let inner = re_exports(tokens).into_iter().filter_map(|leaf| leaf.last().cloned());
        for name in inner.chain(definitions(tokens)) {
            exports.insert(name, top.clone());
        }
    }
    exports
}

/// The names that a crate or a module offers to other crates, with the public modules they are in: `disk::DiskCache`. `file` has the
/// code of the module, `folder` its submodules. What a feature adds does not count.
pub(crate) fn face(file: &Path, folder: &Path) -> BTreeSet<String> {
    let code = tokens(&std::fs::read_to_string(file).expect("a source is read"));
    let (mut names, mut at, mut is_optional) = (BTreeSet::new(), 0, false);
    while let Some(token) = code.get(at) {
        if token == "#" {
            let end = closing(&code, at + 1);
            let has = |name: &str| code[at..end].iter().any(|token| token == name);
            is_optional |= has("cfg") && (has("feature") || has("test")) && !has("not");
            at = end;
            continue;
        }
        if matches!(token.as_str(), "{" | "(" | "[") {
            at = closing(&code, at);
            continue;
        }
        at += 1;
        let is_left_out = std::mem::take(&mut is_optional);
        if token != "pub" || is_left_out || code.get(at).is_some_and(|next| next == "(") {
            continue;
        }
        // `pub const fn`, `pub async fn` and the like: the last of these words is followed by the name.
        let words = ["async", "const", "enum", "fn", "mod", "static", "struct", "trait", "type", "union", "unsafe"];
        while code.get(at).zip(code.get(at + 1)).is_some_and(|(_, next)| words.contains(&next.as_str())) {
            at += 1;
        }
        let (Some(kind), Some(name)) = (code.get(at), code.get(at + 1)) else { continue };
        if kind == "use" {
            let (mut from, mut found) = (at + 1, Vec::new());
            leaves(&code, &mut from, &mut Vec::new(), &mut found);
            names.extend(found.into_iter().filter_map(|leaf| leaf.into_iter().next_back()));
            at = from;
        } else if kind == "mod" {
            let inner = face(&folder.join(name).with_extension("rs"), &folder.join(name));
            names.extend(inner.into_iter().map(|inner| format!("{name}::{inner}")));
        } else {
            names.insert(name.clone());
        }
    }
    names
}

/// The full paths of `pub use` and `pub(crate) use`. The last part is the exported name.
fn re_exports(tokens: &[String]) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        if token == "use" && at > 0 && matches!(tokens[at - 1].as_str(), "pub" | ")") {
            let mut at = at + 1;
            leaves(tokens, &mut at, &mut Vec::new(), &mut found);
        }
    }
    found
}

/// Public items that are defined here.
fn definitions(tokens: &[String]) -> Vec<String> {
    const ITEMS: &[&str] = &["struct", "enum", "fn", "trait", "type", "const", "static", "mod", "union"];
    let public = |at: usize| at > 0 && matches!(tokens[at - 1].as_str(), "pub" | ")" | "async" | "const");
    let items = tokens.windows(2).enumerate();
    items
        .filter(|(at, pair)| ITEMS.contains(&pair[0].as_str()) && public(*at))
        .map(|(_, pair)| pair[1].clone())
        .collect()
}

/// The names that a file at this depth uses from the root of its crate.
fn root_names(tokens: &[String], depth: usize) -> Vec<String> {
    let mut names = Vec::new();
    for (start, token) in tokens.iter().enumerate() {
        let begins = start == 0 || tokens[start - 1] != "::";
        let at_root = match token.as_str() {
            "crate" => begins.then_some(start + 1),
            "super" if begins => {
                let supers = tokens[start..].chunks(2).take_while(|pair| pair[0] == "super").count();
                (supers == depth).then_some(start + 2 * supers - 1)
            }
            _ => None,
        };
        let Some(mut at) = at_root.filter(|at| tokens.get(*at).is_some_and(|next| next == "::")) else { continue };
        at += 1;
        let mut found = Vec::new();
        leaves(tokens, &mut at, &mut Vec::new(), &mut found);
        names.extend(found.into_iter().filter_map(|leaf| leaf.into_iter().next()));
    }
    names
}

/// The paths of a tree like `a::{b, c::d as e}`, from `at` on.
fn leaves(tokens: &[String], at: &mut usize, prefix: &mut Vec<String>, found: &mut Vec<Vec<String>>) {
    let depth = prefix.len();
    while let Some(token) = tokens.get(*at) {
        *at += 1;
        if token == "{" {
            loop {
                leaves(tokens, at, prefix, found);
                let next = tokens.get(*at).map(String::as_str);
                *at += usize::from(next.is_some());
                if next != Some(",") {
                    break;
                }
            }
            prefix.truncate(depth);
            return;
        }
        if token == "}" {
            // The end of a group after a trailing comma.
            *at -= 1;
            return;
        }
        prefix.push(token.clone());
        match tokens.get(*at).map(String::as_str) {
            Some("::") => *at += 1,
            Some("as") => {
                prefix.extend(tokens.get(*at + 1).cloned());
                *at += 2;
                break;
            }
            _ => break,
        }
    }
    found.push(prefix.clone());
    prefix.truncate(depth);
}

/// The tokens without items for tests.
fn without_tests(tokens: &[String]) -> Vec<String> {
    const ITEMS: &[&str] =
        &["mod", "use", "fn", "impl", "struct", "enum", "const", "static", "trait", "type", "async", "unsafe", "pub"];
    let (mut kept, mut at) = (Vec::new(), 0);
    while at < tokens.len() {
        if !(tokens[at] == "#" && tokens.get(at + 1).is_some_and(|next| next == "[")) {
            kept.push(tokens[at].clone());
            at += 1;
            continue;
        }
        let end = closing(tokens, at + 1);
        let attribute = &tokens[at..end];
        let has = |name: &str| attribute.iter().any(|token| token == name);
        at = end;
        if !(has("cfg") && has("test") && !has("not")) {
            continue;
        }
        while tokens.get(at).is_some_and(|token| token == "#") {
            at = closing(tokens, at + 1);
        }
        let item = tokens.get(at).is_some_and(|token| ITEMS.contains(&token.as_str()));
        let import = tokens[at..].iter().take(6).take_while(|token| *token != "{").any(|token| token == "use");
        while let Some(token) = tokens.get(at) {
            let ends = token == ";" || (!item && token == ",");
            let block = token == "{" && !import;
            at = if matches!(token.as_str(), "{" | "(" | "[") { closing(tokens, at) } else { at + 1 };
            if ends || block {
                break;
            }
        }
    }
    kept
}

/// The index after the bracket that closes the one at `at`.
fn closing(tokens: &[String], at: usize) -> usize {
    let mut depth = 0;
    for (offset, token) in tokens[at..].iter().enumerate() {
        match token.as_str() {
            "{" | "(" | "[" => depth += 1,
            "}" | ")" | "]" => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at + offset + 1;
        }
    }
    tokens.len()
}

/// The tokens: words, `::` and single characters, without comments, strings and character literals.
fn tokens(text: &str) -> Vec<String> {
    let mut tokens = tokens_and_strings(text);
    tokens.retain(|token| !token.contains('"'));
    tokens
}

/// The tokens and the strings, with their quotes.
fn tokens_and_strings(text: &str) -> Vec<String> {
    let (mut found, mut rest) = (Vec::new(), text);
    while let Some(first) = rest.chars().next() {
        let length = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            rest.find("*/").map_or(rest.len(), |end| end + 2)
        } else if let Some(length) = raw_string(rest).or_else(|| (first == '"').then(|| string(rest))) {
            found.push(rest[..length].to_owned());
            length
        } else if first == '\'' {
            character(rest)
        } else if first.is_alphanumeric() || first == '_' {
            let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
            found.push(rest[..end].to_owned());
            end
        } else {
            let sign = if rest.starts_with("::") { "::" } else { &rest[..first.len_utf8()] };
            if !first.is_whitespace() {
                found.push(sign.to_owned());
            }
            sign.len()
        };
        rest = &rest[length..];
    }
    found
}

fn string(rest: &str) -> usize {
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    rest.len()
}

/// The length of a raw string that begins here.
fn raw_string(rest: &str) -> Option<usize> {
    let body = rest.strip_prefix("br").or_else(|| rest.strip_prefix('r'))?;
    let hashes = body.len() - body.trim_start_matches('#').len();
    body[hashes..].strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(hashes));
    let start = rest.len() - body.len() + hashes + 1;
    Some(rest[start..].find(&end).map_or(rest.len(), |at| start + at + end.len()))
}

/// The length of a character, or of the quote of a lifetime.
fn character(rest: &str) -> usize {
    let mut chars = rest.char_indices().skip(1);
    match chars.next() {
        Some((_, '\\')) => rest[3..].find('\'').map_or(rest.len(), |at| at + 4),
        Some(_) => match chars.next() {
            Some((at, '\'')) => at + 1,
            _ => 1,
        },
        None => 1,
    }
}
