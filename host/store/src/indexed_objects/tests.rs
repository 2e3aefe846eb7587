//! The objects against a plain map, and what one version shares with the next.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::*;
use crate::stored_object::read_object;

fn put(namespace: &str, name: &str, version: u32, labels: &[(&str, &str)]) -> Delta {
    let labels: serde_json::Map<_, _> =
        labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).into())).collect();
    let json = serde_json::json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"namespace": namespace, "name": name, "resourceVersion": version.to_string(), "labels": labels}
    });
    let (key, object) = read_object(&Bytes::from(json.to_string()), false).unwrap();
    Delta::Put(key, object)
}

fn remove(namespace: &str, name: &str) -> Delta {
    Delta::Remove(StoreKey::new(namespace, name))
}

fn names(selection: &Selection) -> Vec<String> {
    let name = |object: &Arc<CachedObject>| {
        let document = object.document();
        format!("{}/{}", document.namespace().unwrap().unwrap_or_default(), document.name().unwrap())
    };
    selection.objects().iter().map(name).collect()
}

fn next(objects: &IndexedObjects, deltas: Vec<Delta>) -> IndexedObjects {
    objects.next(deltas).unwrap().0
}

#[test]
fn find_sorts_by_namespace_then_name_and_filters_by_namespace() {
    let objects = next(
        &IndexedObjects::default(),
        vec![put("b", "a", 1, &[]), put("a-b", "z", 1, &[]), put("a", "b", 1, &[]), put("a", "a", 1, &[])],
    );
    assert_eq!(names(&objects.find(None, "").unwrap()), ["a/a", "a/b", "a-b/z", "b/a"]);
    assert_eq!(names(&objects.find(Some("a"), "").unwrap()), ["a/a", "a/b"]);
    assert!(names(&objects.find(Some("c"), "").unwrap()).is_empty());
}

#[test]
fn an_earlier_version_does_not_change() {
    let first = next(&IndexedObjects::default(), vec![put("a", "a", 1, &[])]);
    let second = next(&first, vec![remove("a", "a"), put("a", "b", 2, &[])]);
    assert!(first.get("a", "a").is_some() && first.get("a", "b").is_none());
    assert!(second.get("a", "a").is_none() && second.get("a", "b").is_some());
}

#[test]
fn a_delta_with_the_same_resource_version_changes_nothing() {
    let first = next(&IndexedObjects::default(), vec![put("a", "a", 1, &[])]);
    assert!(first.next(vec![put("a", "a", 1, &[]), remove("a", "gone")]).is_none());
    let (_, changed) = first.next(vec![put("a", "a", 2, &[]), put("a", "b", 2, &[])]).unwrap();
    assert_eq!(changed, [StoreKey::new("a", "a"), StoreKey::new("a", "b")]);
}

#[test]
fn versions_share_a_selection_until_a_change_affects_it() {
    let first =
        next(&IndexedObjects::default(), vec![put("a", "a", 1, &[("app", "x")]), put("a", "b", 1, &[("app", "y")])]);
    let selection = first.find(None, "app in (x)").unwrap();
    assert!(Arc::ptr_eq(&selection, &first.find(None, "app in (x)").unwrap()));
    let second = next(&first, vec![put("a", "b", 2, &[("app", "y")]), put("a", "c", 2, &[])]);
    assert!(Arc::ptr_eq(&selection, &second.find(None, "app in (x)").unwrap()));
    let third = next(&second, vec![put("a", "b", 3, &[("app", "x")])]);
    assert_eq!(names(&third.find(None, "app in (x)").unwrap()), ["a/a", "a/b"]);
    let fourth = next(&third, vec![put("a", "a", 4, &[])]);
    assert_eq!(names(&fourth.find(None, "app in (x)").unwrap()), ["a/b"]);
}

#[test]
fn only_the_last_state_of_an_object_counts_that_changes_more_than_once() {
    let first = next(&IndexedObjects::default(), vec![put("a", "a", 1, &[("app", "x")]), put("a", "c", 1, &[])]);
    for selector in ["app in (x)", "app=x"] {
        assert_eq!(names(&first.find(None, selector).unwrap()), ["a/a"]);
    }
    let (second, changed) = first
        .next(vec![
            put("a", "b", 2, &[("app", "x")]),
            put("a", "b", 3, &[("app", "y")]),
            remove("a", "a"),
            put("a", "a", 5, &[("app", "x")]),
            put("a", "c", 6, &[("app", "x")]),
            remove("a", "c"),
            put("a", "d", 8, &[("app", "x")]),
            remove("a", "d"),
        ])
        .unwrap();
    for selector in ["app in (x)", "app=x"] {
        assert_eq!(names(&second.find(None, selector).unwrap()), ["a/a"], "{selector}");
    }
    assert_eq!(changed, ["a", "b", "c"].map(|name| StoreKey::new("a", name)));
    assert!(first.next(vec![put("a", "d", 2, &[]), remove("a", "d")]).is_none());
}

