//! `weir push`, `pull`, `save` and `load`: modules in registries, and over an air gap.

use std::path::{Path, PathBuf};

use super::CommandError;
use super::workbench::{block_on, entry_of, module};
use crate::config::author::{LoadFlags, PullFlags, PushFlags, with_login};
use crate::config::{RegistryFlags, TrustFlags};
use crate::logging::{Repeated, log_for_people};
use crate::modules::{Modules, found, layout_file};
use weir_registry::{Credentials, Endpoint, Layout, Login, Pushed, Registries, Target};
use weir_spec::{OciReference, PinnedReference};
use weir_upstream::error_report;

/// A registry itself, without its mirrors, for what is written or named by a tag.
struct Registry {
    endpoint: Endpoint,
    login: Login,
}

impl Registry {
    fn new((registries, credentials): &(Registries, Credentials), name: &OciReference) -> Result<Self, CommandError> {
        let endpoints = registries.endpoints(name.registry());
        let endpoint = endpoints.map_err(|error| CommandError::invalid("--registries", error_report(&error)))?.pop();
        let endpoint = endpoint.ok_or_else(|| CommandError::invalid(name, "its registry has no address"))?;
        Ok(Self { endpoint, login: credentials.of(name) })
    }

    fn target<'a>(&'a self, reference: &'a OciReference) -> Target<'a> {
        Target { reference, endpoint: &self.endpoint, login: &self.login }
    }
}

/// Pushes a module, and prints the entry with which nodes pull it.
///
/// # Errors
/// The module cannot be read, or the registry refuses it.
pub fn push(flags: &PushFlags) -> Result<(), CommandError> {
    let bytes = module(&flags.module)?;
    let name = entry_of(&flags.module, "{}")?.name;
    let pushed = block_on(async {
        let registry = Registry::new(&settings(&modules(&flags.registries, None)).await?, &flags.reference)?;
        Ok(weir_registry::push(&registry.target(&flags.reference), &bytes).await?)
    })?;
    let reference = told(pushed);
    say!("pushed {reference}\n\nAn entry for filters.yaml:\n\n  - name: {name}\n    module: {reference}");
    Ok(())
}

/// Pulls a module into a file.
///
/// # Errors
/// The registry does not have it, or it is not signed as the policy wants it.
pub fn pull(flags: &PullFlags) -> Result<(), CommandError> {
    let (reference, layout) = pulled(flags)?;
    let module = layout.module(reference.digest());
    let module = module.map_err(|error| CommandError::invalid(&reference, error.to_string()))?;
    let name = flags.reference.repository().rsplit('/').next().unwrap_or_default();
    let path = flags.output.clone().unwrap_or_else(|| PathBuf::from(format!("{name}.wasm")));
    std::fs::write(&path, &module.bytes).map_err(CommandError::of_file(&path))?;
    say!("{}: {} bytes, {}", path.display(), module.bytes.len(), module.digest);
    Ok(())
}

/// Pulls a module with its signatures into one file.
///
/// # Errors
/// As [`pull`].
pub fn save(flags: &PullFlags) -> Result<(), CommandError> {
    let (reference, layout) = pulled(flags)?;
    let path = flags.output.clone().unwrap_or_else(|| layout_file(Path::new(""), reference.digest()));
    layout.save(&path).map_err(CommandError::of_file(&path))?;
    say!("{}: {reference}", path.display());
    say!("In --modules-dir of a daemon it stands in for the registry.");
    Ok(())
}

/// Pushes what `weir save` has written.
///
/// # Errors
/// The file is damaged, or the registry refuses it.
pub fn load(flags: &LoadFlags) -> Result<(), CommandError> {
    let invalid = |reason: String| CommandError::invalid(flags.file.display(), reason);
    let layout = Layout::open(&flags.file).map_err(|error| invalid(error.to_string()))?;
    let artifact = layout.first().ok_or_else(|| invalid("it has no artifact".to_owned()))?;
    layout.module(artifact).map_err(|error| invalid(error.to_string()))?;
    let pushed = block_on(async {
        let registry = Registry::new(&settings(&modules(&flags.registries, None)).await?, &flags.reference)?;
        Ok(weir_registry::push_layout(&registry.target(&flags.reference), &layout, artifact).await?)
    })?;
    say!("pushed {}", told(pushed));
    Ok(())
}

/// Says what of the credential was not used. Returns the name of what was pushed.
fn told(Pushed { reference, unused }: Pushed) -> PinnedReference {
    log_for_people(0, Repeated::Shown);
    if let Some(what) = unused {
        tracing::info!(%reference, what, "not used while a module was pushed");
    }
    reference
}

fn pulled(flags: &PullFlags) -> Result<(PinnedReference, Layout), CommandError> {
    // What of the credential or the artifact is not used.
    log_for_people(0, Repeated::Shown);
    let modules = modules(&flags.trust.registries, flags.trust.signature_policy.clone());
    block_on(async {
        let registry = Registry::new(&settings(&modules).await?, &flags.reference)?;
        let reference = weir_registry::resolve(&registry.target(&flags.reference)).await?;
        let invalid = |reason: String| CommandError::invalid(&reference, reason);
        let policy = modules.policy().await.map_err(invalid)?;
        let layout = modules.pull(&reference, policy.as_ref(), |_| {}).await.map_err(invalid)?;
        found(&layout, &reference, policy.as_ref(), String::new()).map_err(invalid)?;
        Ok((reference, layout))
    })
}

fn modules(flags: &RegistryFlags, signature_policy: Option<PathBuf>) -> Modules {
    Modules { trust: TrustFlags { registries: with_login(flags), signature_policy }, ..Modules::default() }
}

async fn settings(modules: &Modules) -> Result<(Registries, Credentials), CommandError> {
    modules.registries().await.map_err(|reason| CommandError::invalid("registries", reason))
}
