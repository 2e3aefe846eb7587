//! The structure that `host/README.md` promises: no cycle between crates, none between the top-level modules of a crate,
//! faces of crates that a reader can list, and no file of `host/` over 600 lines.
//!
//! The dependencies of modules are read from the sources: every path that begins with `crate`, or that reaches the
//! crate root by `super`. Names that the root re-exports count as dependencies on the defining module. Tests do not
//! count: `#[cfg(test)]` items, files and folders named `tests`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests and their helpers: a panic is the report"
)]

#[path = "structure/blocking.rs"]
mod blocking;
#[path = "structure/bounds.rs"]
mod bounds;
#[path = "structure/ci.rs"]
mod ci;
#[path = "structure/graph.rs"]
mod graph;
#[path = "structure/held_state.rs"]
mod held_state;
#[path = "structure/links.rs"]
mod links;
#[path = "structure/log_lines.rs"]
mod log_lines;
#[path = "structure/questions.rs"]
mod questions;
#[path = "structure/source.rs"]
mod source;
#[path = "structure/trust.rs"]
mod trust;
#[path = "structure/words.rs"]
mod words;

use std::path::{Path, PathBuf};

use graph::Graph;

/// The longest file of `host/`, tests included.
const MAX_LINES: usize = 600;

/// What each crate may depend on, of ours. The table of `host/README.md` says the same.
const CRATES: &[(&str, &[&str])] = &[
    ("weir-document", &[]),
    ("weir-kube", &["weir-document"]),
    ("weir-kubeconfig", &[]),
    ("weir-spec", &["weir-document", "weir-kube"]),
    ("weir-process", &[]),
    ("weir-upstream", &["weir-kube", "weir-kubeconfig", "weir-process"]),
    ("weir-store", &["weir-document", "weir-kube", "weir-spec", "weir-upstream"]),
    ("weir-runtime", &["weir-document", "weir-kube", "weir-process", "weir-spec"]),
    ("weir-registry", &["weir-kube", "weir-process", "weir-spec"]),
    ("weir-wire", &["weir-document", "weir-kube", "weir-runtime"]),
    (
        "weir-view",
        &["weir-document", "weir-kube", "weir-process", "weir-runtime", "weir-store", "weir-upstream", "weir-wire"],
    ),
    ("weir-front", &["weir-kube", "weir-process", "weir-upstream"]),
    (
        "weir-access",
        &["weir-front", "weir-kube", "weir-process", "weir-store", "weir-upstream", "weir-view", "weir-wire"],
    ),
    (
        "weir",
        &[
            "weir-access",
            "weir-document",
            "weir-filter",
            "weir-front",
            "weir-kube",
            "weir-kubeconfig",
            "weir-process",
            "weir-registry",
            "weir-upstream",
            "weir-store",
            "weir-runtime",
            "weir-spec",
            "weir-view",
            "weir-wire",
        ],
    ),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

#[test]
fn crates_depend_only_on_those_below_them() {
    let mut graph = Graph::default();
    for manifest in source::manifests(&root().join("host")) {
        let (name, dependencies) = source::dependencies(&manifest);
        let (_, allowed) = CRATES.iter().find(|(known, _)| *known == name).expect("the crate is in the table CRATES");
        for dependency in dependencies {
            assert!(allowed.contains(&dependency.as_str()), "{name} must not depend on {dependency}");
            graph.add(&name, &dependency, &manifest.display().to_string());
        }
    }
    assert_eq!(graph.cycle(), None);
}

#[test]
fn top_level_modules_have_no_cycles() {
    let mut failures = Vec::new();
    for manifest in source::manifests(&root().join("host")) {
        let (name, _) = source::dependencies(&manifest);
        let mut graph = source::modules(&manifest.with_file_name("src"));
        // Every cycle at once, the last edge of each being left out for the next.
        while let Some(cycle) = graph.cycle() {
            graph.break_cycle();
            failures.push(format!("{name}: {cycle}"));
        }
    }
    assert!(failures.is_empty(), "top-level modules depend on each other in a circle:\n{}", failures.join("\n"));
}

/// How many names each crate offers to others, at most: a reader can list them. What only the crate itself uses is not public.
/// A name more is a decision: it raises the number here.
const FACES: &[(&str, usize)] = &[
    ("access", 14),
    ("document", 41),
    ("front", 15),
    ("kube", 45),
    ("kubeconfig", 7),
    ("process", 33),
    ("registry", 24),
    ("runtime", 41),
    ("spec", 33),
    ("store", 50),
    ("upstream", 49),
    ("view", 21),
    ("wire", 28),
];

#[test]
fn the_face_of_each_crate_can_be_listed() {
    let (mut wrong, mut found) = (Vec::new(), Vec::new());
    for manifest in source::manifests(&root().join("host")) {
        let folder = manifest.parent().expect("it is in a folder");
        // The daemon is used by its tests only.
        if folder == root().join("host") {
            continue;
        }
        let name = folder.file_name().and_then(|name| name.to_str()).expect("it is UTF-8").to_owned();
        let face = source::face(&folder.join("src/lib.rs"), &folder.join("src"));
        match FACES.iter().find(|(known, _)| *known == name) {
            Some((_, most)) if *most == face.len() && !face.iter().any(|name| name.ends_with('*')) => {}
            most => wrong.push(format!("{name}: {} names instead of {most:?}: {face:?}", face.len())),
        }
        found.push(name);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(FACES.iter().all(|(known, _)| found.iter().any(|name| name == known)), "FACES: {found:?}");
}

#[test]
fn a_face_is_what_other_crates_can_name() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).expect("the file is written");
    write(
        "lib.rs",
        "pub mod a; mod b; #[cfg(feature = \"q\")] pub mod q; pub use b::{C, d as D}; pub(crate) use b::E; #[cfg(test)] pub use b::F;\n\
         pub struct G { pub h: u8 } impl G { pub const fn i() {} } pub const fn j() {} pub const K: u8 = 0; fn l() {}",
    );
    write("a.rs", "pub async fn m() {} pub(super) fn n() {} #[derive(Debug)] pub enum O { P }");
    let face = source::face(&folder.path().join("lib.rs"), folder.path());
    assert_eq!(Vec::from_iter(face), ["C", "D", "G", "K", "a::O", "a::m", "j"]);
}

