//! Baselines for filtering: a list is decoded to values and encoded again, without changes.

use bytes::Bytes;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_pb::api::core::v1::ServiceList;
use k8s_pb::api::discovery::v1::EndpointSliceList;
use prost::Message;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use weir_document::protobuf::Envelope;

use crate::list::{Encoding, Kind};

/// A way to process a list.
#[derive(Clone, Copy)]
pub(crate) enum Baseline {
    /// `serde_json::Value`
    Value,
    /// The structs of k8s-openapi.
    Typed,
    /// The messages of k8s-pb.
    Prost,
    /// Copies the bytes once.
    Copy,
}

impl Baseline {
    /// Returns the baselines for an encoding.
    pub(crate) fn of(encoding: Encoding) -> &'static [Self] {
        match encoding {
            Encoding::Json => &[Self::Value, Self::Typed, Self::Copy],
            Encoding::Protobuf => &[Self::Prost, Self::Copy],
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Value => "serde_json::Value, no filter",
            Self::Typed => "k8s-openapi structs, no filter",
            Self::Prost => "prost structs, no filter",
            Self::Copy => "the bytes copied once",
        }
    }

    /// Processes a whole list once.
    pub(crate) fn run(self, kind: Kind, list: &Bytes) {
        let written = match (self, kind) {
            (Self::Value, _) => json::<Value>(list),
            (Self::Typed, Kind::Services) => json::<k8s_openapi::List<Service>>(list),
            (Self::Typed, Kind::Slices) => json::<k8s_openapi::List<EndpointSlice>>(list),
            (Self::Prost, Kind::Services) => protobuf::<ServiceList>(list),
            (Self::Prost, Kind::Slices) => protobuf::<EndpointSliceList>(list),
            (Self::Copy, _) => list.to_vec(),
        };
        std::hint::black_box(written);
    }
}

fn json<T: Serialize + DeserializeOwned>(list: &Bytes) -> Vec<u8> {
    let value: T = serde_json::from_slice(list).unwrap();
    serde_json::to_vec(&value).unwrap()
}

fn protobuf<T: Message + Default>(list: &Bytes) -> Vec<u8> {
    let object = Envelope::open(list.clone()).unwrap().object();
    T::decode(object).unwrap().encode_to_vec()
}
