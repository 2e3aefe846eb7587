//! `weir inspect`: what a module is and needs, with an entry for the configuration.

use std::fmt::Write as _;
use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;

use super::CommandError;
use super::workbench::{Workbench, block_on, entry, module, seen};
use crate::config::author::InspectFlags;
use crate::logging::Repeated;
use weir_runtime::{Probe, RawLookup};
use weir_spec::{Digest, FilterEntry};

/// The most that a ConfigMap holds in bytes, keys included.
const CONFIG_MAP: usize = 1 << 20;
/// What the configuration beside a module may take.
const BESIDE: usize = 64 << 10;

/// Prints the description of a module.
///
/// # Errors
/// The module is not usable with these settings.
pub fn inspect(flags: &InspectFlags) -> Result<(), CommandError> {
    let workbench = Workbench::of(&flags.modules, Repeated::Shown)?;
    let module = module(&flags.module)?;
    let entry = entry(&flags.entry, &flags.module)?;
    let loader = workbench.loader(seen("weir-inspect")?);
    let probed = async { loader.inspect(&entry, &module).await.map_err(CommandError::of_module(&flags.module)) };
    let probe = block_on(probed)?;
    let mut gzip = GzEncoder::new(Vec::new(), Compression::best());
    let packed = gzip.write_all(&module).and_then(|()| gzip.finish()).map_err(CommandError::System)?;
    let file = flags.module.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    // A module keeps its name where it is compressed.
    let file = file.strip_suffix(".gz").unwrap_or(file);
    let text = describe(&probe, &entry, file, &Digest::of(&module), (module.len(), packed.len()));
    std::io::stdout().write_all(text.as_bytes()).map_err(CommandError::System)
}

fn describe(probe: &Probe, entry: &FilterEntry, file: &str, digest: &Digest, (size, packed): (usize, usize)) -> String {
    let mut text = String::new();
    let about = &probe.description;
    let fits = match CONFIG_MAP - BESIDE {
        room if size <= room => "it fits a ConfigMap",
        room if packed <= room => "it fits a ConfigMap, compressed with gzip",
        _ => "it does not fit a ConfigMap: use --modules-dir",
    };
    let none = |list: String| if list.is_empty() { "none".to_owned() } else { list };
    let list = |items: Vec<String>| none(items.join("\n            "));
    // Writing to a String cannot fail.
    let _ = writeln!(text, "{} {}: {}", about.name, about.version, about.summary);
    let _ = writeln!(text, "digest      {digest}");
    let _ = writeln!(text, "size        {size} bytes, {packed} with gzip: {fits}");
    let _ =
        writeln!(text, "memory      {:.1} MiB for one instance at its start", probe.memory as f64 / (1 << 20) as f64);
    let _ = writeln!(text, "matches     {}", list(probe.matches.clone()));
    let _ = writeln!(text, "lookups     {}", list(probe.lookups.iter().map(lookup).collect()));
    let _ = writeln!(text, "imports     {}", list(probe.imports.clone()));
    let _ = writeln!(text, "\nAn entry for filters.yaml:\n");
    let _ = writeln!(text, "  - name: {}\n    module: {file}\n    digest: {digest}", entry.name);
    if !entry.settings.is_empty() {
        let _ = writeln!(text, "    settings: {}", entry.settings_json());
    }
    let granted = entry.granted();
    let missing = |lookup: &&RawLookup| lookup.resource.parse().is_ok_and(|resource| !granted.contains(&resource));
    let mut grants: Vec<_> = granted.iter().map(ToString::to_string).collect();
    let before = grants.len();
    for lookup in probe.lookups.iter().filter(missing) {
        if !grants.contains(&lookup.resource) {
            grants.push(lookup.resource.clone());
        }
    }
    if grants.len() > before {
        let _ = writeln!(text, "    grants: [{}]", grants.join(", "));
    }
    text
}

fn lookup(lookup: &RawLookup) -> String {
    let mut text = lookup.resource.clone();
    let with = |text: &mut String, name: &str, value: &str| {
        let _ = write!(text, ", {name} {value}");
    };
    if !lookup.versions.is_empty() {
        with(&mut text, "versions", &lookup.versions.join(" "));
    }
    if let Some(name) = &lookup.name {
        with(&mut text, "name", name);
    }
    if let Some(selector) = &lookup.label_selector {
        with(&mut text, "label selector", selector);
    }
    for (holds, word) in [(lookup.metadata_only, "metadata only"), (lookup.optional, "optional")] {
        if holds {
            let _ = write!(text, ", {word}");
        }
    }
    text
}
