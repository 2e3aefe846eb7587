//! A bounded sequence of events that readers follow, each at its own position.

use std::collections::VecDeque;

/// The events after the position were evicted: the reader was too slow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HistoryGap;

/// Recent events. Positions count all events that were ever appended.
#[derive(Debug, Clone)]
pub struct History<E> {
    events: VecDeque<(E, usize)>,
    /// The position of the first kept event.
    first: u64,
    bytes: usize,
    /// The bytes of all events that were ever appended.
    appended: u64,
    max_events: usize,
    max_bytes: usize,
}

impl<E: Clone> History<E> {
    /// Creates an empty history with room for so many events and bytes. It always keeps the newest event.
    #[must_use]
    pub fn new(max_events: usize, max_bytes: usize) -> Self {
        Self { events: VecDeque::new(), first: 0, bytes: 0, appended: 0, max_events, max_bytes }
    }

    /// Appends an event that keeps so many bytes alive. Evicts the oldest events and returns them.
    pub fn append(&mut self, event: E, bytes: usize) -> Vec<E> {
        self.bytes += bytes;
        self.appended += bytes as u64;
        self.events.push_back((event, bytes));
        self.evict()
    }

    /// Sets the most bytes. The next append or eviction applies it.
    pub fn set_max_bytes(&mut self, bytes: usize) {
        self.max_bytes = bytes;
    }

    /// Evicts the oldest events beyond the limits and returns them.
    pub fn evict(&mut self) -> Vec<E> {
        let mut evicted = Vec::new();
        while self.events.len() > 1 && (self.events.len() > self.max_events || self.bytes > self.max_bytes) {
            if let Some((event, bytes)) = self.events.pop_front() {
                self.bytes -= bytes;
                self.first += 1;
                evicted.push(event);
            }
        }
        evicted
    }

    /// The position after the newest event.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.first + self.events.len() as u64
    }

    /// The position of the oldest event.
    #[must_use]
    pub fn start(&self) -> u64 {
        self.first
    }

    /// The number of kept events.
    #[must_use]
    pub fn len(&self) -> usize {
        self.events.len()
    }

    /// Whether no events are kept.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// The bytes that the events keep alive.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The bytes of all events that were ever appended. Readers compare it to learn how much they have not read.
    #[must_use]
    pub(crate) fn appended(&self) -> u64 {
        self.appended
    }

    /// The events from a position on, at most `limit`.
    ///
    /// # Errors
    /// [`HistoryGap`] if some of them were evicted.
    pub fn from(&self, position: u64, limit: usize) -> Result<Vec<E>, HistoryGap> {
        if position < self.first {
            return Err(HistoryGap);
        }
        Ok(self.iter_from(position).take(limit).map(|(_, event)| event.clone()).collect())
    }

    /// The events from a position on that are kept, with their positions, oldest first.
    pub fn iter_from(&self, position: u64) -> impl DoubleEndedIterator<Item = (u64, &E)> {
        let skip = usize::try_from(position.saturating_sub(self.first)).unwrap_or(usize::MAX).min(self.events.len());
        let first = self.first + skip as u64;
        self.events.range(skip..).enumerate().map(move |(index, (event, _))| (first + index as u64, event))
    }

    /// Forgets all events. Every reader gets [`HistoryGap`], also one that has read them all.
    pub fn clear(&mut self) {
        self.first = self.end() + 1;
        self.events.clear();
        self.bytes = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_follows_the_events_from_its_position_on() {
        let mut history = History::new(3, 100);
        for event in 0..3 {
            history.append(event, 10);
        }
        assert_eq!(history.from(1, 10), Ok(vec![1, 2]));
        assert_eq!(history.from(1, 1), Ok(vec![1]));
        assert_eq!(history.from(history.end(), 10), Ok(Vec::new()));
    }

    #[test]
    fn events_are_evicted_by_number_and_by_bytes_and_a_slow_reader_learns_of_it() {
        let mut history = History::new(3, 100);
        for event in 0..5 {
            history.append(event, 10);
        }
        assert_eq!((history.start(), history.end(), history.bytes()), (2, 5, 30));
        assert_eq!(history.from(1, 10), Err(HistoryGap));
        history.append(5, 95);
        assert_eq!(history.from(5, 10), Ok(vec![5]));
        history.append(6, 1000);
        assert_eq!((history.from(6, 10), history.bytes()), (Ok(vec![6]), 1000), "the newest event is always kept");
        history.clear();
        assert_eq!((history.from(7, 10), history.from(8, 10)), (Err(HistoryGap), Ok(Vec::new())));
    }
}
