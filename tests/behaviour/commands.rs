//! Commands as people type them: help that fits a terminal.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use weir_tests::built;

/// The width of the terminal.
const WIDTH: usize = 80;

fn run(program: &Path, arguments: &[&str], environment: &[(&str, &str)]) -> Output {
    let mut command = Command::new(program);
    command.args(arguments).env_clear().envs(environment.iter().copied()).stdin(Stdio::null());
    command.output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The subcommands that a program shows.
fn subcommands(help: &str) -> Vec<String> {
    let (_, list) = help.split_once("\nCommands:\n").unwrap();
    let list = list.lines().take_while(|line| !line.is_empty());
    // Lines that begin further to the right continue the text of a command.
    let names = list.filter_map(|line| line.strip_prefix("  ").filter(|line| !line.starts_with(' ')));
    names.map(|line| line.split(' ').next().unwrap().to_owned()).collect()
}

#[test]
fn help_fits_the_width_of_the_terminal() {
    for (program, known) in [(built::weir(), "explain"), (built::operator(), "remove-finalizers")] {
        let help = |arguments: &[&str]| {
            let output = run(&program, arguments, &[("COLUMNS", "80")]);
            assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", stderr(&output));
            stdout(&output)
        };
        let commands = subcommands(&help(&["--help"]));
        assert!(commands.iter().any(|command| command == known), "{commands:?}");
        let mut pages = vec![vec!["--help"], vec!["-h"]];
        for command in commands.iter().filter(|command| *command != "help") {
            pages.extend([vec![command.as_str(), "--help"], vec![command.as_str(), "-h"]]);
        }
        for page in pages {
            let text = help(&page);
            // A single word, such as a default, cannot be broken.
            let wide = |line: &&str| line.chars().count() > WIDTH && line.split_whitespace().count() > 1;
            let wide: Vec<_> = text.lines().filter(wide).collect();
            assert!(wide.is_empty(), "{page:?} is wider than {WIDTH} columns: {wide:#?}");
        }
    }
}

#[test]
fn the_operator_prints_its_version_and_completions() {
    let operator = |arguments: &[&str]| stdout(&run(&built::operator(), arguments, &[]));
    assert_eq!(operator(&["version"]), operator(&["--version"]));
    assert!(operator(&["version"]).starts_with("weir-operator "));
    for (shell, words) in [("bash", "complete -F _weir-operator"), ("zsh", "#compdef weir-operator")] {
        let script = operator(&["completion", shell]);
        assert!(script.contains(words) && script.contains("remove-finalizers"), "{shell}: {script}");
    }
}
