//! The documents for operators agree with the modules: their configurations load, and they list every setting.

use std::process::Command;

use weir_tests::built;

fn filters_readme() -> String {
    std::fs::read_to_string(built::workspace().join("filters/README.md")).unwrap()
}

/// Returns the YAML blocks of a document.
fn yaml_blocks(text: &str) -> Vec<&str> {
    text.split("```yaml\n").skip(1).map(|rest| rest.split_once("```").unwrap().0).collect()
}

/// Returns the names of the bundled filters.
fn bundled() -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(built::modules())
        .unwrap()
        .map(|entry| entry.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned())
        .collect();
    names.sort();
    names
}

/// Returns the section of a filter, up to the next heading.
fn section<'a>(readme: &'a str, filter: &str) -> &'a str {
    let (_, rest) = readme.split_once(&format!("# {filter}\n")).unwrap_or_else(|| panic!("no section on {filter}"));
    rest.split("\n#").next().unwrap()
}

#[test]
fn the_configurations_in_the_filters_readme_load() {
    let readme = filters_readme();
    let blocks = yaml_blocks(&readme);
    assert_eq!(blocks.len(), 2);
    let folder = tempfile::tempdir().unwrap();
    for (n, block) in blocks.iter().enumerate() {
        let path = folder.path().join(format!("{n}.yaml"));
        std::fs::write(&path, block).unwrap();
        let output = Command::new(built::weir())
            .arg("check")
            .arg(&path)
            .arg("--modules-dir")
            .arg(built::modules())
            .env_clear()
            .output()
            .unwrap();
        assert!(output.status.success(), "{block}\n{}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn the_filters_readme_lists_every_bundled_filter_and_setting() {
    let readme = filters_readme();
    let folder = tempfile::tempdir().unwrap();
    let object = folder.path().join("object.yaml");
    std::fs::write(&object, "{apiVersion: v1, kind: Service, metadata: {name: a}}").unwrap();
    for filter in bundled() {
        let text = section(&readme, &filter);
        assert!(readme.contains(&format!("| [{filter}](#{filter}) |")), "{filter} is not in the overview");
        // The error about an unknown setting lists the known ones.
        let output = Command::new(built::weir())
            .arg("run")
            .arg(built::module(&filter))
            .arg("--object")
            .arg(&object)
            .args(["--settings", r#"{"unknown-setting": 1}"#])
            .env_clear()
            .output()
            .unwrap();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        let (_, known) =
            error.split_once("unknown field `unknown-setting`").unwrap_or_else(|| panic!("{filter}: {error}"));
        for setting in known.split('`').skip(1).step_by(2) {
            // Three filters share one table of settings.
            let shared = ["host", "port"].contains(&setting) && readme.contains(&format!("| `{setting}` |"));
            assert!(shared || text.contains(&format!("`{setting}`")), "{filter}: {setting} is not documented");
        }
    }
}
