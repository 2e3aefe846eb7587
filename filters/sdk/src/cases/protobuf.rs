//! A case in protobuf: its input as the message that a client of protobuf is sent, and what became of that against what
//! became of the JSON. A filter cannot tell which of the two it is given, so both must come to the same object.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;
use weir_document::{Document, TypeMeta, protobuf};

use super::{Case, Outcome, judge, told};

/// A case's input as a protobuf message.
#[derive(Clone, Debug)]
pub struct Message {
    type_meta: Arc<TypeMeta>,
    document: Document,
}

/// How many inputs of built-in kinds ran in protobuf, and why the others could not.
#[derive(Debug, Default)]
pub struct Tally {
    /// How many ran.
    pub ran: usize,
    /// Why each of the others cannot be said in protobuf: what the encoder refused.
    pub refused: Vec<String>,
}

impl Tally {
    /// The case's input as a message, counted. None if it is never sent as one (its kind is not built in), or cannot be.
    pub fn message(&mut self, case: &Case) -> Option<Message> {
        let input = Document::json(case.input());
        let type_meta =
            TypeMeta { api_version: input.api_version().ok()?.into_owned(), kind: input.kind().ok()?.into_owned() };
        if !protobuf::has(&type_meta) {
            return None;
        }
        match Message::of(type_meta, &case.input()) {
            Ok(message) => {
                self.ran += 1;
                Some(message)
            }
            Err(reason) => {
                self.refused.push(format!("{}: {reason}", case.name));
                None
            }
        }
    }

    /// Whether a filter's cases show that it works in protobuf: of built-in kinds at least one ran.
    pub fn check(&self) -> Result<(), String> {
        if self.ran > 0 || self.refused.is_empty() {
            return Ok(());
        }
        Err(format!("no case runs in protobuf; add one without what protobuf cannot say\n{}", self.refused.join("\n")))
    }
}

impl Message {
    fn of(type_meta: TypeMeta, json: &[u8]) -> Result<Self, String> {
        let json = std::str::from_utf8(json).map_err(|error| error.to_string())?;
        let bytes = protobuf::from_json(&type_meta, json).map_err(|error| told(&error))?;
        let type_meta = Arc::new(type_meta);
        let document = Document::protobuf(bytes, Arc::clone(&type_meta)).ok_or("a kind without a schema")?;
        Ok(Self { type_meta, document })
    }

    /// The object, for one run.
    pub fn document(&self) -> Document {
        self.document.clone()
    }

    /// Whether a run on this message came to the same as the run on the case's JSON; if not, how they differ.
    pub fn agree(&self, case: &Case, json: &Outcome, protobuf: &Outcome) -> Result<(), String> {
        match (json, protobuf) {
            (Outcome::Kept(json), Outcome::Kept(bytes)) if *json == case.input() => {
                if bytes == self.document.bytes() {
                    return Ok(());
                }
                self.same_object(json, bytes)?;
                Err("in protobuf the same object in other bytes, unchanged in JSON".to_owned())
            }
            (Outcome::Kept(json), Outcome::Kept(bytes)) => self.same_object(json, bytes),
            (Outcome::Failed { class, .. }, Outcome::Failed { class: other, .. }) if class == other => {
                case.judge(protobuf).map_err(|difference| format!("in protobuf {difference}"))
            }
            (Outcome::Hidden, Outcome::Hidden) => Ok(()),
            _ => Err(format!("in JSON {json:?}, but in protobuf {protobuf:?}")),
        }
    }

    /// Whether they are the same object. The JSON is read by way of protobuf, where a zero value that JSON would leave
    /// out and an absent one are the same.
    fn same_object(&self, json: &[u8], bytes: &Bytes) -> Result<(), String> {
        let expected = Self::of((*self.type_meta).clone(), json)
            .and_then(|message| message.tree())
            .map_err(|error| format!("the outcome in JSON cannot be said in protobuf: {error}"))?;
        let found = Document::protobuf(bytes.clone(), Arc::clone(&self.type_meta)).ok_or("a kind without a schema")?;
        let found = Self { document: found, type_meta: Arc::clone(&self.type_meta) }
            .tree()
            .map_err(|error| format!("the outcome in protobuf cannot be read: {error}"))?;
        if found == expected {
            return Ok(());
        }
        Err(format!("in protobuf another object than in JSON\n{}", judge::difference(&expected, &found)))
    }

    fn tree(&self) -> Result<Value, String> {
        let json = self.document.to_json().map_err(|error| told(&error))?;
        serde_json::from_str(&json).map_err(|error| error.to_string())
    }
}
