//! The handles that guests hold: numbered and bounded. A stale handle never refers to another value.

use wasmtime::Result;

use super::fault::Refusal;

/// Handles that end with the call. Their places count from 0 in each call. The guest sees numbers that no later call of
/// the instance uses, so that a handle from an earlier call is stale and never another object.
#[derive(Debug)]
pub(super) struct Handles<T> {
    /// The number of the call's first handle, as the guest sees it.
    first: u32,
    slots: Vec<Option<T>>,
    held: usize,
    limit: usize,
    what: &'static str,
}

/// Handles that live until the guest drops them. Freed numbers are reused.
#[derive(Debug)]
pub(super) struct Slots<T> {
    slots: Vec<Option<T>>,
    free: Vec<u32>,
    limit: usize,
    what: &'static str,
}

impl<T> Handles<T> {
    /// Creates an empty set of at most `limit` handles.
    pub(super) fn new(limit: usize, what: &'static str) -> Self {
        // 0 is the filtered object.
        Self { first: 1, slots: Vec::new(), held: 0, limit, what }
    }

    /// Adds a value and returns its place in the call.
    pub(super) fn put(&mut self, value: T) -> Result<u32> {
        if self.held >= self.limit {
            return Err(Refusal::TooMany(self.limit, self.what).into());
        }
        let place = u32::try_from(self.slots.len())?;
        self.slots.push(Some(value));
        self.held += 1;
        Ok(place)
    }

    /// Returns the value at a place of the running call.
    pub(super) fn get(&self, place: u32) -> Result<&T> {
        let value = self.slots.get(place as usize).and_then(Option::as_ref);
        value.ok_or_else(|| Refusal::BadHandle(self.first.saturating_add(place)).into())
    }

    /// Returns the number of a place, as the guest sees it.
    pub(super) fn number(&self, place: u32) -> Result<u32> {
        self.first.checked_add(place).ok_or_else(|| Refusal::TooMany(u32::MAX as usize, self.what).into())
    }

    /// Returns the place of a number.
    pub(super) fn place(&self, number: u32) -> Result<u32> {
        let place = number.checked_sub(self.first).ok_or(Refusal::BadHandle(number))?;
        self.get(place).map(|_| place)
    }

    /// Frees a handle. Ignores a stale one.
    pub(super) fn free(&mut self, number: u32) {
        let place = number.checked_sub(self.first).and_then(|place| usize::try_from(place).ok());
        if let Some(slot) = place.and_then(|place| self.slots.get_mut(place))
            && slot.take().is_some()
        {
            self.held -= 1;
        }
    }

    /// Ends the call: all handles become stale.
    pub(super) fn end(&mut self) {
        if !self.slots.is_empty() {
            self.first = self.first.saturating_add(u32::try_from(self.slots.len()).unwrap_or(u32::MAX));
            self.slots.clear();
            self.held = 0;
        }
    }
}

impl<T> Slots<T> {
    /// Creates an empty set of at most `limit` handles.
    pub(super) fn new(limit: usize, what: &'static str) -> Self {
        Self { slots: Vec::new(), free: Vec::new(), limit, what }
    }

    /// Adds a value and returns its number.
    pub(super) fn put(&mut self, value: T) -> Result<u32> {
        if let Some(slot) = self.free.pop().and_then(|number| self.slots.get_mut(number as usize).zip(Some(number))) {
            *slot.0 = Some(value);
            return Ok(slot.1);
        }
        if self.slots.len() >= self.limit {
            return Err(Refusal::TooMany(self.limit, self.what).into());
        }
        self.slots.push(Some(value));
        u32::try_from(self.slots.len() - 1).map_err(Into::into)
    }

    /// Returns the value of a number.
    pub(super) fn get(&self, number: u32) -> Result<&T> {
        self.slots.get(number as usize).and_then(Option::as_ref).ok_or_else(|| Refusal::BadHandle(number).into())
    }

    /// Frees a handle.
    pub(super) fn free(&mut self, number: u32) -> Option<T> {
        let value = self.slots.get_mut(number as usize)?.take()?;
        self.free.push(number);
        Some(value)
    }

    /// Returns the number of handles.
    pub(super) fn held(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_of_an_earlier_call_is_stale_and_never_another_value() {
        let mut handles = Handles::new(2, "values");
        let place = handles.put("old").unwrap();
        let kept = handles.number(place).unwrap();
        assert_eq!(handles.place(kept).unwrap(), place);
        handles.end();
        let place = handles.put("new").unwrap();
        assert_eq!(place, 0, "places count from 0 again");
        assert!(handles.place(kept).is_err() && handles.number(place).unwrap() != kept);
        handles.free(kept);
        assert_eq!(handles.get(place).unwrap(), &"new", "dropping a stale handle drops nothing else");
    }

    #[test]
    fn the_number_of_handles_is_bounded() {
        let mut handles = Handles::new(2, "values");
        for n in 0..10 {
            let place = handles.put(n).unwrap();
            let number = handles.number(place).unwrap();
            handles.free(number);
            handles.free(number);
        }
        handles.put(0).unwrap();
        handles.put(0).unwrap();
        assert!(handles.put(0).is_err(), "one too many");
        handles.end();
        assert!(handles.put(0).is_ok());
    }
}
