//! An explanation for people to read on a terminal.

use std::fmt::Write as _;

use serde_json::Value;
use weir_process::one_line;

use crate::node_facts::SWITCH;

/// The longest line of a read.
const LINE: usize = 400;

/// Writes an explanation, as `/explain` gives it, as text. What comes from the cluster has no control characters.
#[must_use]
pub fn write_text(explained: &Value) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = head(&mut text, explained);
    for (number, filter) in list(explained, "filters").iter().enumerate() {
        let _ = step(&mut text, number + 1, filter);
    }
    let others: Vec<_> = list(explained, "otherFilters").iter().filter_map(Value::as_str).collect();
    if !others.is_empty() {
        let _ = writeln!(text, "\nDo not match this component and resource: {}", line(&others.join(", ")));
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
        let caches = if explained["asksCaches"] == true { ", and no cache has served it" } else { "" };
        writeln!(text, "\nNo rule names {component}{caches}. Components that are known: {known}")?;
    }
    Ok(())
}

fn step(text: &mut String, number: usize, filter: &Value) -> std::fmt::Result {
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
    if let Some(digest) = filter["digest"].as_str() {
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
    for read in list(filter, "reads") {
        let (on, call) = (word(read, "on"), word(read, "call"));
        writeln!(text, "   {on}: {call} → {}", line(&read["result"].to_string()))?;
    }
    if filter["readsTruncated"] == true {
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
