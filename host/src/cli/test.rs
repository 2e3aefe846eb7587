//! `weir test`: runs the case files of a filter against its built module, whatever its language: in JSON and in protobuf,
//! called and replayed, in a fresh instance and in one that has run other cases.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use serde_json::Value;
use weir_document::Document;
use weir_filter::cases::{Case, CaseFile, CaseOutcome, Coverage, compare_plans};
use weir_filter::native::Environment;
use weir_filter::{Lookup, Plan};

use super::CommandError;
use super::junit::junit;
use super::project::Project;
use super::run::every;
use super::workbench::{Workbench, block_on, entry_of, load_granted, module};
use crate::config::author::TestFlags;
use crate::logging::Repeated;
use crate::lookups::FileView;
use weir_kube::{GroupResource, VerbClass};
use weir_runtime::{Endpoint, FilterSet, LoadError, Outcome};
use weir_spec::{FilterEntry, InterfaceAddress};

/// The number of copies of each object. The filter is called for the first ones, and their trace is replayed for the last.
const ALIKE: usize = 8;

/// The result of one case.
#[derive(Debug, Clone)]
pub struct CaseResult {
    /// The case file.
    pub file: PathBuf,
    /// The name of the case.
    pub name: String,
    /// The rule that it tests.
    pub rule: String,
    /// What differs from the expected outcome. Empty if the case passed.
    pub failures: Vec<String>,
    /// Whether it ran in protobuf, too.
    pub in_protobuf: bool,
    /// How long it took.
    pub time: Duration,
}

impl CaseResult {
    /// Whether nothing differs.
    #[must_use]
    pub fn passed(&self) -> bool {
        self.failures.is_empty()
    }
}

/// A filter in the world of a case. The cases after it that have the same world run in it again.
struct Reused {
    world: String,
    set: FilterSet,
}

/// Runs all cases and prints them. Returns whether all passed.
///
/// # Errors
/// The cases or the module are not usable.
pub fn test(flags: &TestFlags) -> Result<bool, CommandError> {
    let workbench = Workbench::of(&flags.modules, Repeated::LeftOut)?;
    let path = Project::module_or(flags.module.as_deref())?;
    let module = module(&path)?;
    let results = block_on(run_cases(&workbench, &path, &module, &flags.cases))?;
    print(&results, true);
    if let Some(junit_file) = &flags.junit {
        let text = junit(&path.display().to_string(), &results);
        std::fs::write(junit_file, text).map_err(CommandError::of_file(junit_file))?;
    }
    Ok(results.iter().all(CaseResult::passed))
}

/// Prints results, of cases that passed only if `all`, and how many there are.
pub(super) fn print(results: &[CaseResult], all: bool) {
    let mut file = None;
    for result in results.iter().filter(|result| all || !result.passed()) {
        if file != Some(&result.file) {
            print_line!("{}", result.file.display());
            file = Some(&result.file);
        }
        match result.passed() {
            true => print_line!("  ok      {}", result.name),
            false => {
                let failures = indented(&result.failures.join("\n"));
                print_line!("  FAILED  {} (rule {})\n{failures}", result.name, result.rule);
            }
        }
    }
    let passed = results.iter().filter(|result| result.passed()).count();
    let in_protobuf = results.iter().filter(|result| result.in_protobuf).count();
    let failed = results.len() - passed;
    print_line!("{} cases: {passed} passed, {failed} failed; {in_protobuf} ran in protobuf, too", results.len());
}

/// Runs all cases of a folder against a module, in the order of the files.
///
/// # Errors
/// The cases or the module are not usable.
pub async fn run_cases(
    workbench: &Workbench,
    path: &Path,
    module: &Bytes,
    folder: &Path,
) -> Result<Vec<CaseResult>, CommandError> {
    let base = FilterEntry { matches: Some(vec![every()?]), ..entry_of(path, "{}")? };
    let mut results = Vec::new();
    let mut reused: Option<Reused> = None;
    for (file, cases) in CaseFile::read_all(folder)? {
        if let Some(difference) = wrong_plan(workbench, &base, module, &cases).await? {
            results.push(CaseResult {
                file: file.clone(),
                name: "the plan".to_owned(),
                rule: "plan".to_owned(),
                failures: vec![difference],
                in_protobuf: false,
                time: Duration::ZERO,
            });
        }
        for case in &cases.cases {
            let began = Instant::now();
            let mut coverage = Coverage::default();
            let failures = run_case(workbench, &base, module, (&cases, case), &mut coverage, &mut reused).await?;
            results.push(CaseResult {
                file: file.clone(),
                name: case.name.clone(),
                rule: case.rule(),
                failures,
                in_protobuf: coverage.ran > 0,
                time: began.elapsed(),
            });
        }
    }
    Ok(results)
}

