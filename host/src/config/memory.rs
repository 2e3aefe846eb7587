//! The one budget of memory, and its parts.

use clap::Args;

use weir_kube::quantity;

/// The budget where no cgroup limits the memory.
const UNLIMITED: u64 = 512 << 20;

/// The flags, before validation.
#[derive(Debug, Clone, Args)]
pub(super) struct MemoryFlags {
    /// Total memory for what Weir holds beyond its modules: half of it for stores, views and remembered responses, a quarter for responses that are buffered or that clients do not read, a quarter for recent events of watch caches. Half of the first part is for the daemon and node components, any other user has at most a tenth of it, at least 8Mi [default: three quarters of the cgroup's memory limit, else 512Mi]
    #[arg(long, env = "WEIR_MEMORY", value_name = "SIZE")]
    memory: Option<String>,
    // Hidden: only tests make one part small alone.
    /// The part for responses
    #[arg(long, hide = true, env = "WEIR_RESPONSE_MEMORY", value_name = "SIZE")]
    response_memory: Option<String>,
    // Hidden, as the part for responses is.
    /// The part for recent events
    #[arg(long, hide = true, env = "WEIR_WATCH_MEMORY", value_name = "SIZE")]
    watch_memory: Option<String>,
}

/// The parts of the budget. Nothing takes from another part: what slow clients cause does not take the caches' room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryParts {
    /// Bytes of stores, views and remembered responses: half, since they serve the node without an API server.
    pub held: u64,
    /// Bytes of responses that are buffered, or that clients do not read: a quarter.
    pub responses: usize,
    /// Bytes of the recent events of watch caches, and of what their watches have yet to send: a quarter.
    pub events: usize,
}

impl MemoryFlags {
    /// The parts of the given budget, or else of three quarters of the cgroup's limit: the rest is for the program, modules and their instances.
    pub(super) fn validate(&self, limit: Option<u64>, errors: &mut Vec<String>) -> MemoryParts {
        let total = match &self.memory {
            Some(text) => parse("--memory", text, errors),
            None => limit.map_or(UNLIMITED, |limit| limit / 4 * 3),
        };
        let mut part = |flag, text: &Option<String>| {
            let bytes = text.as_ref().map_or(total / 4, |text| parse(flag, text, errors));
            usize::try_from(bytes).unwrap_or(usize::MAX)
        };
        MemoryParts {
            held: total / 2,
            responses: part("--response-memory", &self.response_memory),
            events: part("--watch-memory", &self.watch_memory),
        }
    }
}

fn parse(flag: &str, text: &str, errors: &mut Vec<String>) -> u64 {
    quantity(text).unwrap_or_else(|| {
        errors.push(format!("{flag}: {text:?} is not an amount of memory: write it as 256Mi"));
        0
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn the_parts_of_the_budget_add_up_to_it() {
        let none = MemoryFlags { memory: None, response_memory: None, watch_memory: None };
        let given = MemoryFlags { memory: Some("200Mi".to_owned()), ..none.clone() };
        // Without a limit, three quarters of the container's limit, and as given.
        for (flags, limit, total) in
            [(&none, None, 512 * MIB), (&none, Some(512 * MIB), 384 * MIB), (&given, Some(MIB), 200 * MIB)]
        {
            let mut errors = Vec::new();
            let MemoryParts { held, responses, events } = flags.validate(limit, &mut errors);
            assert_eq!((held + responses as u64 + events as u64, held, errors.len()), (total, total / 2, 0));
        }
        let part = MemoryFlags { response_memory: Some("1Ki".to_owned()), ..given };
        let parts = part.validate(None, &mut Vec::new());
        assert_eq!((parts.held, parts.responses, parts.events), (100 * MIB, 1 << 10, 50 << 20));
    }
}
