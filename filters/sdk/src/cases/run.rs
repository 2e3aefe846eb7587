//! Runs case files natively. Each case runs in a filter of its own, and again in one that has seen the other cases with
//! the same settings and world: an outcome that depends on what came before is an impure filter.

use std::fmt::{self, Debug, Formatter};
use std::path::Path;

use weir_document::Document;

use super::{Case, CaseFile, Outcome, judge};
use crate::native::{Fault, Runner, World};
use crate::{Filter, Verdict};

/// All that went wrong, one paragraph each. What the test prints.
pub struct Failures(Vec<String>);

impl Debug for Failures {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} of the cases failed", self.0.len())?;
        self.0.iter().try_for_each(|failure| write!(f, "\n\n{failure}"))
    }
}

/// Runs all cases of a folder; the test behind [`macro@crate::cases`].
pub fn check<F: Filter>(folder: impl AsRef<Path>) -> Result<(), Failures> {
    let files = CaseFile::read_all(folder.as_ref()).map_err(|error| Failures(vec![told(&error)]))?;
    let mut failures = Vec::new();
    for (path, file) in &files {
        if let Err(difference) = check_plan::<F>(file) {
            failures.push(format!("{}: the plan\n{difference}", path.display()));
        }
        let mut used: Option<(String, Runner<F>)> = None;
        for case in &file.cases {
            let settings = file.settings(case);
            let world = file.world(case);
            let fresh = Runner::<F>::new(&settings, &world);
            let outcome = run(case, &fresh);
            let place = format!("{}: {} (rule {})", path.display(), case.name, case.rule());
            if let Err(difference) = case.judge(&outcome) {
                failures.push(format!("{place}\n{difference}"));
            }
            if again(case, &settings, &world, &mut used).is_some_and(|again| again != outcome) {
                failures.push(format!("{place}\nimpure: another outcome in a filter that has seen other cases"));
            }
            if let (None, Ok(fresh)) = (&used, fresh) {
                used = Some((settings, fresh));
            }
        }
    }
    if failures.is_empty() { Ok(()) } else { Err(Failures(failures)) }
}

/// Whether the plan is the one that the file says, if it says one.
fn check_plan<F: Filter>(file: &CaseFile) -> Result<(), String> {
    let Some((expected, settings, world)) = file.plan() else { return Ok(()) };
    let runner = Runner::<F>::new(&settings, &world).map_err(|fault| told(&fault))?;
    if *runner.plan() == expected { Ok(()) } else { Err(judge::lines(&expected, runner.plan())) }
}

/// The outcome in the used filter, if it has the same settings; otherwise it makes room for another.
fn again<F: Filter>(
    case: &Case,
    settings: &str,
    world: &World,
    used: &mut Option<(String, Runner<F>)>,
) -> Option<Outcome> {
    match used {
        Some((known, runner)) if known == settings && runner.is_of(&world.node) => {
            runner.set_world(world).ok()?;
            Some(run_in(case, runner))
        }
        _ => {
            *used = None;
            None
        }
    }
}

fn run<F: Filter>(case: &Case, runner: &Result<Runner<F>, Fault>) -> Outcome {
    match runner {
        Ok(runner) => run_in(case, runner),
        Err(fault) => Outcome::ConfigureFailed(told(fault)),
    }
}

fn run_in<F: Filter>(case: &Case, runner: &Runner<F>) -> Outcome {
    let mut document = Document::json(case.input());
    match runner.filter(&mut document) {
        Ok(Verdict::Keep) => Outcome::Kept(document.bytes().clone()),
        Ok(Verdict::Hide) => Outcome::Hidden,
        Err(fault) => Outcome::Failed(told(&fault)),
    }
}

/// An error with its sources.
fn told(error: &dyn std::error::Error) -> String {
    let mut message = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        message = format!("{message}: {error}");
        source = error.source();
    }
    message
}
