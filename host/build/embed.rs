//! Tables of paths and contents for `weir new`: a template for each language, and the sources of the SDK as a
//! workspace, without the contract, which `weir wit` has. Contents are compressed with gzip: the daemon is 0.6 MB smaller.

use std::env::var;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::{fs, io};

use flate2::Compression;
use flate2::write::GzEncoder;

/// The crates that a filter in Rust is built from.
const CRATES: &[&str] = &["filters/sdk", "host/document", "host/kube"];
/// What they need beside their sources.
const BESIDE: &[&str] = &["filters/sdk/README.md", "host/document/schema/kubernetes.schema"];
/// The folders of `host/templates`.
const LANGUAGES: &[&str] = &["rust", "go", "js", "python", "c"];

/// Writes the tables as Rust.
pub(super) fn embed() -> io::Result<()> {
    let host = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let root = host.join("..");
    let out = PathBuf::from(var("OUT_DIR").map_err(io::Error::other)?);
    let mut code = String::new();
    for language in LANGUAGES {
        let folder = host.join("templates").join(language);
        let files = files_below(&folder)?.into_iter().map(|path| (target_name(&folder, &path), path));
        table(&mut code, &out, language, files)?;
    }
    let mut files: Vec<_> = BESIDE.iter().map(|path| root.join(path)).collect();
    let mut manifests = Vec::new();
    for folder in CRATES {
        let manifest = root.join(folder).join("Cargo.toml");
        manifests.push(read(&manifest)?);
        files.push(manifest);
        files.extend(files_below(&root.join(folder).join("src"))?);
    }
    let manifest = out.join("sdk-workspace.toml");
    write(&manifest, workspace(&read(&root.join("Cargo.toml"))?, &manifests).as_bytes())?;
    let sdk = files.into_iter().map(|path| (target_name(&root, &path), path));
    table(&mut code, &out, "sdk", sdk.chain([("Cargo.toml".to_owned(), manifest)]))?;
    write(&out.join("embedded.rs"), code.as_bytes())
}

fn table(code: &mut String, out: &Path, name: &str, files: impl Iterator<Item = (String, PathBuf)>) -> io::Result<()> {
    // Writing to a String cannot fail.
    let _ = writeln!(code, "pub(super) const {}: &[(&str, &[u8])] = &[", name.to_uppercase());
    for (n, (path, file)) in files.enumerate() {
        println!("cargo::rerun-if-changed={}", file.display());
        let mut packed = GzEncoder::new(Vec::new(), Compression::best());
        packed.write_all(&fs::read(&file)?)?;
        let place = out.join(format!("{name}-{n}.gz"));
        write(&place, &packed.finish()?)?;
        let _ = writeln!(code, "    ({path:?}, include_bytes!({place:?})),");
    }
    code.push_str("];\n");
    Ok(())
}

/// Writes a file if it is not there like this already: Cargo builds what includes a newer file.
fn write(path: &Path, content: &[u8]) -> io::Result<()> {
    if fs::read(path).is_ok_and(|present| present == content) {
        return Ok(());
    }
    fs::write(path, content)
}

/// The name of a file in a project. Cargo and git must not take files of the templates for their own: those end in `.in`.
fn target_name(folder: &Path, path: &Path) -> String {
    let name = path.strip_prefix(folder).unwrap_or(path).display().to_string();
    name.strip_suffix(".in").map_or(name.clone(), str::to_owned)
}

fn files_below(folder: &Path) -> io::Result<Vec<PathBuf>> {
    println!("cargo::rerun-if-changed={}", folder.display());
    let entries = fs::read_dir(folder).map_err(|error| io::Error::other(format!("{}: {error}", folder.display())))?;
    let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
    paths.sort();
    let mut files = Vec::new();
    for path in paths {
        if path.is_dir() {
            files.extend(files_below(&path)?);
        } else {
            files.push(path);
        }
    }
    Ok(files)
}

/// The manifest of a workspace of these crates, with what they depend on. The lints of this one are not an author's concern.
fn workspace(manifest: &str, crates: &[String]) -> String {
    let section = |name: &str| {
        let rest = manifest.split_once(&format!("\n[{name}]\n")).map_or("", |(_, rest)| rest);
        rest.split_once("\n[").map_or(rest, |(own, _)| own).trim()
    };
    let is_used = |line: &&str| {
        let name = line.split(' ').next().unwrap_or_default();
        let spellings = [format!("\n{name}.workspace"), format!("\n{name} = {{ workspace")];
        crates.iter().any(|text| spellings.iter().any(|spelling| text.contains(spelling)))
    };
    let dependencies: Vec<_> = section("workspace.dependencies").lines().filter(is_used).collect();
    format!(
        "[workspace]\nresolver = \"3\"\nmembers = {CRATES:?}\n\n[workspace.package]\n{}\n\n[workspace.dependencies]\n{}\n\n\
         [workspace.lints]\n",
        section("workspace.package"),
        dependencies.join("\n")
    )
}

fn read(path: &Path) -> io::Result<String> {
    fs::read_to_string(path).map_err(|error| io::Error::other(format!("{}: {error}", path.display())))
}
