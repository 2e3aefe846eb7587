//! `weir check`: validates a configuration and its modules, or one module, as the daemon does, without a cluster.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};

use super::CommandError;
use super::output::error_items;
use super::workbench::{Workbench, block_on, configuration, entry_of, is_module, load_granted, read, seen, shown};
use crate::config::Configuration;
use crate::config::author::{CheckFlags, with_login};
use crate::config::operator::OutputFormat;
use crate::logging::Repeated;
use crate::modules::Modules;
use crate::reload::prepare;
use weir_kube::GroupResource;
use weir_runtime::{Filter, Loader};
use weir_spec::ModuleSource;
use weir_upstream::error_report;

/// The result for one filter: its description, or why it is refused.
type Checked = (String, Result<Arc<Filter>, String>);

/// Validates a configuration and prints a line for each filter. Warnings go to standard error.
///
/// # Errors
/// All reasons for which a daemon would refuse the configuration.
pub fn check(flags: &CheckFlags) -> Result<(), CommandError> {
    let checked = error_items(flags.output, load(flags))?;
    let source = shown(&flags.config);
    match flags.output {
        OutputFormat::Json => print_line!("{:#}", json!(checked.iter().map(to_json).collect::<Vec<_>>())),
        OutputFormat::Text => checked.iter().for_each(|(_, filter)| filter.iter().for_each(|filter| report(filter))),
    }
    let warned = checked.iter().flat_map(|(_, filter)| filter).flat_map(|filter| filter.plan_warnings());
    warned.for_each(|warning| eprintln!("{source}: warning: {warning}"));
    let refused = checked.iter().filter_map(|(name, filter)| Some((name, filter.as_ref().err()?)));
    let errors: Vec<_> = refused.map(|(name, reason)| format!("{source}: filter {name}: {reason}")).collect();
    if errors.is_empty() { Ok(()) } else { Err(CommandError::Filters(errors.join("\n"))) }
}

/// Loads the filters of the file.
fn load(flags: &CheckFlags) -> Result<Vec<Checked>, CommandError> {
    let workbench = Workbench::of(&flags.modules, Repeated::Shown)?;
    let loader = workbench.loader(seen("weir-check")?);
    let bytes = read(&flags.config)?;
    block_on(async {
        Ok(match is_module(&bytes) {
            true => vec![check_module(&loader, &bytes, flags).await?],
            false => check_all(&loader, &configuration(&flags.config, &bytes)?, flags).await,
        })
    })
}

/// Checks one module with `--settings`. Its lookups need no grant here.
async fn check_module(loader: &Loader, module: &Bytes, flags: &CheckFlags) -> Result<Checked, CommandError> {
    let path = &flags.config;
    let source = shown(path);
    let note = |resource: &GroupResource| eprintln!("{source}: note: its configuration needs {resource} in `grants`");
    let loaded = load_granted(loader, entry_of(path, &flags.settings)?, &source, module, note).await;
    match (loaded, flags.output) {
        (Ok(filter), _) => Ok((filter.name().to_string(), Ok(Arc::new(filter)))),
        (Err(error), OutputFormat::Json) => Ok((source, Err(error_report(&error)))),
        (Err(error), OutputFormat::Text) => Err(CommandError::of_module(path)(error)),
    }
}

async fn check_all(loader: &Loader, configuration: &Configuration, flags: &CheckFlags) -> Vec<Checked> {
    let name = shown(&flags.config);
    let mut checked = Vec::new();
    let mut trust = flags.trust.clone();
    trust.registries = with_login(&trust.registries);
    let modules = Modules { directory: flags.modules_dir.clone(), trust, ..Modules::default() };
    for entry in &configuration.filters {
        if matches!(entry.module, ModuleSource::ConfigMap(_)) {
            eprintln!("{name}: note: filter {}: {} is in the cluster, and not checked", entry.name, entry.module);
            continue;
        }
        let filter = prepare(loader, entry, configuration, &modules, &[], (|_| {}, || {})).await;
        checked.push((entry.name.to_string(), filter.map_err(|unprepared| unprepared.reason)));
    }
    checked
}

fn rules(filter: &Filter) -> Vec<String> {
    filter.rules().iter().map(ToString::to_string).collect()
}

fn report(filter: &Filter) {
    let about = filter.description();
    let (name, digest) = (filter.name(), filter.digest());
    print_line!("{name}: {} {} {digest} matches {}", about.name, about.version, rules(filter).join(" "));
}

fn to_json((name, filter): &Checked) -> Value {
    match filter {
        Err(reason) => json!({"filter": name, "error": reason}),
        Ok(filter) => {
            let about = filter.description();
            json!({
                "filter": name,
                "module": about.name,
                "version": about.version,
                "digest": filter.digest().to_string(),
                "match": rules(filter),
                "warnings": filter.plan_warnings(),
            })
        }
    }
}
