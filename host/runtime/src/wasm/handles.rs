//! Handles that guests hold: numbered, bounded, and never mistaken for one another.

use wasmtime::Result;

use super::fault::Refusal;

/// Handles that end with the call. They are counted from 0 in each call; the guest sees numbers that no later call of the
/// instance uses again, so that a handle that a guest keeps beyond its call is stale, and never another object.
#[derive(Debug)]
pub(super) struct Handles<T> {
    /// The guest's number of this call's first handle.
    first: u32,
    slots: Vec<Option<T>>,
    held: usize,
    limit: usize,
    what: &'static str,
}

/// Handles that live as long as the guest holds them. Freed numbers are used again.
#[derive(Debug)]
pub(super) struct Slots<T> {
    slots: Vec<Option<T>>,
    free: Vec<u32>,
    limit: usize,
    what: &'static str,
}

impl<T> Handles<T> {
    /// At most `limit` at once.
    pub(super) fn new(limit: usize, what: &'static str) -> Self {
        // 0 is the filtered object.
        Self { first: 1, slots: Vec::new(), held: 0, limit, what }
    }

    /// Holds a value and returns its place in the call.
    pub(super) fn put(&mut self, value: T) -> Result<u32> {
        if self.held >= self.limit {
            return Err(Refusal::TooMany(self.limit, self.what).into());
        }
        let place = u32::try_from(self.slots.len())?;
        self.slots.push(Some(value));
        self.held += 1;
        Ok(place)
    }

    /// The value at a place of the running call.
    pub(super) fn get(&self, place: u32) -> Result<&T> {
        let value = self.slots.get(place as usize).and_then(Option::as_ref);
        value.ok_or_else(|| Refusal::BadHandle(self.first.saturating_add(place)).into())
    }

    /// The guest's number of a place.
    pub(super) fn number(&self, place: u32) -> Result<u32> {
        self.first.checked_add(place).ok_or_else(|| Refusal::TooMany(u32::MAX as usize, self.what).into())
    }

    /// The place of a guest's number.
    pub(super) fn place(&self, number: u32) -> Result<u32> {
        let place = number.checked_sub(self.first).ok_or(Refusal::BadHandle(number))?;
        self.get(place).map(|_| place)
    }

    /// The guest drops a handle; a stale one is gone already.
    pub(super) fn free(&mut self, number: u32) {
        let place = number.checked_sub(self.first).and_then(|place| usize::try_from(place).ok());
        if let Some(slot) = place.and_then(|place| self.slots.get_mut(place))
            && slot.take().is_some()
        {
            self.held -= 1;
        }
    }

    /// The call is over.
    pub(super) fn end(&mut self) {
        if !self.slots.is_empty() {
            self.first = self.first.saturating_add(u32::try_from(self.slots.len()).unwrap_or(u32::MAX));
            self.slots.clear();
            self.held = 0;
        }
    }
}

impl<T> Slots<T> {
    /// At most `limit` at once.
    pub(super) fn new(limit: usize, what: &'static str) -> Self {
        Self { slots: Vec::new(), free: Vec::new(), limit, what }
    }

    /// Holds a value and returns its number.
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

    /// The value of a number.
    pub(super) fn get(&self, number: u32) -> Result<&T> {
        self.slots.get(number as usize).and_then(Option::as_ref).ok_or_else(|| Refusal::BadHandle(number).into())
    }

    /// The guest drops a handle.
    pub(super) fn free(&mut self, number: u32) -> Option<T> {
        let value = self.slots.get_mut(number as usize)?.take()?;
        self.free.push(number);
        Some(value)
    }

    /// How many are held.
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
        assert_eq!(place, 0, "places are counted anew");
        assert!(handles.place(kept).is_err() && handles.number(place).unwrap() != kept);
        handles.free(kept);
        assert_eq!(handles.get(place).unwrap(), &"new", "dropping a stale handle drops nothing else");
    }

    #[test]
    fn handles_are_bounded_in_what_is_held_at_once() {
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
