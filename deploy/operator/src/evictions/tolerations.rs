//! The change of a pod's tolerations.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Toleration;

use super::duration::Stay;

/// The taints of a node that does not respond.
const TAINTS: [&str; 2] = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];

/// The tolerations of a pod, and the text that restores those of before.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Change {
    /// All tolerations of the pod.
    pub(super) tolerations: Vec<Toleration>,
    /// The times of before; `None` if they are restored with this change.
    pub(super) original: Option<String>,
}

/// What a toleration was before, by its identity. One without a time is the pod's own wish to stay, and not in it.
#[derive(Debug, Default)]
struct Original(BTreeMap<String, Was>);

#[derive(Debug, Clone, Copy, PartialEq)]
enum Was {
    Seconds(i64),
    Absent,
}

/// What has to change of a pod; `None` if nothing has. `original`: what an earlier change kept.
pub(super) fn change(tolerations: &[Toleration], original: Option<&str>, stay: Option<Stay>) -> Option<Change> {
    let mut changed = tolerations.to_vec();
    let mut kept = original.map(Original::parse).unwrap_or_default();
    let Some(stay) = stay else {
        original?;
        kept.restore(&mut changed);
        return Some(Change { tolerations: changed, original: None });
    };
    kept.add(tolerations, original.is_none());
    let seconds = match stay {
        Stay::Forever => None,
        Stay::Seconds(seconds) => Some(seconds),
    };
    for toleration in changed.iter_mut().filter(|toleration| kept.0.contains_key(&identity(toleration))) {
        toleration.toleration_seconds = seconds;
    }
    for taint in TAINTS {
        let added = Toleration { toleration_seconds: seconds, ..toleration_of(taint) };
        let is_missing = !changed.iter().any(|toleration| identity(toleration) == identity(&added));
        if is_missing && kept.0.get(&identity(&added)) == Some(&Was::Absent) {
            changed.push(added);
        }
    }
    let text = kept.text();
    let is_new = changed != tolerations || original != Some(&*text);
    (is_new && !kept.0.is_empty()).then_some(Change { tolerations: changed, original: Some(text) })
}

impl Original {
    /// `key|operator|value|effect=seconds`, separated by commas. Other entries are ignored.
    fn parse(text: &str) -> Self {
        let parts = text.split(',').filter_map(|part| {
            let (identity, was) = part.rsplit_once('=')?;
            let was = if was == "absent" { Was::Absent } else { Was::Seconds(was.parse().ok()?) };
            Some((identity.to_owned(), was))
        });
        Self(parts.collect())
    }

    fn text(&self) -> String {
        let part = |(identity, was): (&String, &Was)| match was {
            Was::Seconds(seconds) => format!("{identity}={seconds}"),
            Was::Absent => format!("{identity}=absent"),
        };
        self.0.iter().map(part).collect::<Vec<_>>().join(",")
    }

    /// Adds what is not known yet. `first`: there was no change before, so that a taint without toleration has none.
    fn add(&mut self, tolerations: &[Toleration], first: bool) {
        for toleration in tolerations {
            let is_own = TAINTS.iter().any(|taint| tolerates(toleration, taint));
            if let (true, Some(seconds)) = (is_own, toleration.toleration_seconds) {
                self.0.entry(identity(toleration)).or_insert(Was::Seconds(seconds));
            }
        }
        for taint in TAINTS.iter().filter(|_| first) {
            if !tolerations.iter().any(|toleration| tolerates(toleration, taint)) {
                self.0.insert(identity(&toleration_of(taint)), Was::Absent);
            }
        }
    }

    /// A toleration that was added cannot be removed from a running pod: with no time, it evicts as none would.
    fn restore(&self, tolerations: &mut [Toleration]) {
        for toleration in tolerations {
            match self.0.get(&identity(toleration)) {
                Some(Was::Seconds(seconds)) => toleration.toleration_seconds = Some(*seconds),
                Some(Was::Absent) => toleration.toleration_seconds = Some(0),
                None => {}
            }
        }
    }
}

fn toleration_of(taint: &str) -> Toleration {
    Toleration {
        key: Some(taint.to_owned()),
        operator: Some("Exists".to_owned()),
        effect: Some("NoExecute".to_owned()),
        ..Toleration::default()
    }
}

