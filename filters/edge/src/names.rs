//! An immutable set of names: one string with all names, and a hash table of positions. It takes ten bytes per name
//! besides the name. The standard library's set would add 8 KB to every module.

/// A set of names.
#[derive(Debug)]
pub(crate) struct Names {
    text: String,
    /// The end of each name in the text.
    ends: Vec<usize>,
    /// Open-addressed table of positions in `ends`, each plus one. 0 is a free slot. At least half of the slots are
    /// free, so that every search ends.
    slots: Vec<usize>,
}

impl Names {
    pub(crate) fn contains(&self, name: &str) -> bool {
        self.search(name).is_ok()
    }

    /// Returns the slot of the name, or as an error the free slot for it.
    fn search(&self, name: &str) -> Result<usize, usize> {
        // INVARIANT: the number of slots is a power of two, kept by `from_iter`.
        let mask = self.slots.len() - 1;
        let mut slot = hash(name) & mask;
        loop {
            match self.slots.get(slot) {
                None | Some(0) => return Err(slot),
                Some(position) if self.name(position - 1) == Some(name) => return Ok(slot),
                Some(_) => slot = (slot + 1) & mask,
            }
        }
    }

    fn name(&self, position: usize) -> Option<&str> {
        let start = match position {
            0 => 0,
            _ => *self.ends.get(position - 1)?,
        };
        self.text.get(start..*self.ends.get(position)?)
    }
}

impl<'a> FromIterator<&'a str> for Names {
    fn from_iter<I: IntoIterator<Item = &'a str>>(names: I) -> Self {
        let mut text = String::new();
        let mut ends = Vec::new();
        for name in names {
            text.push_str(name);
            ends.push(text.len());
        }
        let slots = vec![0; (ends.len() * 2).next_power_of_two()];
        let mut set = Self { text, ends, slots };
        for position in 0..set.ends.len() {
            let slot = set.name(position).map_or(Ok(0), |name| set.search(name));
            if let Err(slot) = slot
                && let Some(slot) = set.slots.get_mut(slot)
            {
                *slot = position + 1;
            }
        }
        set
    }
}

/// FNV. Node names are short, and only somebody who may create nodes could choose names that collide.
fn hash(name: &str) -> usize {
    let hash = name.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    // Mixes the upper bits into the lower ones, because the lower ones select the slot and are weaker.
    usize::try_from(hash ^ (hash >> 15)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::Names;

    #[test]
    fn a_set_contains_exactly_the_inserted_names() {
        let names: Vec<String> = (0..1000).map(|n| format!("edge-node-{n}")).collect();
        let set: Names = names.iter().chain(&names).map(String::as_str).collect();
        assert!(names.iter().all(|name| set.contains(name)));
        assert!(!["", "edge-node-", "edge-node-1000", "edge-node-0edge-node-1"].iter().any(|name| set.contains(name)));
    }

    #[test]
    fn empty_sets_and_empty_names_work() {
        assert!(!Names::from_iter([]).contains(""));
        assert!(Names::from_iter([""]).contains(""));
    }
}
