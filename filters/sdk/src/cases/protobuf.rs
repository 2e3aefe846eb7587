//! Runs a case in protobuf. The input becomes the message that a protobuf client receives, and its outcome must equal
//! the outcome in JSON. A filter cannot see which encoding an object has.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;
use weir_document::{Document, TypeMeta, path, protobuf};
use weir_kube::error_chain;

use super::{Case, CaseOutcome, outcome};

/// The input of a case as a protobuf message.
#[derive(Clone, Debug)]
pub struct ProtobufInput {
    type_meta: Arc<TypeMeta>,
    document: Document,
}

/// Counts the inputs that ran in protobuf, among those of built-in kinds.
#[derive(Debug, Default)]
pub struct Coverage {
    /// The number of inputs that ran.
    pub ran: usize,
    /// For each other input the encoder's error, such as an unknown field.
    pub refused: Vec<String>,
}

impl Coverage {
    /// Encodes the input of a case and counts it. Returns none if its kind is not built in or if the encoder fails.
    pub fn input(&mut self, case: &Case) -> Option<ProtobufInput> {
        let input = Document::json(case.input());
        let type_meta =
            TypeMeta { api_version: input.api_version().ok()?.into_owned(), kind: input.kind().ok()?.into_owned() };
        if !protobuf::has(&type_meta) {
            return None;
        }
        match ProtobufInput::of(type_meta, &case.input()) {
            Ok(input) => {
                self.ran += 1;
                Some(input)
            }
            Err(reason) => {
                self.refused.push(format!("{}: {reason}", case.name));
                None
            }
        }
    }

    /// Checks that the cases cover protobuf: of the inputs of built-in kinds, at least one ran.
    pub fn check(&self) -> Result<(), String> {
        if self.ran > 0 || self.refused.is_empty() {
            return Ok(());
        }
        Err(format!("no case runs in protobuf; add one that protobuf can encode\n{}", self.refused.join("\n")))
    }
}

impl ProtobufInput {
    fn of(type_meta: TypeMeta, json: &[u8]) -> Result<Self, String> {
        let json = std::str::from_utf8(json).map_err(|error| error.to_string())?;
        let bytes = protobuf::from_json(&type_meta, json).map_err(|error| error_chain(&error))?;
        let type_meta = Arc::new(type_meta);
        let document = Document::protobuf(bytes, Arc::clone(&type_meta)).ok_or("the kind has no protobuf schema")?;
        Ok(Self { type_meta, document })
    }

    /// Returns the object for one run.
    pub fn document(&self) -> Document {
        self.document.clone()
    }

    /// Compares the outcome of this message with the outcome of the JSON input. The error describes the difference.
    pub fn compare(&self, case: &Case, json: &CaseOutcome, protobuf: &CaseOutcome) -> Result<(), String> {
        match (json, protobuf) {
            (CaseOutcome::Kept(json), CaseOutcome::Kept(bytes)) if *json == case.input() => {
                if bytes == self.document.bytes() {
                    return Ok(());
                }
                self.same_object(json, bytes)?;
                Err("unchanged in JSON, but re-encoded in protobuf".to_owned())
            }
            (CaseOutcome::Kept(json), CaseOutcome::Kept(bytes)) => self.same_object(json, bytes),
            (CaseOutcome::Failed { class, .. }, CaseOutcome::Failed { class: other, .. }) if class == other => {
                case.compare(protobuf).map_err(|difference| format!("in protobuf {difference}"))
            }
            (CaseOutcome::Hidden, CaseOutcome::Hidden) => Ok(()),
            _ => Err(format!("in JSON {json:?}, but in protobuf {protobuf:?}")),
        }
    }

    /// Compares the objects. Encodes the JSON object in protobuf first, because in protobuf a zero value and an absent
    /// one are the same.
    fn same_object(&self, json: &[u8], bytes: &Bytes) -> Result<(), String> {
        let expected = Self::of((*self.type_meta).clone(), json)
            .and_then(|input| input.tree())
            .map_err(|error| format!("cannot encode the JSON outcome in protobuf: {error}"))?;
        let found =
            Document::protobuf(bytes.clone(), Arc::clone(&self.type_meta)).ok_or("the kind has no protobuf schema")?;
        let found = Self { document: found, type_meta: Arc::clone(&self.type_meta) }
            .tree()
            .map_err(|error| format!("cannot read the protobuf outcome: {error}"))?;
        if found == expected {
            return Ok(());
        }
        Err(format!("the outcomes in JSON and protobuf differ\n{}", outcome::difference(&expected, &found)))
    }

    fn tree(&self) -> Result<Value, String> {
        let object = self.document.deserialize_at(&path!("$")).map_err(|error| error_chain(&error))?;
        Ok(object.unwrap_or_default())
    }
}