#[test]
fn no_file_of_the_host_is_longer_than_600_lines() {
    let mut files = Vec::new();
    source::files(&root().join("host"), &mut files);
    let long: Vec<_> = files
        .iter()
        // Templates have generated code, which authors get as it is.
        .filter(|file| !file.starts_with(root().join("host/templates")))
        .filter(|file| std::fs::read_to_string(file).expect("a source is UTF-8").lines().count() > MAX_LINES)
        .filter_map(|file| file.strip_prefix(root()).ok()?.to_str())
        .collect();
    assert!(long.is_empty(), "longer than {MAX_LINES} lines: {long:?}");
}

/// `host/README.md` names the stops of a list, a watch event and a reload as `file.rs` `function`.
#[test]
fn every_stop_of_the_newcomers_walk_exists() {
    let text = std::fs::read_to_string(root().join("host/README.md")).expect("the document is read");
    let mut stops = 0;
    for line in text.lines().filter(|line| line.starts_with(|c: char| c.is_ascii_digit())) {
        let code: Vec<_> = line.split('`').skip(1).step_by(2).collect();
        for pair in code.windows(2).filter(|pair| pair[0].ends_with(".rs")) {
            let source = std::fs::read_to_string(root().join("host").join(pair[0])).unwrap_or_default();
            let function = source.contains(&format!("fn {}(", pair[1])) || source.contains(&format!("fn {}<", pair[1]));
            assert!(function, "host/README.md: there is no function {} in {}", pair[1], pair[0]);
            stops += 1;
        }
    }
    assert!(stops >= 30, "only {stops} stops found");
}

#[test]
fn a_cycle_is_found_through_groups_supers_and_re_exports() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().expect("it has a parent")).expect("the folder is made");
        std::fs::write(path, text).expect("the file is written");
    };
    write("lib.rs", "mod a; mod b; mod c; pub use b::*; pub use c::{Last, inner::Deep as Other};");
    write(
        "a.rs",
        "use std::{io, fmt}; // crate::c\n#[cfg(test)] mod tests { use crate::c::Last; }\nuse crate::{First};",
    );
    write("b.rs", "mod deep; pub struct First;");
    write("b/deep.rs", "fn f() { let _ = super::super::Other; let _ = \"crate::a\"; }");
    write("c.rs", "pub mod inner; pub struct Last; #[cfg(test)] use crate::a::X;");
    write("c/inner.rs", "pub struct Deep; fn f() { super::super::a::g(); } fn h() { super::Last }");
    let mut graph = source::modules(folder.path());
    let cycle = graph.cycle().expect("there is one");
    assert!(cycle.starts_with("a → b (a.rs) → c (b/deep.rs) → a (c/inner.rs)"), "{cycle}");
    assert!(graph.reaches("c", "b") && graph.remove("b", "c"));
    assert_eq!(graph.cycle(), None, "the tests of c use a, which does not count");
}
