//! The client components that read a view.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

/// A client component, in lower case; `None` for other Weirs, which read what no filter has changed.
pub(super) type Component = Option<Arc<str>>;

/// The components that read a view now. A view that nobody reads keeps the name of the last one.
#[derive(Debug)]
pub(super) struct Readers<V>(BTreeMap<Component, Reading<V>>);

/// The reads of one component.
#[derive(Debug)]
struct Reading<V> {
    count: usize,
    /// The view that shows from now on what the component reads, if its filters are not those of the others any more.
    moved: Option<Arc<V>>,
}

impl<V> Readers<V> {
    /// Those of a view that this component is to read.
    pub(super) fn named(component: &Component) -> Self {
        Self([(component.clone(), Reading { count: 0, moved: None })].into())
    }

    /// Notes one more read; or returns the view that the component has moved to, which reads of it begin with.
    pub(super) fn enter(&mut self, component: &Component) -> Option<Arc<V>> {
        self.0.retain(|_, reading| reading.count > 0);
        let reading = self.0.entry(component.clone()).or_insert(Reading { count: 0, moved: None });
        reading.count += usize::from(reading.moved.is_none());
        reading.moved.clone()
    }

    /// Notes that a read has ended. Returns the view that the component has moved to if this was its last one, to be dropped
    /// without a lock.
    pub(super) fn leave(&mut self, component: &Component) -> Option<Arc<V>> {
        let is_last_name = !self.0.iter().any(|(name, reading)| name != component && reading.moved.is_none());
        let Entry::Occupied(mut found) = self.0.entry(component.clone()) else { return None };
        found.get_mut().count -= 1;
        let Reading { count, moved } = found.get();
        let is_over = *count == 0 && (moved.is_some() || !is_last_name);
        if is_over { found.remove().moved } else { None }
    }

    /// The view that a component has moved to.
    pub(super) fn moved(&self, component: &Component) -> Option<&Arc<V>> {
        self.0.get(component)?.moved.as_ref()
    }

    /// The components that the view is for.
    pub(super) fn staying(&self) -> impl Iterator<Item = &Component> {
        self.0.iter().filter(|(_, reading)| reading.moved.is_none()).map(|(component, _)| component)
    }

    /// The same reads of some components, for a view that they move to.
    pub(super) fn of(&self, components: &[Component]) -> Self {
        let of = |component: &Component| {
            Some((component.clone(), Reading { count: self.0.get(component)?.count, moved: None }))
        };
        Self(components.iter().filter_map(of).collect())
    }

    /// Moves components to another view. A name that nobody reads under goes with them.
    pub(super) fn move_to(&mut self, components: &[Component], view: &Arc<V>) {
        for component in components {
            if let Some(reading) = self.0.get_mut(component) {
                reading.moved = Some(view.clone());
            }
        }
        self.0.retain(|_, reading| reading.count > 0 || reading.moved.is_none());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(readers: &Readers<u8>) -> String {
        readers.staying().map(|component| component.as_deref().unwrap_or("-")).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn components_that_move_are_readers_of_the_other_view_and_those_that_stay_are_not() {
        let [a, b, c]: [Component; 3] = [Some("a".into()), Some("b".into()), None];
        let mut readers = Readers::named(&b);
        for component in [&a, &a, &b, &c] {
            assert!(readers.enter(component).is_none());
        }
        let other = Arc::new(7);
        let moving = [a.clone(), c.clone()];
        let mut others = readers.of(&moving);
        readers.move_to(&moving, &other);
        assert_eq!((names(&readers), names(&others)), ("b".to_owned(), "- a".to_owned()));
        assert_eq!((readers.moved(&a), readers.moved(&b)), (Some(&other), None));
        assert_eq!(readers.enter(&a).as_ref(), Some(&other), "it reads the other view");
        assert_eq!(readers.leave(&a), None, "another read of it follows");
        assert_eq!(readers.leave(&a), Some(other));
        assert!(readers.moved(&a).is_none());
        assert_eq!((others.leave(&c), others.leave(&a)), (None, None));
        assert_eq!(names(&others), "a", "one read is left");
    }

    #[test]
    fn a_view_that_nobody_reads_keeps_the_name_of_its_last_reader() {
        let [a, b]: [Component; 2] = ["a", "b"].map(|name| Some(name.into()));
        let mut readers: Readers<u8> = Readers::named(&b);
        readers.enter(&a);
        readers.enter(&b);
        readers.leave(&b);
        assert_eq!(names(&readers), "a");
        readers.leave(&a);
        assert_eq!(names(&readers), "a");
        readers.enter(&b);
        assert_eq!(names(&readers), "b");
    }
}
