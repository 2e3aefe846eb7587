//! Bounds the memory of all responses that Weir buffers as a whole: protobuf lists, which start with their length,
//! Tables, whose form depends on their content, and objects that are filtered.
//!
//! A list waits for its lease before it buffers anything, so that two lists never wait for each other. Its lease
//! grows only by memory that is free at once. If none is free, Weir requests the list again in a form that it streams.
//!
//! An object has no other form. It takes what almost all need at once, once it is not small, and waits for that at most ten seconds;
//! what clients do not read is given up meanwhile. One may take the whole budget; those of clients other than node components get
//! half of it together.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt as _;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use weir_process::ledger::Owner;
use weir_upstream::{DecodedBody, ResponseBodyError};

use super::body::{AbortError, ResponseBody, full};
use super::respond::StatusError;

/// The unit of the semaphore, which counts in 32 bits.
const UNIT: usize = 1 << 10;
/// How long a response waits for a lease.
const TIMEOUT: Duration = Duration::from_secs(10);
/// What is held of a response without a lease. kube-apiserver seldom says how large one is.
const SMALL: usize = 64 << 10;
/// The size for which a larger one takes memory: as large as etcd lets an object be.
const USUAL: usize = 3 << 19;
/// An object, and what the filters make of it.
const COPIES: usize = 2;
/// What of an object is handed to its connection at a time.
const CHUNK: usize = 64 << 10;

/// The memory for all buffered responses together.
#[derive(Debug)]
pub(crate) struct MemoryBudget {
    all: Part,
    /// What objects of clients other than node components take at most.
    of_others: Part,
    wanted: Arc<Wanted>,
}

/// Memory that leases take.
#[derive(Debug, Clone)]
struct Part {
    units: u32,
    free: Arc<Semaphore>,
    /// The units that are in leases. The semaphore counts those that wait, too.
    leased: Arc<AtomicUsize>,
}

/// Marks a response whose body holds a lease.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Leased;

/// Who lacks memory.
#[derive(Debug, Default)]
struct Wanted {
    /// How many objects wait.
    waiting: AtomicUsize,
    /// Whether one could not go on since this was read.
    is_refused: AtomicBool,
}

/// The memory of one response; it returns to the budget on drop.
#[derive(Debug)]
pub(crate) struct MemoryLease {
    part: Part,
    held: OwnedSemaphorePermit,
}

/// The memory of an object; it returns to the budget on drop.
#[derive(Debug)]
pub(crate) struct ObjectLease {
    /// Of the part of others, then of all.
    parts: Vec<MemoryLease>,
    wanted: Arc<Wanted>,
}

/// One object that waits.
struct Waits<'a>(&'a AtomicUsize);

