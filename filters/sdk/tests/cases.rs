//! The case runner detects filters whose outcome depends on the encoding of the object.

use serde::Deserialize;
use weir_filter::cases::check;
use weir_filter::{Error, Filter, Object, Path, Plan, Verdict};

static TOMORROW: Path = Path::new("spec.tomorrow");

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
enum Act {
    Keep,
    Spelling,
    Unencodable,
}

#[derive(Deserialize)]
struct Actor {
    act: Act,
}

impl Filter for Actor {
    type Settings = Self;

    fn configure(settings: Self) -> Result<Self, Error> {
        Ok(settings)
    }

    fn plan(&self) -> Plan {
        Plan::matching(["*/services"])
    }

    fn filter(&self, object: &mut Object<'_>) -> Result<Verdict, Error> {
        match self.act {
            Act::Keep => {}
            Act::Spelling if object.to_json().contains(' ') => return Ok(Verdict::Hide),
            Act::Spelling => {}
            Act::Unencodable => object.set(&TOMORROW, "1")?,
        }
        Ok(Verdict::Keep)
    }
}

/// Returns the output of the runner for a folder beside this file.
fn output_of(folder: &str) -> String {
    let folder = format!("{}/tests/cases/{folder}", env!("CARGO_MANIFEST_DIR"));
    check::<Actor>(folder).map_or_else(|failures| format!("{failures:?}"), |()| "nothing".to_owned())
}

#[test]
fn an_outcome_that_depends_on_the_encoding_fails_the_case() {
    let output = output_of("spelling");
    assert!(
        output.contains("white space hides it") && output.contains("in JSON Hidden, but in protobuf Kept"),
        "{output}"
    );
}

#[test]
fn an_edit_that_protobuf_cannot_encode_fails_the_case() {
    let output = output_of("unencodable-outcome");
    assert!(output.contains("but in protobuf Failed") && output.contains("no such field in protobuf"), "{output}");
}

#[test]
fn at_least_one_case_of_a_built_in_kind_runs_in_protobuf() {
    let output = output_of("unencodable-input");
    let reason = "a field of tomorrow: the new value is not valid: malformed at byte";
    assert!(output.contains("no case runs in protobuf") && output.contains(reason), "{output}");
    assert!(!output.contains("not built in"), "{output}");
}
