//! An explanation for people to read on a terminal.

use std::fmt::Write as _;

use serde_json::Value;
use weir_process::one_line;

use crate::node_facts::SWITCH;

/// The longest line of a read.
const LINE: usize = 400;

/// Writes an explanation, as `/explain` gives it, as text. Text from the cluster has no control characters. A verbose one has the
/// digests, what each filter read, and which filters do not match.
#[must_use]
pub fn write_text(explained: &Value, is_verbose: bool) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = head(&mut text, explained);
    let filters = list(explained, "filters");
    for (number, filter) in filters.iter().enumerate() {
        let _ = step(&mut text, number + 1, filter, is_verbose);
    }
    let others: Vec<_> = list(explained, "otherFilters").iter().filter_map(Value::as_str).collect();
    if is_verbose && !others.is_empty() {
        let _ = writeln!(text, "\nDo not match this component and resource: {}", line(&others.join(", ")));
    }
    if !is_verbose && filters.iter().any(|filter| !list(filter, "reads").is_empty()) {
        text += "\n-v shows what each filter read.\n";
    }
    text
}

fn head(text: &mut String, explained: &Value) -> std::fmt::Result {
    let of = |key: &str| word(explained, key);
    let name = match of("namespace").as_str() {
        "" => of("name"),
        namespace => format!("{namespace}/{}", of("name")),
    };
    let (resource, component, node, outcome) = (of("resource"), of("component"), of("node"), of("outcome"));
    writeln!(text, "{resource} {name} for {component} on node {node}: {outcome}")?;
    let version = explained.pointer("/object/metadata/resourceVersion").and_then(Value::as_str).unwrap_or_default();
    let version = line(version);
    write!(text, "  read from the {} at resourceVersion {version}", of("readFrom"))?;
    match explained["offlineSince"].as_str() {
        Some(since) => writeln!(text, "; no API server can be reached since {}", line(since))?,
        None => writeln!(text)?,
    }
    match explained["sentOutcome"].as_str() {
        Some(sent) if sent != outcome => {
            writeln!(text, "  its watches have got another outcome so far: {}", line(sent))?;
        }
        _ => {}
    }
    if explained["filtersOff"] == true {
        writeln!(
            text,
            "\nAll filters of this node are off, by its annotation {SWITCH}: the object is sent as the API server has it."
        )?;
    } else if list(explained, "filters").is_empty() {
        writeln!(text, "\nNo filter matches: the object is sent as the API server has it.")?;
    }
    if explained["knownComponents"].is_array() {
        let known: Vec<_> = list(explained, "knownComponents").iter().filter_map(Value::as_str).collect();
        let known = if known.is_empty() { "none yet".to_owned() } else { line(&known.join(", ")) };
        let clients =
            if explained["asksClients"] == true { ", and no client of this name has asked this Weir" } else { "" };
        writeln!(text, "\nNo rule names {component}{clients}. Components that are known: {known}")?;
    }
    Ok(())
}

fn step(text: &mut String, number: usize, filter: &Value, is_verbose: bool) -> std::fmt::Result {
    let of = |key: &str| word(filter, key);
    write!(text, "\n{number}. {}: {}", of("filter"), of("decision"))?;
    if !filter["failure"].is_null() {
        write!(text, " ({})", of("failure"))?;
    }
    if filter["mode"] == "observe" {
        write!(text, "; it only observes, so this does not count")?;
    }
    if filter["suspended"] == true {
        write!(text, "; its circuit breaker is open")?;
    }
    if !filter["failurePolicy"].is_null() {
        write!(text, "; failurePolicy {} applies", of("failurePolicy"))?;
    }
    writeln!(text)?;
    if let Some(digest) = filter["digest"].as_str().filter(|_| is_verbose) {
        writeln!(text, "   {digest}")?;
    }
    for reason in list(filter, "reasons").iter().filter_map(Value::as_str) {
        writeln!(text, "   {}", line(reason))?;
    }
    for endpoint in list(filter, "leftOut") {
        let address = word(endpoint, "address");
        match endpoint["nodeName"].as_str() {
            Some(node) => writeln!(text, "   {address} is left out: it is on node {}", line(node))?,
            None => writeln!(text, "   {address} is left out: it is on no node")?,
        }
    }
    for read in list(filter, "reads").iter().filter(|_| is_verbose) {
        let (on, call) = (word(read, "on"), word(read, "call"));
        writeln!(text, "   {on}: {call} → {}", line(&read["result"].to_string()))?;
    }
    if is_verbose && filter["readsTruncated"] == true {
        writeln!(text, "   … and more host calls")?;
    }
    for changed in filter["diff"].as_str().unwrap_or_default().lines() {
        writeln!(text, "   {}", line(changed))?;
    }
    Ok(())
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().map(Vec::as_slice).unwrap_or_default()
}

fn word(value: &Value, key: &str) -> String {
    line(value[key].as_str().unwrap_or_default())
}

fn line(text: &str) -> String {
    one_line(text, LINE)
}
