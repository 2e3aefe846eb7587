//! The limit of open files. Each connection is one, so the limit bounds how many connections the ports may have.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// What is left for files, the admin port and the daemon's own connections.
const RESERVE: u64 = 256;
/// The fewest connections of a port, whatever the limit is.
const MIN: usize = 16;

/// Raises the soft limit to the hard limit. Returns the limit.
pub(crate) fn raise_file_limit() -> u64 {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum
        && let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })
    {
        tracing::warn!(?current, ?maximum, %error, "cannot raise the limit of open files");
        return current.unwrap_or(u64::MAX);
    }
    maximum.unwrap_or(u64::MAX)
}

/// The connections that each of some ports may have, at most `wanted`. A connection may need another one to an API server.
pub(crate) fn connections_within(files: u64, ports: u64, wanted: usize) -> usize {
    let most = files.saturating_sub(RESERVE) / (2 * ports.max(1));
    let connections = usize::try_from(most).unwrap_or(usize::MAX).clamp(MIN, wanted.max(MIN));
    if connections < wanted {
        tracing::warn!(files, connections, "the limit of open files allows each port fewer connections than {wanted}");
    }
    connections
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_room_for_other_files() {
        assert_eq!(connections_within(u64::MAX, 2, 4096), 4096);
        assert_eq!(connections_within(1 << 20, 2, 4096), 4096);
        assert_eq!(connections_within(4096, 2, 4096), 960);
        assert_eq!(connections_within(1024, 1, 4096), 384);
        assert_eq!(connections_within(64, 2, 4096), MIN);
    }

    #[test]
    fn the_soft_limit_becomes_the_hard_limit() {
        let files = raise_file_limit();
        let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
        assert_eq!((current, current.unwrap_or(u64::MAX)), (maximum, files));
    }
}
