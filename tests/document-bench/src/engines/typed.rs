//! serde_json with the types of k8s-openapi.

use std::hint::black_box;

use k8s_openapi::{
    List as TypedList, ListableResource, Metadata,
    api::{
        core::v1::{Pod, Service},
        discovery::v1::EndpointSlice,
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use serde::{Serialize, de::DeserializeOwned};

use super::{Failure, Fields, Found, Step};
use crate::lists::List;

/// A kind whose third field is read and one of whose fields is edited: those that its [`List`] names.
pub(crate) trait Typed: ListableResource + Metadata<Ty = ObjectMeta> + Serialize + DeserializeOwned {
    fn third(&self) -> Option<&str>;
    fn edit(&mut self, value: &str) -> Option<()>;
}

impl Typed for Service {
    fn third(&self) -> Option<&str> {
        self.spec.as_ref()?.cluster_ip.as_deref()
    }

    fn edit(&mut self, value: &str) -> Option<()> {
        self.spec.as_mut()?.internal_traffic_policy = Some(value.to_owned());
        Some(())
    }
}

impl Typed for EndpointSlice {
    fn third(&self) -> Option<&str> {
        self.endpoints.as_ref()?.first()?.node_name.as_deref()
    }

    fn edit(&mut self, value: &str) -> Option<()> {
        self.address_type = value.to_owned();
        Some(())
    }
}

impl Typed for Pod {
    fn third(&self) -> Option<&str> {
        self.spec.as_ref()?.node_name.as_deref()
    }

    fn edit(&mut self, value: &str) -> Option<()> {
        self.spec.as_mut()?.scheduler_name = Some(value.to_owned());
        Some(())
    }
}

pub(super) fn run<T: Typed>(list: &List, body: Vec<u8>, step: Step) -> Result<Found, Failure> {
    let mut typed: TypedList<T> = serde_json::from_slice(&body)?;
    let mut fields = Fields::new();
    for item in &mut typed.items {
        if step >= Step::Read {
            let metadata = item.metadata();
            fields.add([metadata.name.as_deref(), metadata.namespace.as_deref(), item.third()]);
        }
        if step >= Step::Edit {
            item.edit(list.value).ok_or("no field to edit")?;
        }
        black_box(item);
    }
    let mut found = Found { objects: typed.items.len(), fields: fields.sum(), list: Vec::new() };
    if step == Step::Encode {
        found.list.reserve(body.len() + body.len() / 8);
        serde_json::to_writer(&mut found.list, &typed)?;
    }
    Ok(found)
}