fn identity(toleration: &Toleration) -> String {
    let [key, operator, value, effect] = [&toleration.key, &toleration.operator, &toleration.value, &toleration.effect]
        .map(|part| part.as_deref().unwrap_or_default());
    format!("{key}|{operator}|{value}|{effect}")
}

/// Whether a toleration is for a taint with the effect NoExecute.
fn tolerates(toleration: &Toleration, taint: &str) -> bool {
    let effect = toleration.effect.as_deref().unwrap_or_default();
    let exists = toleration.operator.as_deref() == Some("Exists");
    let key = toleration.key.as_deref().unwrap_or_default();
    let is_value = exists || toleration.value.as_deref().unwrap_or_default().is_empty();
    matches!(effect, "" | "NoExecute") && is_value && (key == taint || (key.is_empty() && exists))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn default() -> Vec<Toleration> {
        TAINTS.map(|taint| Toleration { toleration_seconds: Some(300), ..toleration_of(taint) }).to_vec()
    }

    fn seconds(tolerations: &[Toleration]) -> Vec<Option<i64>> {
        tolerations.iter().map(|toleration| toleration.toleration_seconds).collect()
    }

    /// The times after a change, and after it was taken back.
    fn there_and_back(before: &[Toleration], stay: Stay) -> (Vec<Option<i64>>, Vec<Option<i64>>) {
        let there = change(before, None, Some(stay)).unwrap();
        let original = there.original.as_deref();
        assert_eq!(change(&there.tolerations, original, Some(stay)), None, "the same again is no change");
        let back = change(&there.tolerations, original, None).unwrap();
        assert_eq!(back.original, None);
        (seconds(&there.tolerations), seconds(&back.tolerations))
    }

    #[test]
    fn the_default_tolerations_get_the_time_and_lose_it() {
        assert_eq!(there_and_back(&default(), Stay::Forever), (vec![None, None], vec![Some(300), Some(300)]));
        assert_eq!(
            there_and_back(&default(), Stay::Seconds(7200)),
            (vec![Some(7200), Some(7200)], vec![Some(300), Some(300)])
        );
    }

    #[test]
    fn every_toleration_that_would_evict_gets_the_time() {
        // Of several that match, the shortest counts.
        let mut several = default();
        several.push(Toleration {
            operator: Some("Exists".into()),
            toleration_seconds: Some(5),
            ..Toleration::default()
        });
        assert_eq!(there_and_back(&several, Stay::Forever), (vec![None; 3], vec![Some(300), Some(300), Some(5)]));
    }

    #[test]
    fn a_pod_that_stays_by_itself_is_left_alone() {
        let all = [Toleration { operator: Some("Exists".into()), ..Toleration::default() }];
        assert_eq!(change(&all, None, Some(Stay::Seconds(10))), None);
        assert_eq!(change(&all, None, None), None);
    }

    #[test]
    fn a_pod_without_tolerations_gets_some_that_evict_at_once_when_they_are_taken_back() {
        assert_eq!(there_and_back(&[], Stay::Seconds(60)), (vec![Some(60), Some(60)], vec![Some(0), Some(0)]));
        let back = change(&[], None, Some(Stay::Forever))
            .and_then(|there| change(&there.tolerations, there.original.as_deref(), None));
        let again = change(&back.unwrap().tolerations, None, Some(Stay::Forever)).unwrap();
        assert_eq!(seconds(&again.tolerations), [None, None]);
    }

    #[test]
    fn another_duration_keeps_the_times_of_before() {
        let first = change(&default(), None, Some(Stay::Forever)).unwrap();
        let second = change(&first.tolerations, first.original.as_deref(), Some(Stay::Seconds(60))).unwrap();
        assert_eq!((seconds(&second.tolerations), &second.original), (vec![Some(60), Some(60)], &first.original));
        let back = change(&second.tolerations, second.original.as_deref(), None).unwrap();
        assert_eq!(seconds(&back.tolerations), [Some(300), Some(300)]);
    }

    #[test]
    fn a_spoilt_annotation_restores_what_can_be_read() {
        let there = change(&default(), None, Some(Stay::Forever)).unwrap();
        let back = change(&there.tolerations, Some("x,=,a=b,"), None).unwrap();
        assert_eq!(seconds(&back.tolerations), [None, None]);
        assert_eq!(
            change(&default(), Some(""), None).map(|back| seconds(&back.tolerations)),
            Some(vec![Some(300), Some(300)])
        );
    }
}
