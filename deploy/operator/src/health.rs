//! What keeps the operator from its work, for `/readyz` and the log.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use weir_kube::error_chain;

/// The problems of each part by its name. A part without an entry works.
#[derive(Debug, Default)]
pub struct Health {
    parts: Mutex<BTreeMap<String, String>>,
    /// What is wrong with what the operator cares for, and not with the operator.
    notes: Mutex<Vec<String>>,
}

impl Health {
    /// Nothing works until each of these parts says so.
    #[must_use]
    pub fn starting<'a>(parts: impl IntoIterator<Item = &'a str>) -> Self {
        let parts = parts.into_iter().map(|part| (part.to_owned(), "starts".to_owned()));
        Self { parts: Mutex::new(parts.collect()), notes: Mutex::default() }
    }

    /// The part has not seen the cluster yet.
    pub fn starts(&self, part: &str) {
        self.lock().entry(part.to_owned()).or_insert_with(|| "starts".to_owned());
    }

    /// The part works.
    pub fn works(&self, part: &str) {
        if let Some(problem) = self.lock().remove(part)
            && problem != "starts"
        {
            tracing::info!(part, "works again");
        }
    }

    /// The part does not work. The log reports each problem once.
    pub fn fails(&self, part: &str, problem: String) {
        let before = self.lock().insert(part.to_owned(), problem.clone());
        if before.as_ref() != Some(&problem) {
            tracing::warn!(part, reason = problem, "does not work");
        }
    }

    /// What is said besides, a line each.
    pub fn note(&self, notes: Vec<String>) {
        *self.notes.lock().unwrap_or_else(PoisonError::into_inner) = notes;
    }

    /// What was said last.
    #[must_use]
    pub fn notes(&self) -> String {
        let notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        notes.iter().map(|note| format!("{note}\n")).collect()
    }

    /// All problems, a line for each; empty if there are none.
    #[must_use]
    pub fn report(&self) -> String {
        self.lock().iter().map(|(part, problem)| format!("{part}: {problem}\n")).collect()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, String>> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What an error of kube means to an operator of the cluster: one line that names the missing rule or definition.
#[must_use]
pub fn explain(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if status.code == 403 => {
            format!(
                "a rule is missing in deploy/operator/rbac.yaml, or policy.yaml beside it denies this: {}",
                status.message
            )
        }
        kube::Error::Api(status) if !status.message.is_empty() => status.message.clone(),
        kube::Error::Api(status) => format!("the API server responded {} {}", status.code, status.reason),
        other => report(other),
    }
}

/// An error and its causes, on one line.
#[must_use]
pub fn report(error: &dyn std::error::Error) -> String {
    error_chain(error).replace('\n', " ")
}

/// What an error of a watch of `resource` means to an operator of the cluster.
#[must_use]
pub fn explain_watch(resource: &str, error: &kube::runtime::watcher::Error) -> String {
    use kube::runtime::watcher::Error;
    match error {
        Error::InitialListFailed(kube::Error::Api(status)) | Error::WatchStartFailed(kube::Error::Api(status))
            if status.code == 404 =>
        {
            format!(
                "{resource}: the API server does not know this resource: is its CustomResourceDefinition installed?"
            )
        }
        Error::InitialListFailed(error) | Error::WatchStartFailed(error) | Error::WatchFailed(error) => {
            format!("{resource}: {}", explain(error))
        }
        Error::WatchError(status) => format!("{resource}: {}", status.message),
        Error::NoResourceVersion => format!("{resource}: the API server sent an object without a version"),
    }
}
