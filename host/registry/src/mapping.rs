//! Files of settings: YAML. Errors name the place and what is valid there.

use serde_json::{Map, Value};
use weir_kube::yaml_document;

/// A mapping of a file, and where it is.
#[derive(Debug)]
pub(crate) struct Mapping<'a> {
    place: String,
    members: &'a Map<String, Value>,
}

/// Reads the list of mappings that a file has under its only key.
///
/// # Errors
/// The text is not YAML, or something else.
pub(crate) fn list<T>(
    text: &str,
    key: &str,
    keys: &[&str],
    read: impl Fn(&Mapping<'_>) -> Result<T, String>,
) -> Result<Vec<T>, String> {
    let document = yaml_document(text).map_err(|error| format!("not YAML: {error}"))?;
    let file = Mapping::of(String::new(), &document, &[key])?;
    let Some(items) = file.members.get(key) else { return Err(format!("`{key}` is missing")) };
    let Value::Array(items) = items else { return Err(not(key, items, "a list of mappings")) };
    let item = |(index, item)| read(&Mapping::of(format!("{key}[{index}]"), item, keys)?);
    items.iter().enumerate().map(item).collect()
}

impl<'a> Mapping<'a> {
    fn of(place: String, value: &'a Value, keys: &[&str]) -> Result<Self, String> {
        let one_of = || keys.iter().map(|key| format!("`{key}`")).collect::<Vec<_>>().join(", ");
        let Value::Object(members) = value else {
            let place = if place.is_empty() { "the file" } else { &place };
            return Err(not(place, value, &format!("a mapping with {}", one_of())));
        };
        let found = Self { place, members };
        match members.keys().find(|key| !keys.contains(&key.as_str())) {
            Some(unknown) => Err(format!("{}: there is no such key, only {}", found.at(unknown), one_of())),
            None => Ok(found),
        }
    }

    fn at(&self, key: &str) -> String {
        if self.place.is_empty() { key.to_owned() } else { format!("{}.{key}", self.place) }
    }

    /// The value of a key; `None` if there is no such key, or it is null.
    fn get<T>(&self, key: &str, wanted: &str, read: impl Fn(&'a Value) -> Option<T>) -> Result<Option<T>, String> {
        let value = self.members.get(key).filter(|value| !value.is_null());
        value.map(|value| read(value).ok_or_else(|| not(&self.at(key), value, wanted))).transpose()
    }

    pub(crate) fn text(&self, key: &str) -> Result<Option<&'a str>, String> {
        self.get(key, "text", Value::as_str)
    }

    pub(crate) fn required_text(&self, key: &str) -> Result<String, String> {
        self.text(key)?.map(str::to_owned).ok_or_else(|| format!("{} is missing", self.at(key)))
    }

    pub(crate) fn flag(&self, key: &str) -> Result<Option<bool>, String> {
        self.get(key, "`true` or `false`", Value::as_bool)
    }

    pub(crate) fn texts(&self, key: &str) -> Result<Option<Vec<String>>, String> {
        let texts = |value: &Value| value.as_array()?.iter().map(|text| text.as_str().map(str::to_owned)).collect();
        self.get(key, "a list of text", texts)
    }
}

fn not(place: &str, value: &Value, wanted: &str) -> String {
    let is = match value {
        Value::Null => "nothing",
        Value::Bool(_) => "`true` or `false`",
        Value::Number(_) => "a number",
        Value::String(_) => "text",
        Value::Array(_) => "a list",
        Value::Object(_) => "a mapping",
    };
    format!("{place}: {wanted} is wanted here, and this is {is}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_its_place_and_what_is_valid_there() {
        let read = |text: &str| {
            list(text, "items", &["name", "of", "on"], |item| {
                Ok((item.required_text("name")?, item.texts("of")?, item.flag("on")?))
            })
        };
        let read_one = read("items: [{name: a, of: [b], on: true}]\n---\n").unwrap();
        assert_eq!(read_one, [("a".to_owned(), Some(vec!["b".to_owned()]), Some(true))]);
        for (text, error) in [
            ("", "the file: a mapping with `items` is wanted here, and this is nothing"),
            ("- a", "the file: a mapping with `items` is wanted here, and this is a list"),
            ("{}", "`items` is missing"),
            ("itmes: []", "itmes: there is no such key, only `items`"),
            ("items: {}", "items: a list of mappings is wanted here, and this is a mapping"),
            ("items: [a]", "items[0]: a mapping with `name`, `of`, `on` is wanted here, and this is text"),
            ("items: [{name: a, nmae: b}]", "items[0].nmae: there is no such key, only `name`, `of`, `on`"),
            ("items: [{name: a}, {on: true}]", "items[1].name is missing"),
            ("items: [{name: 5000}]", "items[0].name: text is wanted here, and this is a number"),
            ("items: [{name: a, of: b}]", "items[0].of: a list of text is wanted here, and this is text"),
            ("items: [{name: a, on: [b]}]", "items[0].on: `true` or `false` is wanted here, and this is a list"),
        ] {
            assert_eq!(read(text).unwrap_err(), error, "{text}");
        }
        assert!(read("items: [").unwrap_err().starts_with("not YAML: "));
    }
}
