//! Timeouts, intervals and bounds of reflectors.

use std::time::Duration;

/// Timeouts, intervals and bounds of a reflector. The defaults are for production; tests shorten them.
#[derive(Debug, Clone, Copy)]
pub struct ReflectorTiming {
    /// The delay after the first failure. Each further failure doubles it.
    pub(crate) initial_backoff: Duration,
    /// The longest delay after a failure.
    pub(crate) max_backoff: Duration,
    /// How often a reflector looks for a resource that the API server does not serve.
    pub(crate) rediscovery: Duration,
    /// How long a reflector waits for the head of a response, and for the next chunk of a list.
    pub(crate) response_timeout: Duration,
    /// How long a watch lasts before the reflector starts a new one. This bounds how long a dead connection is not noticed.
    pub(crate) watch_timeout: Duration,
    /// How long a watch lasts whose reader waits for a BOOKMARK. kube-apiserver sends it 2 s before the end.
    pub(crate) first_bookmark: Duration,
    /// The most bytes of one list, also while its pages arrive.
    pub(crate) max_list: usize,
    /// How long a peer is not asked whose objects differ from the API server's.
    pub(crate) peer_rest: Duration,
}

impl Default for ReflectorTiming {
    fn default() -> Self {
        Self {
            initial_backoff: Duration::from_millis(500),
            max_backoff: Duration::from_secs(30),
            rediscovery: Duration::from_secs(30),
            response_timeout: Duration::from_secs(30),
            watch_timeout: Duration::from_secs(300),
            first_bookmark: Duration::from_secs(4),
            max_list: 512 << 20,
            peer_rest: Duration::from_secs(3600),
        }
    }
}
