//! `weir check`: validates a configuration and its modules, or one module, as the daemon does, without a cluster.

use std::path::Path;

use bytes::Bytes;

use super::CommandError;
use super::workbench::{Workbench, block_on, configuration, entry_of, is_module, load_granted, read};
use crate::config::Configuration;
use crate::config::author::{CheckFlags, with_login};
use crate::logging::Repeated;
use crate::lookups::FileView;
use crate::modules::Modules;
use crate::reload::prepare;
use weir_kube::GroupResource;
use weir_runtime::{Endpoint, Filter, Loader, ModuleSource};

/// Validates a configuration and prints a line for each filter. Warnings go to standard error.
///
/// # Errors
/// All reasons for which a daemon would refuse the configuration.
pub fn check(flags: &CheckFlags) -> Result<(), CommandError> {
    let workbench = Workbench::of(&flags.modules, Repeated::Shown)?;
    // A stand-in for `--pod-address`, which the daemon knows and this command does not.
    let endpoint = Endpoint { host: "169.254.20.10".to_owned(), port: 10268 };
    let view = FileView::new("weir-check", [], Vec::new(), Some(endpoint))
        .map_err(|source| CommandError::Objects { what: "no objects".to_owned(), source })?;
    let loader = workbench.loader(view);
    let bytes = read(&flags.config)?;
    block_on(async {
        match is_module(&bytes) {
            true => check_module(&loader, &bytes, flags).await,
            false => check_all(&loader, &configuration(&flags.config, &bytes)?, flags).await,
        }
    })
}

/// Checks one module with `--settings`. What it looks up needs no grant here.
async fn check_module(loader: &Loader, module: &Bytes, flags: &CheckFlags) -> Result<(), CommandError> {
    let path = &flags.config;
    let shown = path.display().to_string();
    let note = |resource: &GroupResource| eprintln!("{shown}: note: its configuration needs {resource} in `grants`");
    let loaded = load_granted(loader, entry_of(path, &flags.settings)?, &shown, module, note).await;
    report(path, &loaded.map_err(CommandError::of_module(path))?);
    Ok(())
}

async fn check_all(loader: &Loader, configuration: &Configuration, flags: &CheckFlags) -> Result<(), CommandError> {
    let name = flags.config.display();
    let mut errors = Vec::new();
    let mut trust = flags.trust.clone();
    trust.registries = with_login(&trust.registries);
    let modules = Modules { directory: flags.modules_dir.clone(), trust, ..Modules::default() };
    for entry in &configuration.filters {
        if matches!(entry.module, ModuleSource::ConfigMap(_)) {
            eprintln!("{name}: note: filter {}: {} is in the cluster, and not checked", entry.name, entry.module);
            continue;
        }
        match prepare(loader, entry, configuration, &modules, &[], (|_| {}, || {})).await {
            Ok(filter) => report(&flags.config, &filter),
            Err(unprepared) => errors.push(format!("{name}: filter {}: {}", entry.name, unprepared.reason)),
        }
    }
    if errors.is_empty() { Ok(()) } else { Err(CommandError::Filters(errors.join("\n"))) }
}

fn report(source: &Path, filter: &Filter) {
    let rules: Vec<_> = filter.rules().iter().map(ToString::to_string).collect();
    for warning in filter.plan_warnings() {
        eprintln!("{}: warning: {warning}", source.display());
    }
    let about = filter.description();
    let (name, digest) = (filter.name(), filter.digest());
    say!("{name}: {} {} {digest} matches {}", about.name, about.version, rules.join(" "));
}