/// Compares the module's plan with that of a file, if it has one.
async fn wrong_plan(
    workbench: &Workbench,
    base: &FilterEntry,
    module: &Bytes,
    file: &CaseFile,
) -> Result<Option<String>, CommandError> {
    let Some((expected, settings, environment)) = file.plan() else { return Ok(None) };
    let loader = workbench.loader(view(environment, [])?);
    let entry = FilterEntry { settings: settings_of(&settings)?, ..base.clone() };
    Ok(match loader.inspect(&entry, module).await {
        Ok(probe) => {
            let lookups = probe.lookups.into_iter().map(|lookup| Lookup {
                resource: lookup.resource,
                versions: lookup.versions,
                name: lookup.name,
                label_selector: lookup.label_selector,
                metadata_only: lookup.metadata_only,
                optional: lookup.optional,
            });
            let found = Plan { matches: probe.matches, lookups: lookups.collect() };
            compare_plans(&expected, &found).err()
        }
        Err(error) => Some(weir_upstream::error_report(&error)),
    })
}

/// Runs a case in both encodings. Returns the failures.
async fn run_case(
    workbench: &Workbench,
    base: &FilterEntry,
    module: &Bytes,
    (file, case): (&CaseFile, &Case),
    coverage: &mut Coverage,
    reused: &mut Option<Reused>,
) -> Result<Vec<String>, CommandError> {
    let environment = file.environment(case);
    let settings = file.settings(case);
    let objects: Vec<String> = file.cluster(case).collect();
    let world = format!("{settings} {environment:?} {objects:?}");
    let loader = workbench.loader(view(environment, objects)?);
    let entry = FilterEntry { settings: settings_of(&settings)?, ..base.clone() };
    // A case says what there is.
    let set = match load_granted(&loader, entry, "test", module, |_| ()).await {
        Ok(filter) => FilterSet::new(vec![Arc::new(filter)]),
        Err(LoadError::Start(error)) => {
            return Ok(case.compare(&CaseOutcome::ConfigureFailed(error.to_string())).err().into_iter().collect());
        }
        Err(error) => return Ok(vec![weir_upstream::error_report(&error)]),
    };
    let mut failures = Vec::new();
    let json = run(&set, Document::json(case.input()), &mut failures).await;
    failures.extend(case.compare(&json).err());
    if let Some(input) = coverage.input(case) {
        let protobuf = run(&set, input.document(), &mut failures).await;
        failures.extend(input.compare(case, &json, &protobuf).err());
    }
    match reused {
        Some(reused) if reused.world == world => {
            if run(&reused.set, Document::json(case.input()), &mut failures).await != json {
                failures.push("impure: the outcome differs in an instance that has run other cases".to_owned());
            }
        }
        _ => *reused = Some(Reused { world, set }),
    }
    Ok(failures)
}

async fn run(set: &FilterSet, document: Document, failures: &mut Vec<String>) -> CaseOutcome {
    let resource =
        GroupResource::of_kind(&document.api_version().unwrap_or_default(), &document.kind().unwrap_or_default());
    let made = match set.chain("weir-test", &resource, VerbClass::Read) {
        Some(chain) => chain.run(vec![document.clone(); ALIKE]).await.into_iter().collect(),
        None => Vec::new(),
    };
    let mut outcomes = made.into_iter().map(|made| outcome(made, &document));
    let first = outcomes.next().unwrap_or_else(|| CaseOutcome::Kept(document.bytes().clone()));
    // After repeated failures the circuit breaker stops calls.
    if !matches!(first, CaseOutcome::Failed { .. })
        && let Some(other) = outcomes.find(|other| *other != first)
    {
        failures.push(format!("impure: {first:?} at first, then {other:?} for an equal object"));
    }
    first
}

fn outcome(made: Outcome, document: &Document) -> CaseOutcome {
    match made {
        Outcome::Unchanged => CaseOutcome::Kept(document.bytes().clone()),
        Outcome::Edited(bytes) => CaseOutcome::Kept(bytes),
        Outcome::Hidden => CaseOutcome::Hidden,
        Outcome::Failed(failure) => {
            CaseOutcome::Failed { class: failure.class.label(), message: failure.message.to_string() }
        }
    }
}

fn view(environment: Environment, objects: impl IntoIterator<Item = String>) -> Result<FileView, CommandError> {
    let invalid = |reason: String| CommandError::invalid("a case", reason);
    let node = environment.node;
    let addresses = node.addresses.iter().map(|address| {
        Ok(InterfaceAddress {
            interface_name: address.interface_name.clone(),
            ip: address.ip.parse().map_err(|_| invalid(format!("{}: not an IP address", address.ip)))?,
            prefix_length: address.prefix_length,
            default_route: address.default_route,
        })
    });
    let addresses = addresses.collect::<Result<_, CommandError>>()?;
    let endpoint = node.endpoint.map(|endpoint| Endpoint { host: endpoint.host, port: endpoint.port });
    let objects = objects.into_iter().map(|json| serde_json::from_str::<Value>(&json).unwrap_or_default());
    FileView::new(&node.name, objects, addresses, endpoint)
        .map_err(|source| CommandError::Objects { what: "the cluster of a case".to_owned(), source })
}

fn settings_of(settings: &str) -> Result<serde_json::Map<String, Value>, CommandError> {
    match serde_json::from_str(settings) {
        Ok(Value::Object(settings)) => Ok(settings),
        _ => Err(CommandError::invalid("settings of a case", "must be a mapping")),
    }
}

fn indented(text: &str) -> String {
    text.lines().map(|line| format!("          {line}")).collect::<Vec<_>>().join("\n")
}
