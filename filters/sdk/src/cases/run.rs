//! Runs case files natively, as JSON and as protobuf. Each case runs in a filter of its own, and again in one that has
//! seen the other cases with the same settings and world: an outcome that depends on what came before is an impure filter.

use std::fmt::{self, Debug, Formatter};
use std::path::Path;

use weir_document::Document;

use super::{Case, CaseFile, Outcome, Tally, judge, told};
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
    let mut tally = Tally::default();
    for (path, file) in &files {
        if let Err(difference) = check_plan::<F>(file) {
            failures.push(format!("{}: the plan\n{difference}", path.display()));
        }
        let mut used: Option<(String, Runner<F>)> = None;
        for case in &file.cases {
            for failure in check_case(file, case, &mut used, &mut tally) {
                failures.push(format!("{}: {} (rule {})\n{failure}", path.display(), case.name, case.rule()));
            }
        }
    }
    failures.extend(tally.check().err());
    if failures.is_empty() { Ok(()) } else { Err(Failures(failures)) }
}

/// Runs one case in both forms, each in a filter of its own and in the used one. What went wrong.
fn check_case<F: Filter>(
    file: &CaseFile,
    case: &Case,
    used: &mut Option<(String, Runner<F>)>,
    tally: &mut Tally,
) -> Vec<String> {
    let settings = file.settings(case);
    let world = file.world(case);
    let run_alone = |document| match Runner::<F>::new(&settings, &world) {
        Ok(runner) => run(document, &runner),
        Err(fault) => Outcome::ConfigureFailed(told(&fault)),
    };
    let json = Document::json(case.input());
    let of_json = run_alone(json.clone());
    let mut failures: Vec<String> = case.judge(&of_json).err().into_iter().collect();
    let mut runs = vec![(json, of_json.clone())];
    if let Some(message) = tally.message(case) {
        let of_message = run_alone(message.document());
        failures.extend(message.agree(case, &of_json, &of_message).err());
        runs.push((message.document(), of_message));
    }
    if let Some(runner) = used_in(used, &settings, &world)
        && runs.into_iter().any(|(document, outcome)| run(document, runner) != outcome)
    {
        failures.push("impure: another outcome in a filter that has seen other cases".to_owned());
    }
    failures
}

/// Whether the plan is the one that the file says, if it says one.
fn check_plan<F: Filter>(file: &CaseFile) -> Result<(), String> {
    let Some((expected, settings, world)) = file.plan() else { return Ok(()) };
    let runner = Runner::<F>::new(&settings, &world).map_err(|fault| told(&fault))?;
    if *runner.plan() == expected { Ok(()) } else { Err(judge::lines(&expected, runner.plan())) }
}

/// The filter that has seen other cases, in the world of this one; a new one where the settings or the node are others.
fn used_in<'a, F: Filter>(
    used: &'a mut Option<(String, Runner<F>)>,
    settings: &str,
    world: &World,
) -> Option<&'a Runner<F>> {
    let stays = match used {
        Some((known, runner)) => known == settings && runner.is_of(&world.node) && runner.set_world(world).is_ok(),
        None => false,
    };
    if !stays {
        *used = Runner::new(settings, world).ok().map(|runner| (settings.to_owned(), runner));
    }
    used.as_ref().map(|(_, runner)| runner)
}

fn run<F: Filter>(mut document: Document, runner: &Runner<F>) -> Outcome {
    match runner.filter(&mut document) {
        Ok(Verdict::Keep) => Outcome::Kept(document.bytes().clone()),
        Ok(Verdict::Hide) => Outcome::Hidden,
        Err(fault) => Outcome::Failed { class: class(&fault), message: told(&fault) },
    }
}

fn class(fault: &Fault) -> &'static str {
    match fault {
        Fault::Settings(_) => "settings",
        Fault::Filter(_) => "filter",
        Fault::Misuse(_) => "misuse",
        Fault::Document(_) => "document",
    }
}
