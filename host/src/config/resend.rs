//! `--resend`: how watches send an object whose filtered state changed without an event of the API server.
//!
//! Such an object keeps its resourceVersion. Most clients take a MODIFIED all the same. Some compare versions first, and skip
//! it as a resync.

use std::collections::BTreeMap;

/// The components that skip a MODIFIED with the version that they hold. Traefik compares versions in `objChanged`.
const REPLACE: [&str; 1] = ["traefik"];

/// How a client gets an object that changed at an unchanged resourceVersion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResendMode {
    /// As MODIFIED.
    Modified,
    /// As DELETED with the state before, directly followed by ADDED.
    Replace,
}

/// The modes by client component.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resend {
    /// In lower case.
    modes: BTreeMap<String, ResendMode>,
}

impl Default for Resend {
    /// `Replace` for the components that are known to need it, and `Modified` for all others.
    fn default() -> Self {
        Self { modes: REPLACE.map(|component| (component.to_owned(), ResendMode::Replace)).into() }
    }
}

impl Resend {
    /// Parses the values of the flag. They add to the defaults, or replace them.
    pub(super) fn from_flag(values: &[String], errors: &mut Vec<String>) -> Self {
        let mut named = BTreeMap::new();
        for value in values.iter().map(|value| value.trim()).filter(|value| !value.is_empty()) {
            match parse(value) {
                Some((component, mode)) if named.insert(component.clone(), mode).is_some_and(|other| other != mode) => {
                    errors.push(format!("--resend: {component} has two modes: give one of them"));
                }
                Some(_) => {}
                None => errors.push(format!(
                    "--resend: {value:?} is not COMPONENT=modified or COMPONENT=replace: write it as traefik=replace"
                )),
            }
        }
        let mut resend = Self::default();
        resend.modes.extend(named);
        resend
    }

    /// The mode of a client component.
    #[must_use]
    pub fn of(&self, component: &str) -> ResendMode {
        self.modes.get(&component.to_lowercase()).copied().unwrap_or(ResendMode::Modified)
    }
}

fn parse(value: &str) -> Option<(String, ResendMode)> {
    let (component, mode) = value.split_once('=')?;
    let mode = match mode.trim() {
        "modified" => ResendMode::Modified,
        "replace" => ResendMode::Replace,
        _ => return None,
    };
    let component = component.trim();
    // A User-Agent yields no other names.
    let is_component =
        !component.is_empty() && !component.contains(|c: char| c == '/' || c == '*' || c.is_whitespace());
    is_component.then(|| (component.to_lowercase(), mode))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(values: &[&str]) -> (Resend, Vec<String>) {
        let mut errors = Vec::new();
        let values: Vec<_> = values.iter().map(|value| (*value).to_owned()).collect();
        (Resend::from_flag(&values, &mut errors), errors)
    }

    #[test]
    fn traefik_alone_needs_replace_unless_the_flag_says_otherwise() {
        let (resend, errors) = parsed(&[]);
        assert!(errors.is_empty() && resend == Resend::default());
        assert_eq!(["traefik", "Traefik"].map(|component| resend.of(component)), [ResendMode::Replace; 2]);
        assert_eq!(["kube-proxy", "coredns", ""].map(|component| resend.of(component)), [ResendMode::Modified; 3]);
        let (resend, errors) = parsed(&["traefik=modified", " My-Controller = replace", ""]);
        assert!(errors.is_empty(), "{errors:?}");
        assert_eq!(resend.of("traefik"), ResendMode::Modified);
        assert_eq!(resend.of("my-controller"), ResendMode::Replace);
    }

    #[test]
    fn every_value_without_a_component_and_a_mode_is_an_error() {
        let (_, errors) =
            parsed(&["traefik", "=replace", "a/b=replace", "*=replace", "a=Replace", "x=replace", "X=modified"]);
        assert_eq!(errors.len(), 6, "{errors:?}");
        assert!(
            errors[0].starts_with("--resend: \"traefik\" is not COMPONENT=modified or COMPONENT=replace"),
            "{errors:?}"
        );
        assert_eq!(errors[5], "--resend: x has two modes: give one of them");
    }
}
