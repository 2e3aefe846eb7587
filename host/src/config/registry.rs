//! Flags for the access to registries and the trust in their modules. They belong to the daemon, not to the configuration: an
//! editor of the ConfigMap names modules, and these files decide which of them may run.

use std::path::PathBuf;

use clap::Args;

/// How registries are reached.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
pub struct RegistryFlags {
    /// Mirrors, certificate authorities and plain HTTP of registries, as YAML
    #[arg(long, env = "WEIR_REGISTRIES", value_name = "FILE")]
    pub registries: Option<PathBuf>,
    /// Credentials of registries, in the format of docker's config.json or of a pull secret. Weir reads them again for each pull
    #[arg(long, env = "WEIR_REGISTRY_AUTH", value_name = "FILE[,FILE…]", value_delimiter = ',')]
    pub registry_auth: Vec<PathBuf>,
}

/// How registries are reached, and what is trusted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
pub struct TrustFlags {
    /// How registries are reached.
    #[command(flatten)]
    pub registries: RegistryFlags,
    /// Which modules need a signature of which key, as YAML [default: none does]
    #[arg(long, env = "WEIR_SIGNATURE_POLICY", value_name = "FILE")]
    pub signature_policy: Option<PathBuf>,
}

impl TrustFlags {
    /// The present files, to watch them.
    pub(crate) fn files(&self) -> impl Iterator<Item = &PathBuf> {
        let single = [&self.registries.registries, &self.signature_policy].into_iter().flatten();
        single.chain(&self.registries.registry_auth)
    }
}
