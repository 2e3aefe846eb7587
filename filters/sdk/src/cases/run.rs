//! Runs case files natively, in JSON and in protobuf. Each case runs twice: in a new filter, and in a filter that has
//! run the other cases with the same settings. If the two outcomes differ, the filter is impure.

use std::fmt::{self, Debug, Formatter};
use std::path::Path;

use weir_document::Document;
use weir_kube::error_chain;

use super::{Case, CaseFile, CaseOutcome, Coverage, compare_plans};
use crate::native::{Environment, NativeError, Runner};
use crate::{Filter, Verdict};

/// All failures, one paragraph each, as the test prints them.
pub struct Failures(Vec<String>);

impl Debug for Failures {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} of the cases failed", self.0.len())?;
        self.0.iter().try_for_each(|failure| write!(f, "\n\n{failure}"))
    }
}

/// Runs all cases of a folder. [`macro@crate::cases`] expands to a test that calls this.
pub fn check<F: Filter>(folder: impl AsRef<Path>) -> Result<(), Failures> {
    let files = CaseFile::read_all(folder.as_ref()).map_err(|error| Failures(vec![error_chain(&error)]))?;
    let mut failures = Vec::new();
    let mut coverage = Coverage::default();
    for (path, file) in &files {
        if let Err(difference) = check_plan::<F>(file) {
            failures.push(format!("{}: wrong plan\n{difference}", path.display()));
        }
        let mut reused: Option<(String, Runner<F>)> = None;
        for case in &file.cases {
            for failure in check_case(file, case, &mut reused, &mut coverage) {
                failures.push(format!("{}: {} (rule {})\n{failure}", path.display(), case.name, case.rule()));
            }
        }
    }
    failures.extend(coverage.check().err());
    if failures.is_empty() { Ok(()) } else { Err(Failures(failures)) }
}

/// Runs one case in both encodings, in a new filter and in the reused one. Returns the failures.
fn check_case<F: Filter>(
    file: &CaseFile,
    case: &Case,
    reused: &mut Option<(String, Runner<F>)>,
    coverage: &mut Coverage,
) -> Vec<String> {
    let settings = file.settings(case);
    let environment = file.environment(case);
    let run_alone = |document| match Runner::<F>::new(&settings, &environment) {
        Ok(runner) => run(document, &runner),
        Err(error) => CaseOutcome::ConfigureFailed(error_chain(&error)),
    };
    let json = Document::json(case.input());
    let of_json = run_alone(json.clone());
    let mut failures: Vec<String> = case.compare(&of_json).err().into_iter().collect();
    let mut runs = vec![(json, of_json.clone())];
    if let Some(input) = coverage.input(case) {
        let of_protobuf = run_alone(input.document());
        failures.extend(input.compare(case, &of_json, &of_protobuf).err());
        runs.push((input.document(), of_protobuf));
    }
    if let Some(runner) = reused_in(reused, &settings, &environment)
        && runs.into_iter().any(|(document, outcome)| run(document, runner) != outcome)
    {
        failures.push("impure: the outcome differs in a filter that has run other cases".to_owned());
    }
    failures
}

/// Compares the plan with the plan in the file, if there is one.
fn check_plan<F: Filter>(file: &CaseFile) -> Result<(), String> {
    let Some((expected, settings, environment)) = file.plan() else { return Ok(()) };
    let runner = Runner::<F>::new(&settings, &environment).map_err(|error| error_chain(&error))?;
    compare_plans(&expected, runner.plan())
}

/// Returns the filter that has run other cases, with its environment set to this case's. Creates a new one if the
/// settings or the node differ.
fn reused_in<'a, F: Filter>(
    reused: &'a mut Option<(String, Runner<F>)>,
    settings: &str,
    environment: &Environment,
) -> Option<&'a Runner<F>> {
    let stays = match reused {
        Some((known, runner)) => {
            known == settings && runner.is_of(&environment.node) && runner.set_environment(environment).is_ok()
        }
        None => false,
    };
    if !stays {
        *reused = Runner::new(settings, environment).ok().map(|runner| (settings.to_owned(), runner));
    }
    reused.as_ref().map(|(_, runner)| runner)
}

fn run<F: Filter>(mut document: Document, runner: &Runner<F>) -> CaseOutcome {
    match runner.filter(&mut document) {
        Ok(Verdict::Keep) => CaseOutcome::Kept(document.bytes().clone()),
        Ok(Verdict::Hide) => CaseOutcome::Hidden,
        Err(error) => CaseOutcome::Failed { class: class(&error), message: error_chain(&error) },
    }
}

fn class(error: &NativeError) -> &'static str {
    match error {
        NativeError::Settings(_) => "settings",
        NativeError::Filter(_) => "filter",
        NativeError::Misuse(_) => "misuse",
        NativeError::Document(_) => "document",
    }
}
