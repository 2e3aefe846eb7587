//! Results of test cases as JUnit XML, which CI systems show.

use std::fmt::Write as _;

use super::test::CaseResult;

/// Returns the results of the cases of one filter.
pub(super) fn junit(name: &str, results: &[CaseResult]) -> String {
    let failed = results.iter().filter(|result| !result.passed()).count();
    let mut text = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    // Writing to a String cannot fail.
    let _ = writeln!(
        text,
        "<testsuites>\n<testsuite name=\"{}\" tests=\"{}\" failures=\"{failed}\">",
        Escaped(name),
        results.len()
    );
    for result in results {
        let (file, case) = (result.file.display().to_string(), &result.name);
        let _ = write!(
            text,
            "<testcase classname=\"{}\" name=\"{}\" time=\"{:.6}\"",
            Escaped(&file),
            Escaped(case),
            result.time.as_secs_f64()
        );
        if result.passed() {
            text.push_str("/>\n");
            continue;
        }
        let failures = result.failures.join("\n");
        // A difference begins with the names of its sides.
        let is_shown = |line: &&str| !line.starts_with("--- ") && !line.starts_with("+++ ") && !line.starts_with("@@");
        let first = failures.lines().find(is_shown).unwrap_or("the outcome differs");
        let _ = writeln!(text, "><failure message=\"{}\">{}</failure></testcase>", Escaped(first), Escaped(&failures));
    }
    text.push_str("</testsuite>\n</testsuites>\n");
    text
}

/// Text in XML 1.0, which cannot have most control characters in any spelling.
struct Escaped<'a>(&'a str);

impl std::fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for c in self.0.chars() {
            match c {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                '\n' | '\t' => f.write_char(c)?,
                c if c.is_control() => f.write_char('\u{fffd}')?,
                c => f.write_char(c)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn failures_are_counted_and_all_text_is_escaped() {
        let result = |name: &str, failures: &[&str]| CaseResult {
            file: "cases/a.yaml".into(),
            name: name.to_owned(),
            rule: "1".to_owned(),
            failures: failures.iter().map(|failure| (*failure).to_owned()).collect(),
            in_protobuf: true,
            time: Duration::from_millis(2),
        };
        let text = junit("a", &[result("one", &[]), result("<\"two\">", &["-a & b\n+\u{1b}c", "more"])]);
        assert_eq!(
            text,
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n\
             <testsuite name=\"a\" tests=\"2\" failures=\"1\">\n\
             <testcase classname=\"cases/a.yaml\" name=\"one\" time=\"0.002000\"/>\n\
             <testcase classname=\"cases/a.yaml\" name=\"&lt;&quot;two&quot;&gt;\" time=\"0.002000\">\
             <failure message=\"-a &amp; b\">-a &amp; b\n+\u{fffd}c\nmore</failure></testcase>\n\
             </testsuite>\n</testsuites>\n"
        );
    }
}
