//! Finds the built daemon and modules in the target folder of this test's program.

use std::path::PathBuf;

/// The folder of the profile in which this test was built: `<target>/release`, as a rule.
fn profile() -> PathBuf {
    let program = std::env::current_exe().expect("a test knows its own program");
    // <target>/release/deps/<test>, or <target>/release/weir-demo.
    let folder = program.ancestors().skip(1).find(|folder| !folder.ends_with("deps"));
    folder.expect("it lies in <target>/<profile>").to_owned()
}

/// Cargo's target folder.
#[must_use]
pub fn target() -> PathBuf {
    profile().parent().expect("it lies in <target>/<profile>").to_owned()
}

/// The folder of the programs that the tests start: `WEIR_PROGRAMS`, else that of their own profile.
fn programs() -> PathBuf {
    shipped().unwrap_or_else(profile)
}

/// The folder of the programs that `make shipped` builds, if the tests start those.
#[must_use]
pub fn shipped() -> Option<PathBuf> {
    std::env::var_os("WEIR_PROGRAMS").map(|folder| workspace().join(folder))
}

/// The daemon.
#[must_use]
pub fn weir() -> PathBuf {
    present(programs().join("weir"))
}

/// The operator.
#[must_use]
pub fn operator() -> PathBuf {
    present(programs().join("weir-operator"))
}

/// The daemon with traces, if `make otlp` has built it.
#[must_use]
pub fn weir_with_traces() -> PathBuf {
    target().join("otlp").join("weir")
}

/// The module of a bundled filter.
#[must_use]
pub fn module(name: &str) -> PathBuf {
    present(modules().join(format!("{name}.wasm")))
}

/// The folder of the bundled modules.
#[must_use]
pub fn modules() -> PathBuf {
    present(target().join("modules"))
}

/// The root of the workspace.
#[must_use]
pub fn workspace() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ lies in the workspace").to_owned()
}

fn present(path: PathBuf) -> PathBuf {
    assert!(path.exists(), "{} is not there: run `make build` first (`make test` does)", path.display());
    path
}
