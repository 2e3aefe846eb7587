//! The table of bounds in `deploy/limits.md` has the values of the constants that it names.

use crate::root;

#[test]
fn each_bound_of_the_documents_is_that_of_its_constant() {
    let page = std::fs::read_to_string(root().join("deploy/limits.md")).unwrap();
    let (_, table) = page.split_once("| what | bound | beyond it | constant |\n|---|---|---|---|\n").unwrap();
    let rows: Vec<_> = table.lines().take_while(|line| line.starts_with('|')).collect();
    assert!(rows.len() > 40, "{} rows", rows.len());
    for row in rows {
        let [what, bound, _, constant] = row.trim_matches(['|', ' ']).split(" | ").collect::<Vec<_>>()[..] else {
            panic!("{row}");
        };
        let Some((file, name)) = constant.trim_matches('`').split_once("` `") else { panic!("{row}") };
        let source = std::fs::read_to_string(root().join("host").join(file)).unwrap();
        let declared = format!("const {name}: ");
        let (_, text) = source.split_once(&declared).unwrap_or_else(|| panic!("{file} has no {declared}"));
        let value = text.split_once(" = ").unwrap().1.split_once(';').unwrap().0;
        assert_eq!(documented(bound), constant_value(value), "{what}: {file} has {value}");
    }
}

/// A number, an amount of memory in bytes, or a time in seconds.
fn documented(text: &str) -> u64 {
    let (number, unit) = text.split_once(' ').unwrap_or((text, "B"));
    let unit = match unit {
        "B" | "s" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "min" => 60,
        unit => panic!("{text}: {unit} is no unit"),
    };
    number.replace(',', "").parse::<u64>().unwrap() * unit
}

/// The same of a constant's expression.
fn constant_value(text: &str) -> u64 {
    let seconds = text.strip_prefix("Duration::from_secs(").and_then(|text| text.strip_suffix(')'));
    let number = |text: &str| text.replace('_', "").parse::<u64>().unwrap_or_else(|_| panic!("{text} is no number"));
    match seconds.unwrap_or(text).split_once(" << ") {
        Some((number_text, shift)) => number(number_text) << number(shift),
        None => number(seconds.unwrap_or(text)),
    }
}
