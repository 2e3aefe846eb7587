//! Copies the tested files of the daemon into the build folder: as they are, and once more with each patch of `patches/`, which
//! puts a race back. In each copy the module `schedules`, the file of the same name in `src/schedules/`, takes the place of `tests`.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

/// The tested files, in `host/`. Each is a module of this crate.
const FILES: &[&str] = &[
    "access/src/grants.rs",
    "access/src/reviews.rs",
    "process/src/ledger.rs",
    "upstream/src/ways.rs",
    "view/src/chain_stamps.rs",
    "view/src/registry/open_views.rs",
];
/// What they need, with shuttle's locks, too.
const PARTS: &[&str] =
    &["process/src/ledger/owner.rs", "runtime/src/filter/version.rs", "upstream/src/unanswered_probes.rs"];

fn main() {
    let manifest = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    let host = manifest.join("../../host");
    let (mut modules, mut present, mut put_back) = (String::new(), String::new(), String::new());
    for file in PARTS {
        add(&mut modules, &out, stem(file), &without_tests(&read(&host.join(file))));
    }
    for file in FILES {
        let name = stem(file);
        let schedules = manifest.join("src/schedules").join(name).with_extension("rs");
        let with_schedules =
            |source: &str| format!("{}\n#[path = {schedules:?}]\npub(crate) mod schedules;\n", without_tests(source));
        let source = read(&host.join(file));
        add(&mut modules, &out, name, &with_schedules(&source));
        writeln!(present, "({name:?}, {name}::schedules::ALL),").expect("a string grows");
        for (race, patch) in patches(&manifest.join("patches"), name) {
            let parsed = diffy::Patch::from_str(&patch).expect("a unified patch");
            let patched = diffy::apply(&source, &parsed).unwrap_or_else(|error| {
                panic!("{name}.{race}.patch does not apply to host/{file} any more ({error}): put the race back by hand, and renew the patch")
            });
            let module = format!("{name}_{race}");
            add(&mut modules, &out, &module, &with_schedules(&patched));
            let found_by = patch.lines().find_map(|line| line.strip_prefix("Found by: "));
            let found_by = found_by.expect("a patch says what finds it");
            writeln!(put_back, "({module:?}, {found_by:?}, {module}::schedules::ALL),").expect("a string grows");
        }
    }
    writeln!(modules, "const PRESENT: &[Present] = &[{present}];\nconst PUT_BACK: &[PutBack] = &[{put_back}];")
        .expect("a string grows");
    fs::write(out.join("modules.rs"), modules).expect("the build folder");
    println!("cargo::rerun-if-changed={}", manifest.join("patches").display());
}

fn stem(file: &str) -> &str {
    Path::new(file).file_stem().and_then(|stem| stem.to_str()).expect("a name")
}

fn read(file: &Path) -> String {
    println!("cargo::rerun-if-changed={}", file.display());
    fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

/// The modules of a file are modules of this crate, too. Its unit tests run without shuttle.
fn without_tests(source: &str) -> String {
    let code = source.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    code.replace("\nmod owner;\n", "\n").replace("self::owner::", "crate::owner::")
}

fn add(modules: &mut String, out: &Path, name: &str, source: &str) {
    let file = out.join(name).with_extension("rs");
    fs::write(&file, source).expect("the build folder");
    writeln!(modules, "#[path = {file:?}]\nmod {name};").expect("a string grows");
}

/// The patches of a file, by the name of the race.
fn patches(folder: &Path, name: &str) -> Vec<(String, String)> {
    let all = fs::read_dir(folder).expect("the folder of patches").map(|entry| entry.expect("an entry").path());
    let of_name = |path: &PathBuf| {
        let race = stem(path.to_str()?).strip_prefix(name)?.strip_prefix('.')?.to_owned();
        Some((race, read(path)))
    };
    let mut found: Vec<_> = all.filter_map(|path| of_name(&path)).collect();
    found.sort();
    found
}
