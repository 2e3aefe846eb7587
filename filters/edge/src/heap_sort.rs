//! A sort in place, in n log n steps for every input. The library's is faster, and would add 10 KB to a module.

/// Sorts the items. `less` is a total order.
pub fn heap_sort<T>(items: &mut [T], less: impl Fn(&T, &T) -> bool) {
    let count = items.len();
    for root in (0..count / 2).rev() {
        sift(items, root, count, &less);
    }
    for end in (1..count).rev() {
        items.swap(0, end);
        sift(items, 0, end, &less);
    }
}

/// Moves the item at `root` down to where no child of it is greater.
fn sift<T>(items: &mut [T], mut root: usize, end: usize, less: &impl Fn(&T, &T) -> bool) {
    let is_less = |items: &[T], one: usize, other: usize| match (items.get(one), items.get(other)) {
        (Some(one), Some(other)) => less(one, other),
        _ => false,
    };
    loop {
        let mut child = 2 * root + 1;
        if child >= end {
            return;
        }
        if child + 1 < end && is_less(items, child, child + 1) {
            child += 1;
        }
        if !is_less(items, root, child) {
            return;
        }
        items.swap(root, child);
        root = child;
    }
}

#[cfg(test)]
mod tests {
    use super::heap_sort;

    #[test]
    fn items_are_sorted() {
        for length in 0..40_u32 {
            let mut items: Vec<u32> = (0..length).map(|n| n * 7919 % 17).collect();
            let mut sorted = items.clone();
            sorted.sort_unstable();
            heap_sort(&mut items, |one, other| one < other);
            assert_eq!(items, sorted);
        }
    }
}
