//! The memory of one instance: its linear memories, and what it makes the host keep. Their sum has one limit.

use wasmtime::{ResourceLimiter, Result};

use super::fault::Refusal;

/// The maximum number of elements of one table of the module.
const TABLE_ELEMENTS: usize = 1 << 20;

/// Limits the memory and tables of an instance, and records whether a request was refused. All sizes are in bytes.
#[derive(Debug)]
pub(super) struct MemoryLimit {
    limit: usize,
    /// The sum of all linear memories. They never shrink.
    linear: usize,
    /// The last growth that was granted. It is taken back if the growth fails afterwards.
    growth: usize,
    /// What the guest has handles of: string sets and paths, and room for those of WASI.
    held: usize,
    /// What the call has passed to the host, which keeps it until the end of the call.
    kept: usize,
    refused: bool,
}

impl MemoryLimit {
    /// Creates a limit of which some bytes are taken for as long as the instance lives.
    pub(super) fn new(limit: usize, taken: usize) -> Self {
        Self { limit, linear: 0, growth: 0, held: taken, kept: 0, refused: false }
    }

    /// Begins a call.
    pub(super) fn begin(&mut self) {
        self.refused = false;
        self.kept = 0;
    }

    /// Adds what the host keeps until the end of the call.
    pub(super) fn keep(&mut self, bytes: usize) -> Result<()> {
        self.grant(bytes)?;
        self.kept += bytes;
        Ok(())
    }

    /// Adds what the host keeps until the guest drops its handle.
    pub(super) fn hold(&mut self, bytes: usize) -> Result<()> {
        self.grant(bytes)?;
        self.held += bytes;
        Ok(())
    }

    /// Takes back what [`MemoryLimit::hold`] added.
    pub(super) fn release(&mut self, bytes: usize) {
        self.held = self.held.saturating_sub(bytes);
    }

    /// Returns the sum of all linear memories.
    pub(super) fn linear(&self) -> usize {
        self.linear
    }

    /// Returns whether something was refused since the call began.
    pub(super) fn refused(&self) -> bool {
        self.refused
    }

    fn has(&mut self, bytes: usize) -> bool {
        let all = [self.linear, self.held, self.kept].into_iter().fold(bytes, usize::saturating_add);
        self.refused |= all > self.limit;
        all <= self.limit
    }

    fn grant(&mut self, bytes: usize) -> Result<()> {
        let what = "bytes of memory and of what the host keeps for the module";
        if self.has(bytes) { Ok(()) } else { Err(Refusal::TooMany(self.limit, what).into()) }
    }
}

impl ResourceLimiter for MemoryLimit {
    fn memory_growing(&mut self, current: usize, desired: usize, _maximum: Option<usize>) -> Result<bool> {
        let growth = desired.saturating_sub(current);
        let granted = self.has(growth);
        if granted {
            self.linear += growth;
            self.growth = growth;
        }
        Ok(granted)
    }

    fn memory_grow_failed(&mut self, _error: wasmtime::Error) -> Result<()> {
        self.linear = self.linear.saturating_sub(std::mem::take(&mut self.growth));
        Ok(())
    }

    fn table_growing(&mut self, _current: usize, desired: usize, _maximum: Option<usize>) -> Result<bool> {
        let granted = desired <= TABLE_ELEMENTS;
        self.refused |= !granted;
        Ok(granted)
    }

    fn instances(&self) -> usize {
        64
    }

    fn tables(&self) -> usize {
        64
    }

    fn memories(&self) -> usize {
        4
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memories_and_what_the_host_keeps_share_one_limit() {
        let mut memory = MemoryLimit::new(130, 30);
        assert!(memory.memory_growing(0, 30, None).unwrap() && memory.memory_growing(0, 20, None).unwrap());
        assert!(memory.memory_growing(30, 40, None).unwrap());
        assert_eq!(memory.linear(), 60, "two memories");
        memory.hold(20).unwrap();
        memory.keep(20).unwrap();
        assert!(!memory.refused());
        assert!(memory.keep(1).is_err() && memory.hold(1).is_err() && memory.refused());
        memory.begin();
        assert!(!memory.refused());
        assert!(memory.memory_growing(40, 60, None).unwrap(), "what a call passed goes with it");
        assert!(memory.hold(1).is_err());
        memory.release(20);
        memory.hold(20).unwrap();
        assert!(memory.keep(usize::MAX).is_err());
    }

    #[test]
    fn memory_that_was_granted_but_did_not_grow_does_not_count() {
        let mut memory = MemoryLimit::new(130, 30);
        assert!(memory.memory_growing(0, 80, None).unwrap());
        memory.memory_grow_failed(wasmtime::Error::msg("full")).unwrap();
        assert_eq!(memory.linear(), 0);
        assert!(!memory.memory_growing(0, 101, None).unwrap());
        memory.memory_grow_failed(wasmtime::Error::msg("refused")).unwrap();
        assert!(memory.memory_growing(0, 100, None).unwrap());
    }
}
