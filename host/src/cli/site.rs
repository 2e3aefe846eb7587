//! The filters of a configuration, loaded for one node of a cluster: what they look up is read once, with the user's credential.

use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::Value;

use super::CommandError;
use super::cluster::{Cluster, Wanted};
use super::run::{document, title};
use super::workbench::Workbench;
use crate::config::Configuration;
use crate::config::author::with_login;
use crate::config::operator::SiteFlags;
use crate::logging::Repeated;
use crate::lookups::{FileView, NotServed};
use crate::modules::Modules;
use crate::node_facts::NodeFacts;
use crate::reload::prepare;
use weir_runtime::{Endpoint, FilterSet};
use weir_spec::FilterEntry;

/// A node of a cluster, and what loads filters for it.
pub(super) struct Site {
    /// The cluster.
    pub(super) cluster: Cluster,
    workbench: Workbench,
    modules: Modules,
    node_name: String,
    /// Its labels, and whether it turns all filters off.
    facts: NodeFacts,
    namespace: String,
    config_map: String,
    /// That of the daemon on the node.
    endpoint: Endpoint,
}

impl Site {
    /// Connects to the cluster and reads the Node.
    pub(super) async fn connect(flags: &SiteFlags, node_name: &str, verbosity: u8) -> Result<Self, CommandError> {
        let workbench = Workbench::open(&flags.compiled, verbosity, Repeated::LeftOut)?;
        let cluster = Cluster::connect(&flags.cluster).await?;
        let (namespace, config_map) = flags.config_map.split_once('/').ok_or_else(|| {
            CommandError::invalid("--config-map", format!("{:?} is not NAMESPACE/NAME", flags.config_map))
        })?;
        let path = format!("/api/v1/nodes/{node_name}");
        let Some(node) = cluster.object(&path).await? else {
            return Err(CommandError::invalid(node_name, "the cluster has no such Node"));
        };
        let mut trust = flags.trust.clone();
        trust.registries = with_login(&trust.registries);
        let modules = Modules {
            directory: flags.modules_dir.clone(),
            trust,
            config_maps: Some((cluster.client(), namespace.to_owned())),
            ..Modules::default()
        };
        Ok(Self {
            workbench,
            modules,
            node_name: node_name.to_owned(),
            facts: NodeFacts::of(&document(&node)),
            namespace: namespace.to_owned(),
            config_map: config_map.to_owned(),
            endpoint: Endpoint { host: flags.pod_address.to_string(), port: flags.secure_port },
            cluster,
        })
    }

    /// Whether the Node turns all filters off.
    pub(super) fn is_off(&self) -> bool {
        self.facts.is_off
    }

    /// The configuration that the ConfigMap of the cluster has now.
    pub(super) async fn configuration(&self) -> Result<Configuration, CommandError> {
        let (namespace, name) = (&self.namespace, &self.config_map);
        let source = format!("ConfigMap {namespace}/{name}");
        match self.cluster.object(&format!("/api/v1/namespaces/{namespace}/configmaps/{name}")).await? {
            None => {
                eprintln!("note: {source} does not exist: no filter is in force");
                Ok(Configuration::missing(&source))
            }
            Some(found) => {
                let map: ConfigMap = serde_json::from_value(found)
                    .map_err(|error| CommandError::invalid(&source, format!("not a ConfigMap: {error}")))?;
                Ok(Configuration::from_config_map(&source, &map)?)
            }
        }
    }

    /// Loads the filters of a configuration that are for this node.
    pub(super) async fn load(&self, source: &str, configuration: &Configuration) -> Result<FilterSet, CommandError> {
        let here = |entry: &&FilterEntry| entry.nodes.as_ref().is_none_or(|nodes| nodes.selects(&self.facts.labels));
        let entries: Vec<_> = configuration.filters.iter().filter(here).collect();
        let refused = |entry: &FilterEntry, reason: String| {
            CommandError::Filters(format!("{source}: filter {}: {reason}", entry.name))
        };
        let (mut looked_up, mut not_served) = (Vec::new(), NotServed::new());
        let nothing = self.view(&[])?;
        for entry in &entries {
            let found = self.modules.read(entry, configuration, |_| {}).await;
            let found = found.map_err(|reason| refused(entry, reason))?;
            let probe = self.workbench.loader(nothing.clone()).inspect(entry, &found.bytes).await;
            let probe = probe.map_err(|error| refused(entry, weir_upstream::error_report(&error)))?;
            for lookup in &probe.lookups {
                let wanted = Wanted::of(lookup)?;
                match self.cluster.list(&wanted).await? {
                    Some(objects) => looked_up.extend(objects),
                    None => {
                        not_served.insert((wanted.resource, lookup.versions.clone()));
                    }
                }
            }
        }
        // Several lookups may have the same objects.
        looked_up.sort_by_key(title);
        looked_up.dedup_by_key(|object| title(object));
        let loader = self.workbench.loader(self.view(&looked_up)?.of_cluster_without(not_served));
        let mut filters = Vec::with_capacity(entries.len());
        for entry in entries {
            let filter = prepare(&loader, entry, configuration, &self.modules, &[], (|_| {}, || {})).await;
            filters.push(filter.map_err(|unprepared| refused(entry, unprepared.reason))?);
        }
        Ok(FilterSet::new(filters))
    }

    fn view(&self, objects: &[Value]) -> Result<FileView, CommandError> {
        FileView::new(&self.node_name, objects.iter().cloned(), Vec::new(), Some(self.endpoint.clone()))
            .map_err(|source| CommandError::Objects { what: "the cluster".to_owned(), source })
    }
}
