//! What the runner of cases finds: filters whose outcome depends on how the object is encoded.

use serde::Deserialize;
use weir_filter::cases::check;
use weir_filter::{Error, Filter, Object, Path, Plan, Verdict};

static TOMORROW: Path = Path::new("spec.tomorrow");

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
enum Act {
    Keep,
    Spelling,
    Unsayable,
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
            Act::Unsayable => object.set(&TOMORROW, "1")?,
        }
        Ok(Verdict::Keep)
    }
}

/// What the runner says of a folder beside this file.
fn told(folder: &str) -> String {
    let folder = format!("{}/tests/cases/{folder}", env!("CARGO_MANIFEST_DIR"));
    check::<Actor>(folder).map_or_else(|failures| format!("{failures:?}"), |()| "nothing".to_owned())
}

#[test]
fn an_outcome_that_depends_on_the_encoding_fails_the_case() {
    let told = told("spelling");
    assert!(told.contains("white space hides it") && told.contains("in JSON Hidden, but in protobuf Kept"), "{told}");
}

#[test]
fn an_edit_that_protobuf_cannot_say_fails_the_case() {
    let told = told("unsayable");
    assert!(told.contains("but in protobuf Failed") && told.contains("no such field in protobuf"), "{told}");
}

#[test]
fn at_least_one_case_of_a_built_in_kind_runs_in_protobuf() {
    let told = told("unsaid");
    let reason = "a field of tomorrow: the new value is not valid: malformed at byte";
    assert!(told.contains("no case runs in protobuf") && told.contains(reason), "{told}");
    assert!(!told.contains("not built in"), "{told}");
}