impl<'a> Waits<'a> {
    fn begin(waiting: &'a AtomicUsize) -> Self {
        waiting.fetch_add(1, Ordering::Relaxed);
        Self(waiting)
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The budget has no room for this response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OverBudget;

impl MemoryBudget {
    /// Creates a budget of this many bytes.
    #[must_use]
    pub(crate) fn new(bytes: usize) -> Self {
        let units = u32::try_from(bytes / UNIT).unwrap_or(u32::MAX);
        Self { all: Part::new(units), of_others: Part::new(units / 2), wanted: Arc::default() }
    }

    /// The bytes that are not leased.
    #[must_use]
    pub(crate) fn free(&self) -> usize {
        (self.all.units as usize).saturating_sub(self.all.leased.load(Ordering::Relaxed)) * UNIT
    }

    /// Whether an object waits for memory, or has been refused some since the last call.
    #[must_use]
    pub(crate) fn is_wanted(&self) -> bool {
        let is_refused = self.wanted.is_refused.swap(false, Ordering::Relaxed);
        is_refused || self.wanted.waiting.load(Ordering::Relaxed) > 0
    }

    /// The size of the budget in bytes.
    #[must_use]
    pub(crate) fn bytes(&self) -> usize {
        self.all.units as usize * UNIT
    }

    /// Leases memory that responses can do without; never waits. `None` if less than half of the budget would be left.
    pub(crate) fn spare(&self, bytes: usize) -> Option<MemoryLease> {
        let units = units(bytes);
        let left = self.all.free.available_permits().checked_sub(units as usize)?;
        let held = self.all.take(units).filter(|_| left >= self.all.units as usize / 2)?;
        Some(self.all.lease(held))
    }

    /// Leases memory for a response of about this size, after at most ten seconds. Cancel-safe.
    ///
    /// # Errors
    /// The response exceeds the whole budget, or the wait timed out.
    pub(crate) async fn lease(&self, bytes: usize) -> Result<MemoryLease, OverBudget> {
        let units = units(bytes);
        if units > self.all.units {
            return Err(OverBudget);
        }
        Ok(self.all.lease(self.all.wait_for(units).await.ok_or(OverBudget)?))
    }

    /// Reads a whole object for a client, with the memory for it and for what the filters make of it. Cancelling loses the bytes
    /// read so far.
    ///
    /// # Errors
    /// It breaks off, it is larger than `limit`, or no memory becomes free in time.
    pub(crate) async fn collect(
        &self,
        owner: &Owner,
        mut body: DecodedBody,
        limit: usize,
    ) -> Result<(Bytes, ObjectLease), StatusError> {
        let (mut lease, mut whole) = (self.object_lease(owner), Vec::new());
        let estimate = body.estimated_size().min(limit);
        while let Some(chunk) = body.next_with_timeout().await? {
            let length = whole.len() + chunk.len();
            if length > limit {
                return Err(ResponseBodyError::Invalid(format!("the object exceeds {limit} bytes")).into());
            }
            lease.grow_to(COPIES, length, estimate).await?;
            whole.extend_from_slice(&chunk);
        }
        lease.shrink_to(COPIES * whole.len());
        Ok((whole.into(), lease))
    }

    /// The memory for what is held of a client's response as a whole; none so far.
    pub(crate) fn object_lease(&self, owner: &Owner) -> ObjectLease {
        let of_others = (!owner.is_reserved()).then_some(&self.of_others);
        let parts = of_others.into_iter().chain([&self.all]);
        let parts = parts.filter_map(|part| Some(part.lease(part.take(0)?))).collect();
        ObjectLease { parts, wanted: self.wanted.clone() }
    }
}

impl Part {
    fn new(units: u32) -> Self {
        Self { units, free: Arc::new(Semaphore::new(units as usize)), leased: Arc::default() }
    }

    fn take(&self, units: u32) -> Option<OwnedSemaphorePermit> {
        self.free.clone().try_acquire_many_owned(units).ok()
    }

    async fn wait_for(&self, units: u32) -> Option<OwnedSemaphorePermit> {
        tokio::time::timeout(TIMEOUT, self.free.clone().acquire_many_owned(units)).await.ok()?.ok()
    }

    fn lease(&self, held: OwnedSemaphorePermit) -> MemoryLease {
        self.leased.fetch_add(held.num_permits(), Ordering::Relaxed);
        MemoryLease { part: self.clone(), held }
    }
}

impl ObjectLease {
    /// Grows for a response of which so many bytes are held, or so many copies of them. The first time it waits, at most ten
    /// seconds, and takes what is estimated; from then on it takes memory that is free at once, so that no two wait for each other.
    /// Cancel-safe.
    ///
    /// # Errors
    /// No memory becomes free in time, or none is.
    pub(crate) async fn grow_to(&mut self, copies: usize, length: usize, estimate: usize) -> Result<(), StatusError> {
        if length <= SMALL {
            return Ok(());
        }
        let waits = self.parts.iter().all(|lease| lease.held.num_permits() == 0);
        let bytes = copies * if waits { length.max(estimate).max(USUAL) } else { length };
        for lease in &mut self.parts {
            let most = units(bytes).min(lease.part.units);
            let more = most.saturating_sub(u32::try_from(lease.held.num_permits()).unwrap_or(most));
            let taken = if waits {
                let _waits = Waits::begin(&self.wanted.waiting);
                lease.part.wait_for(more).await
            } else {
                lease.part.take(more)
            };
            let Some(taken) = taken else {
                self.wanted.is_refused.store(true, Ordering::Relaxed);
                return Err(StatusError::OverBudget);
            };
            lease.add(taken);
        }
        Ok(())
    }

    /// A response that is complete. A client that does not read it holds little more than what is left of it.
    pub(crate) fn respond(mut self, mut parts: http::response::Parts, bytes: Bytes) -> Response<ResponseBody> {
        if bytes.len() <= CHUNK {
            return Response::from_parts(parts, full(bytes));
        }
        self.shrink_to(bytes.len());
        parts.extensions.insert(Leased);
        Response::from_parts(parts, ObjectBody { rest: bytes, _lease: self }.boxed_unsync())
    }

    /// Gives back what is more than these bytes.
    fn shrink_to(&mut self, bytes: usize) {
        self.parts.iter_mut().for_each(|lease| lease.shrink_to(units(bytes)));
    }
}

/// An object on its way to its client.
struct ObjectBody {
    rest: Bytes,
    _lease: ObjectLease,
}

impl Body for ObjectBody {
    type Data = Bytes;
    type Error = AbortError;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, AbortError>>> {
        let rest = &mut self.get_mut().rest;
        let chunk = rest.split_to(rest.len().min(CHUNK));
        // A slice would keep all of it alive in the buffers of the connection.
        Poll::Ready((!chunk.is_empty()).then(|| Ok(Frame::data(Bytes::copy_from_slice(&chunk)))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.rest.len() as u64)
    }
}

impl MemoryLease {
    /// Grows the lease to this many bytes in all; never waits.
    ///
    /// # Errors
    /// Less memory is free now.
    pub(crate) fn grow_to(&mut self, bytes: usize) -> Result<(), OverBudget> {
        let more = (units(bytes) as usize).saturating_sub(self.held.num_permits());
        let more = u32::try_from(more).map_err(|_| OverBudget)?;
        self.add(self.part.take(more).ok_or(OverBudget)?);
        Ok(())
    }

    fn add(&mut self, more: OwnedSemaphorePermit) {
        self.part.leased.fetch_add(more.num_permits(), Ordering::Relaxed);
        self.held.merge(more);
    }

    fn shrink_to(&mut self, units: u32) {
        let less = self.held.num_permits().saturating_sub(units as usize);
        drop(self.held.split(less));
        self.part.leased.fetch_sub(less, Ordering::Relaxed);
    }
}

impl Drop for MemoryLease {
    fn drop(&mut self) {
        self.part.leased.fetch_sub(self.held.num_permits(), Ordering::Relaxed);
    }
}

fn units(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(UNIT)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_response_waits_for_a_lease_and_returns_it_on_drop() {
        let budget = MemoryBudget::new(10 << 10);
        let mut first = budget.lease(4 << 10).await.unwrap();
        first.grow_to(8 << 10).unwrap();
        assert_eq!(first.grow_to(11 << 10), Err(OverBudget));
        assert_eq!(budget.lease(3 << 10).await.unwrap_err(), OverBudget, "no lease is returned");
        let second = budget.lease(2 << 10).await.unwrap();
        assert_eq!(first.grow_to(9 << 10), Err(OverBudget));
        drop(second);
        first.grow_to(10 << 10).unwrap();
        let waiting = budget.lease(10 << 10);
        tokio::pin!(waiting);
        assert!(futures_util::poll!(waiting.as_mut()).is_pending());
        drop(first);
        waiting.await.unwrap();
    }

    #[test]
    fn half_of_the_budget_is_never_spare() {
        let budget = MemoryBudget::new(10 << 10);
        assert!(budget.spare(6 << 10).is_none());
        let kept = budget.spare(4 << 10).unwrap();
        assert!(budget.spare(2 << 10).is_none());
        drop(kept);
        assert!(budget.spare(5 << 10).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn objects_wait_for_memory_and_others_than_node_components_get_half_of_it() {
        const MIB: usize = 1 << 20;
        let budget = MemoryBudget::new(8 * MIB);
        let client = Owner::Client("a".into());
        let [mut small, mut one, mut two, mut of_node] =
            [&client, &client, &client, &Owner::Node].map(|owner| budget.object_lease(owner));
        small.grow_to(1, SMALL, 0).await.unwrap();
        assert_eq!(budget.free(), 8 * MIB);
        one.grow_to(1, SMALL + 1, 0).await.unwrap();
        assert_eq!(budget.free(), 8 * MIB - USUAL);
        one.grow_to(1, 3 * MIB, 0).await.unwrap();
        assert!(!budget.is_wanted());
        assert!(matches!(two.grow_to(2, MIB, 0).await, Err(StatusError::OverBudget)), "half of it is for the node");
        of_node.grow_to(1, MIB, 5 * MIB).await.unwrap();
        assert_eq!((budget.free(), budget.is_wanted(), budget.is_wanted()), (0, true, false));
        {
            let waits = two.grow_to(1, MIB, 0);
            tokio::pin!(waits);
            assert!(futures_util::poll!(waits.as_mut()).is_pending() && budget.is_wanted());
            one.shrink_to(MIB);
            waits.await.unwrap();
        }
        assert!(
            matches!(two.grow_to(1, 4 * MIB, 0).await, Err(StatusError::OverBudget)),
            "it waits with nothing alone"
        );
        drop((one, two, of_node));
        for (owner, most) in [(Owner::Node, 8 * MIB), (client, 4 * MIB)] {
            let mut whole = budget.object_lease(&owner);
            whole.grow_to(2, 100 * MIB, 0).await.unwrap();
            assert!(8 * MIB - budget.free() >= most, "one object may take all of its part");
        }
    }

    #[tokio::test]
    async fn an_object_on_its_way_gives_its_memory_back_with_its_last_bytes() {
        let budget = MemoryBudget::new(8 << 20);
        let mut lease = budget.object_lease(&Owner::Node);
        lease.grow_to(2, 1 << 20, 0).await.unwrap();
        let bytes = Bytes::from(vec![7; 1 << 20]);
        let mut body = lease.respond(Response::new(()).into_parts().0, bytes.clone()).into_body();
        assert_eq!((budget.free(), body.size_hint().exact()), (7 << 20, Some(1 << 20)));
        let mut sent = Vec::new();
        while let Some(frame) = body.frame().await {
            sent.extend_from_slice(frame.unwrap().data_ref().unwrap());
        }
        assert!(sent == bytes && body.is_end_stream());
        drop(body);
        assert_eq!(budget.free(), 8 << 20);
    }

    #[tokio::test]
    async fn a_response_larger_than_the_budget_does_not_wait() {
        assert_eq!(MemoryBudget::new(1 << 10).lease(2 << 10).await.unwrap_err(), OverBudget);
    }
}
