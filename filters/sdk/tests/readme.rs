//! The test cases in the README pass with the filter in the README. A doc test compiles the filter itself.

use serde::Deserialize;
use weir_filter::cases::{CaseFile, check};
use weir_filter::{Error, Filter, Object, Plan, Verdict};

const README: &str = include_str!("../README.md");

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HideMarked {
    annotation: String,
}

impl Filter for HideMarked {
    type Settings = Self;

    fn configure(settings: Self) -> Result<Self, Error> {
        Ok(settings)
    }

    fn plan(&self) -> Plan {
        Plan::matching(["kube-proxy/services#get;list;watch"])
    }

    fn filter(&self, object: &mut Object<'_>) -> Result<Verdict, Error> {
        let hidden = object.annotation(&self.annotation).is_some_and(|value| value == "true");
        Ok(if hidden { Verdict::Hide } else { Verdict::Keep })
    }
}

/// Returns the content of the first code block of a language.
fn block(language: &str) -> Option<&'static str> {
    let (_, rest) = README.split_once(&format!("```{language}\n"))?;
    rest.split_once("```").map(|(block, _)| block)
}

#[test]
fn the_cases_of_the_readme_pass() {
    let folder = std::env::temp_dir().join(format!("weir-filter-readme-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("hide.yaml"), block("yaml").unwrap()).unwrap();
    let cases = CaseFile::read_all(&folder).unwrap();
    let result = check::<HideMarked>(&folder);
    std::fs::remove_dir_all(&folder).unwrap();
    assert_eq!(cases.iter().map(|(_, file)| file.cases.len()).sum::<usize>(), 3);
    result.unwrap();
}

#[test]
fn this_test_has_the_filter_of_the_readme() {
    let this = include_str!("readme.rs");
    let filter = block("rust").unwrap().split_once("#[derive").unwrap().1.split_once("weir_filter::export!").unwrap().0;
    assert!(this.contains(filter.trim()), "{filter}");
}