#[test]
fn a_malformed_selector_is_an_error_on_each_call() {
    for _ in 0..2 {
        assert!(IndexedObjects::default().find(None, "a in").is_err());
    }
}

#[test]
fn only_an_equality_is_answered_from_an_index() {
    assert_eq!(first_equality("app=web,tier in (a)"), Some(("app", "web")));
    assert_eq!(first_equality("kubernetes.io/name==web"), Some(("kubernetes.io/name", "web")));
    for other in ["", "app", "!app", "app!=web", "app in (a=b)", "app=", "a b=c", "app in (x),a=b"] {
        assert_eq!(first_equality(other), None, "{other}");
    }
}

#[test]
fn exceeding_the_cache_limits_does_not_change_results() {
    let objects = next(
        &IndexedObjects::default(),
        (0..20).map(|i| put("a", &format!("o{i:02}"), 1, &[(&format!("l{i}"), "x")])).collect(),
    );
    for round in 0..2 {
        for i in 0..400 {
            let found = names(&objects.find(None, &format!("l{}=x,!z{i}", i % 20)).unwrap());
            assert_eq!(found, [format!("a/o{:02}", i % 20)], "round {round}");
        }
    }
}

/// The labels `app` and `tier`.
type Labels = (Option<&'static str>, Option<&'static str>);

/// Any sequence of deltas and queries gives the results of a plain map.
#[test]
fn the_objects_agree_with_a_plain_map() {
    let mut seed = 7_u64;
    let mut random = |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % below
    };
    let selectors = ["", "app=x", "app=y", "app in (x,y)", "!app", "app=x,tier=b", "tier=b", "app!=x"];
    let mut model: BTreeMap<(String, String), Labels> = BTreeMap::new();
    let mut objects = IndexedObjects::default();
    for version in 1..2000_u32 {
        let namespace = ["a", "a-b", "b"][random(3) as usize].to_owned();
        let name = format!("o{}", random(12));
        let delta = if random(4) == 0 {
            model.remove(&(namespace.clone(), name.clone()));
            remove(&namespace, &name)
        } else {
            let app = [None, Some("x"), Some("y")][random(3) as usize];
            let tier = [None, Some("b")][random(2) as usize];
            model.insert((namespace.clone(), name.clone()), (app, tier));
            let labels: Vec<_> =
                [("app", app), ("tier", tier)].into_iter().filter_map(|(k, v)| Some((k, v?))).collect();
            put(&namespace, &name, version, &labels)
        };
        if let Some((next, _)) = objects.next(vec![delta]) {
            objects = next;
        }
        let selector = selectors[random(8) as usize];
        let within = [None, Some("a"), Some("b")][random(3) as usize];
        let parsed = LabelSelector::parse(selector).unwrap();
        let wanted: Vec<_> = model
            .iter()
            .filter(|((namespace, _), _)| within.is_none_or(|within| within == namespace))
            .filter(|(_, (app, tier))| parsed.matches(|label| if label == "app" { *app } else { *tier }))
            .map(|((namespace, name), _)| format!("{namespace}/{name}"))
            .collect();
        assert_eq!(names(&objects.find(within, selector).unwrap()), wanted, "{selector:?} in {within:?} at {version}");
    }
}

#[test]
fn a_change_copies_pointers_and_a_burst_drops_the_selections_that_it_concerns() {
    const OBJECTS: u32 = 5000;
    const SELECTIONS: u32 = 256;
    let all = (0..OBJECTS).map(|n| put("a", &n.to_string(), 1, &[("shard", &(n % SELECTIONS).to_string())])).collect();
    let mut objects = next(&IndexedObjects::default(), all);
    let selector = |n: u32| format!("shard={n}");
    for n in 0..SELECTIONS {
        objects.find(None, &selector(n)).unwrap();
    }
    let began = std::time::Instant::now();
    let rounds = 100;
    for version in 2..2 + rounds {
        objects = next(&objects, vec![put("a", "7", version, &[("shard", "7")])]);
    }
    println!("one change under {SELECTIONS} selections of {OBJECTS} objects: {:?}", began.elapsed() / rounds);
    let before: Vec<_> = (0..SELECTIONS).map(|n| objects.find(None, &selector(n)).unwrap()).collect();
    let began = std::time::Instant::now();
    let burst = (0..OBJECTS).map(|n| put("a", &n.to_string(), 1000, &[("shard", if n < 2000 { "1" } else { "2" })]));
    let objects = next(&objects, burst.collect());
    println!("a burst of {OBJECTS} changes: {:?}", began.elapsed());
    assert_eq!(objects.find(None, "shard=1").unwrap().objects().len(), 2000);
    assert_eq!(objects.find(None, "shard=2").unwrap().objects().len(), 3000);
    assert!(objects.find(None, "shard=3").unwrap().objects().is_empty());
    assert!(!before[3].objects().is_empty(), "an earlier version stays as it was");
}
