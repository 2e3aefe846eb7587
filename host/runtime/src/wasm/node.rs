//! The `node` and `log` imports.

use wasmtime::Result;

use super::bindings::weir::filter::{log, node};
use super::cluster::unexpected;
use super::fault::Refusal;
use super::host_call::{HostCall, Observed};
use super::state::{GuestState, Phase};
use weir_process::one_line;

/// The maximum length of a logged message in bytes.
const MESSAGE: usize = 1024;

impl node::Host for GuestState {
    fn name(&mut self) -> Result<String> {
        Ok(self.context.view.node_name().to_owned())
    }

    fn addresses(&mut self) -> Result<Vec<node::Address>> {
        if self.phase == Phase::Configure {
            return Err(Refusal::AddressesInConfigure.into());
        }
        let addresses = match self.evaluate(HostCall::Addresses)? {
            Observed::Addresses(addresses) => addresses,
            other => return Err(unexpected(&other)),
        };
        Ok(addresses
            .iter()
            .map(|address| node::Address {
                interface_name: address.interface_name.clone(),
                ip: address.ip.to_string(),
                prefix_length: address.prefix_length,
                default_route: address.default_route,
            })
            .collect())
    }

    fn secure_endpoint(&mut self) -> Result<Option<node::Endpoint>> {
        let endpoint = self.context.view.secure_endpoint();
        Ok(endpoint.map(|endpoint| node::Endpoint { host: endpoint.host, port: endpoint.port }))
    }
}

impl log::Host for GuestState {
    fn write(&mut self, level: log::Level, message: String) -> Result<()> {
        if let Some(explainer) = &mut self.explainer {
            explainer.note_line(one_line(&message, MESSAGE));
        }
        let may_log = match level {
            // Reasons: the call can be replayed, and they take no other line's place.
            log::Level::Trace => tracing::enabled!(tracing::Level::TRACE) && self.output.may_log_reason(),
            log::Level::Debug => tracing::enabled!(tracing::Level::DEBUG) && self.output.may_log_reason(),
            log::Level::Info | log::Level::Warn | log::Level::Error => self.output.may_log(),
        };
        if !may_log {
            return Ok(());
        }
        let (filter, message) = (&self.context.filter, one_line(&message, MESSAGE));
        match level {
            log::Level::Trace => tracing::trace!(%filter, message, "message of the filter module"),
            log::Level::Debug => tracing::debug!(%filter, message, "message of the filter module"),
            log::Level::Info => tracing::info!(%filter, message, "message of the filter module"),
            log::Level::Warn => tracing::warn!(%filter, message, "message of the filter module"),
            log::Level::Error => tracing::error!(%filter, message, "message of the filter module"),
        }
        Ok(())
    }
}
