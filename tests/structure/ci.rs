//! `.ci/run`: its last lines have the time and the verdict of each part, also when one fails.

use std::process::Command;

/// Runs these parts with the functions of `.ci/run`: the lines of the parts, and the exit code.
fn run(parts: &str) -> (Vec<String>, Option<i32>) {
    let script = std::fs::read_to_string(super::root().join(".ci/run")).expect("the script is read");
    let (functions, _) = script.split_once("\ntrap finish EXIT\n").expect("parts follow the functions");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join(".ci/run");
    std::fs::create_dir(folder.path().join(".ci")).expect("the folder is made");
    std::fs::write(&path, format!("{functions}\ntrap finish EXIT\n{parts}")).expect("the script is written");
    let output = Command::new("bash").arg(&path).env("TMPDIR", folder.path()).output().expect("bash runs");
    let text = String::from_utf8(output.stdout).expect("it is UTF-8");
    let lines = text.lines().filter_map(|line| Some(line.trim_start().split_once(" s  ")?.1.to_owned()));
    let left = std::fs::read_dir(folder.path()).expect("the folder is read").count();
    assert_eq!(left, 1, "the script leaves no temporary file: {text}");
    assert!(text.ends_with("\n\nnothing was skipped\n"), "{text}");
    (lines.collect(), output.status.code())
}

#[test]
fn a_part_that_fails_has_its_time_and_so_has_what_ran_beside_it() {
    let both = "beside sh -c 'exit 4' &\nfails() { until [ -s \"$BESIDE.time\" ]; do sleep 0.01; done; return 3; }\n";
    let (lines, code) = run(&format!("part true\n{both}part fails\npart true\n"));
    assert_eq!(lines, ["true", "fails  failed with 3", "sh -c exit 4 (beside)  failed with 4"]);
    assert_eq!(code, Some(3));
    let runs = "job=$!\nfails() { until pgrep -P $job >/dev/null; do sleep 0.01; done; return 1; }\n";
    let (lines, code) = run(&format!("beside sleep 1000 &\n{runs}part fails\n"));
    assert_eq!(lines, ["fails  failed with 1", "sleep 1000 (beside)  ended"]);
    assert_eq!(code, Some(1));
}

#[test]
fn a_part_that_ran_beside_others_is_reported_where_it_is_joined() {
    let (lines, code) = run("beside true &\npart true\njoin $!\npart false\n");
    assert_eq!(lines, ["true", "true (beside)", "false  failed with 1"]);
    assert_eq!(code, Some(1));
    let (lines, code) = run("beside sh -c 'exit 4' &\npart true\njoin $!\n");
    assert_eq!(lines, ["true", "sh -c exit 4 (beside)  failed with 4"]);
    assert_eq!(code, Some(4));
}
