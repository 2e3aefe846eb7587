//! Decides which events are written: equal events are one series, and new ones are limited.
//!
//! An event that is the same as an earlier one raises the count of its series, which is written every [`UPDATE`] at most. The
//! log remembers [`MAX_SERIES`] series. It does no I/O.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use super::earlier;

/// How often the count of a series is written.
const UPDATE: Duration = Duration::from_secs(300);
/// A series without an event for so long has ended.
const END: Duration = Duration::from_secs(900);
/// The most series that are remembered.
const MAX_SERIES: usize = 32;
/// The most new events at once.
pub(super) const BURST: u32 = 10;
/// The time after which one more event may be new.
const REFILL: Duration = Duration::from_secs(60);
/// The longest note that an API server accepts, in bytes.
pub(super) const MAX_NOTE: usize = 1024;

/// An event about the Node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NodeEvent {
    /// `Normal` or `Warning`.
    pub(super) kind: &'static str,
    /// What happened, as an identifier.
    pub(super) reason: &'static str,
    /// What was done, as an identifier.
    pub(super) action: &'static str,
    /// What happened, for people.
    pub(super) note: String,
}

/// The events of the last time.
#[derive(Debug)]
pub(super) struct EventLog {
    series: VecDeque<Series>,
    tokens: u32,
    refilled: Instant,
}

#[derive(Debug)]
struct Series {
    event: NodeEvent,
    /// The name of the Event object.
    name: String,
    count: u32,
    written: u32,
    last: Instant,
    last_written: Instant,
}

/// What to write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum EventWrite {
    /// A new Event of this name.
    Create { name: String, event: NodeEvent },
    /// The count of the series of an Event.
    Count { name: String, count: u32 },
}

impl NodeEvent {
    pub(super) fn warning(reason: &'static str, action: &'static str, note: &str) -> Self {
        Self { kind: "Warning", reason, action, note: note_of(note) }
    }

    pub(super) fn normal(reason: &'static str, action: &'static str, note: &str) -> Self {
        Self { kind: "Normal", ..Self::warning(reason, action, note) }
    }
}

/// Modules choose parts of a note: it has no control characters, and is cut to what an API server accepts.
pub(super) fn note_of(text: &str) -> String {
    let mut note: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    if note.len() > MAX_NOTE {
        note.truncate(note.floor_char_boundary(MAX_NOTE - '…'.len_utf8()));
        note.push('…');
    }
    note
}

impl EventLog {
    pub(super) fn new() -> Self {
        Self { series: VecDeque::new(), tokens: BURST, refilled: Instant::now() }
    }

    /// Adds an event. `name` is the one of a new Event.
    pub(super) fn add(&mut self, event: &NodeEvent, name: impl FnOnce() -> String) -> Option<EventWrite> {
        let now = Instant::now();
        self.series.retain(|series| series.last.elapsed() < END);
        if let Some(series) = self.series.iter_mut().find(|series| series.event == *event) {
            series.count = series.count.saturating_add(1);
            series.last = now;
            return None;
        }
        self.refill();
        self.tokens = self.tokens.checked_sub(1)?;
        let (event, name) = (event.clone(), name());
        self.series.truncate(MAX_SERIES - 1);
        let series =
            Series { event: event.clone(), name: name.clone(), count: 1, written: 1, last: now, last_written: now };
        self.series.push_front(series);
        Some(EventWrite::Create { name, event })
    }

    /// Returns a count that is due.
    pub(super) fn next_count(&mut self) -> Option<EventWrite> {
        let is_due = |series: &&mut Series| series.count > series.written && series.last_written.elapsed() >= UPDATE;
        let series = self.series.iter_mut().find(is_due)?;
        series.written = series.count;
        series.last_written = Instant::now();
        Some(EventWrite::Count { name: series.name.clone(), count: series.count })
    }

    /// When the next count is due.
    pub(super) fn due(&self) -> Option<Instant> {
        let open = self.series.iter().filter(|series| series.count > series.written);
        open.fold(None, |due, series| Some(earlier(due, series.last_written + UPDATE)))
    }

    /// Forgets an event that could not be written, so that the next one is written as a new one.
    pub(super) fn forget(&mut self, name: &str) {
        self.series.retain(|series| series.name != name);
    }

    fn refill(&mut self) {
        let passed = self.refilled.elapsed().as_secs() / REFILL.as_secs();
        let more = u32::try_from(passed).unwrap_or(BURST).min(BURST);
        if more > 0 {
            self.tokens = (self.tokens + more).min(BURST);
            self.refilled = Instant::now();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(note: &str) -> NodeEvent {
        NodeEvent::warning("ConfigurationRefused", "Reload", note)
    }

    fn is_new(log: &mut EventLog, note: &str) -> bool {
        log.add(&refused(note), || note.to_owned()).is_some()
    }

    #[tokio::test(start_paused = true)]
    async fn equal_events_are_one_series_whose_count_is_written_now_and_then() {
        let mut log = EventLog::new();
        assert!(is_new(&mut log, "a"));
        assert_eq!((log.due(), log.next_count()), (None, None));
        for _ in 0..9 {
            tokio::time::advance(Duration::from_secs(30)).await;
            assert!(!is_new(&mut log, "a"));
            assert_eq!(log.next_count(), None);
        }
        tokio::time::sleep_until(log.due().unwrap()).await;
        assert_eq!(log.next_count(), Some(EventWrite::Count { name: "a".to_owned(), count: 10 }));
        assert_eq!((log.due(), log.next_count()), (None, None));
        tokio::time::advance(END).await;
        assert!(is_new(&mut log, "a"), "the series has ended");
    }

    #[tokio::test(start_paused = true)]
    async fn new_events_are_limited_and_the_memory_is_bounded() {
        let mut log = EventLog::new();
        let new = (0..1000).filter(|n| is_new(&mut log, &n.to_string())).count();
        assert_eq!(new, BURST as usize);
        for n in 0..100 {
            tokio::time::advance(REFILL).await;
            assert!(is_new(&mut log, &format!("later {n}")));
            assert!(!is_new(&mut log, &format!("too many {n}")));
        }
        assert!(log.series.len() <= MAX_SERIES);
    }

    #[tokio::test(start_paused = true)]
    async fn an_event_that_was_not_written_is_new_again() {
        let mut log = EventLog::new();
        assert!(is_new(&mut log, "a"));
        log.forget("a");
        assert!(is_new(&mut log, "a"));
    }

    #[test]
    fn a_note_has_no_control_characters_and_is_not_too_long() {
        let note = refused(&format!("a\nb\u{1b}{}", "é".repeat(2000))).note;
        assert!(note.starts_with("a b é") && note.ends_with("é…"));
        assert!(note.len() <= MAX_NOTE, "{}", note.len());
    }
}
