//! Puts the values of variables into parsed manifests. Values never become structure: a value is a string or a number.
//!
//! `${name}` is replaced in strings and keys. A string that is nothing but a variable gets the type of its value. A field whose
//! variable has no value is left out. So is a mapping whose key `$if` names a variable without value.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The deepest nesting of a manifest. Kubernetes' own objects have a third of it.
const MAX_DEPTH: usize = 64;

/// Variables by name. A variable without a value is known.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Variables(BTreeMap<String, Scalar>);

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(untagged)]
enum Scalar {
    None,
    Number(i64),
    Text(String),
}

impl From<i32> for Scalar {
    fn from(value: i32) -> Self {
        Self::Number(value.into())
    }
}

impl From<&str> for Scalar {
    fn from(value: &str) -> Self {
        Self::Text(value.to_owned())
    }
}

impl From<String> for Scalar {
    fn from(value: String) -> Self {
        Self::Text(value)
    }
}

#[expect(private_bounds, reason = "values are strings and numbers")]
impl Variables {
    /// Sets a variable.
    pub(super) fn set(&mut self, name: &str, value: impl Into<Scalar>) {
        self.0.insert(name.to_owned(), value.into());
    }

    /// Sets a variable that may have no value.
    pub(super) fn set_optional(&mut self, name: &str, value: Option<impl Into<Scalar>>) {
        self.0.insert(name.to_owned(), value.map_or(Scalar::None, Into::into));
    }

    /// Whether there is such a variable.
    pub(super) fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// The names.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// A manifest with values instead of variables; `None` if it is left out.
    ///
    /// # Errors
    /// A variable is unknown.
    pub(super) fn apply(&self, manifest: &Value) -> Result<Option<Value>, String> {
        self.apply_at(manifest, MAX_DEPTH)
    }

    fn apply_at(&self, value: &Value, depth: usize) -> Result<Option<Value>, String> {
        let Some(depth) = depth.checked_sub(1) else { return Err("it is nested too deeply".to_owned()) };
        match value {
            Value::String(text) => self.text(text),
            Value::Array(items) => {
                let items = items.iter().map(|item| self.apply_at(item, depth)).filter_map(Result::transpose);
                Ok(Some(Value::Array(items.collect::<Result<_, _>>()?)))
            }
            Value::Object(fields) => self.mapping(fields, depth),
            other => Ok(Some(other.clone())),
        }
    }

    fn mapping(&self, fields: &Map<String, Value>, depth: usize) -> Result<Option<Value>, String> {
        let mut filled = Map::new();
        for (key, value) in fields {
            let value = self.apply_at(value, depth).map_err(|error| format!("{key}: {error}"))?;
            if key == "$if" {
                if value.is_none() {
                    return Ok(None);
                }
                continue;
            }
            let Some(key) = self.text(key)? else { continue };
            let key = key.as_str().map_or_else(|| key.to_string(), str::to_owned);
            if let Some(value) = value {
                filled.insert(key, value);
            }
        }
        Ok(Some(Value::Object(filled)))
    }

    /// The text with values; `None` if it is a variable without one.
    fn text(&self, text: &str) -> Result<Option<Value>, String> {
        if let Some(name) = text.strip_prefix("${").and_then(|rest| rest.strip_suffix('}'))
            && !name.contains('}')
        {
            return Ok(match self.scalar(name)? {
                Scalar::None => None,
                Scalar::Number(number) => Some((*number).into()),
                Scalar::Text(text) => Some(text.as_str().into()),
            });
        }
        let (mut filled, mut rest) = (String::new(), text);
        while let Some((before, after)) = rest.split_once("${") {
            let Some((name, after)) = after.split_once('}') else {
                return Err(format!("{text:?} has ${{ without }}"));
            };
            filled += before;
            match self.scalar(name)? {
                Scalar::None => return Ok(None),
                Scalar::Number(number) => filled += &number.to_string(),
                Scalar::Text(value) => filled += value,
            }
            rest = after;
        }
        filled += rest;
        Ok(Some(filled.into()))
    }

    fn scalar(&self, name: &str) -> Result<&Scalar, String> {
        self.0.get(name).ok_or_else(|| {
            let known = self.names().collect::<Vec<_>>().join(", ");
            format!("there is no variable {name:?}; there are {known}")
        })
    }
}
