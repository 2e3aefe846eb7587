//! Endpoints by the node they are on, in the three shapes that Kubernetes writes them: EndpointSlice v1 and v1beta1,
//! and Endpoints v1. Reads and cuts whole columns; keeps nothing.

use weir_filter::{Error, Object, Path, Rows, StringSet, cluster};

/// The label of a slice that names its Service.
pub const SERVICE_LABEL: &str = "kubernetes.io/service-name";

static SERVICE: Path = Path::new("metadata.labels['kubernetes.io/service-name']");
static NAME: Path = Path::new("metadata.name");
static SLICE_NODES: Path = Path::new("endpoints[*].nodeName");
static SLICE_BETA_NODES: Path = Path::new("endpoints[*].topology['kubernetes.io/hostname']");
static SUBSETS: Path = Path::new("subsets[*]");
static ADDRESSES: Path = Path::new("subsets[*].addresses[*].nodeName");
static NOT_READY: Path = Path::new("subsets[*].notReadyAddresses[*].nodeName");

/// An object that lists a Service's endpoints, and how it does.
#[derive(Clone, Copy, Debug)]
pub enum Shape {
    /// An EndpointSlice, and where its endpoints name their nodes.
    Slice(&'static Path),
    /// An Endpoints.
    Endpoints,
}

impl Shape {
    /// The shape of this object; none if it is another kind.
    pub fn of(object: &Object<'_>) -> Option<Self> {
        match (object.kind().as_str(), object.api_version().as_str()) {
            ("EndpointSlice", "discovery.k8s.io/v1") => Some(Self::Slice(&SLICE_NODES)),
            ("EndpointSlice", "discovery.k8s.io/v1beta1") => Some(Self::Slice(&SLICE_BETA_NODES)),
            ("Endpoints", "v1") => Some(Self::Endpoints),
            _ => None,
        }
    }

    /// The Service whose endpoints these are, looked up.
    pub fn service(self, object: &Object<'_>) -> Option<Object<'static>> {
        let name = match self {
            Self::Slice(_) => &SERVICE,
            Self::Endpoints => &NAME,
        };
        cluster::referent("services", object, name)
    }

    /// Where the ready endpoints name their nodes; of a slice, all endpoints.
    pub fn nodes(self) -> &'static Path {
        match self {
            Self::Slice(nodes) => nodes,
            Self::Endpoints => &ADDRESSES,
        }
    }

    /// Cuts the endpoints on other nodes than these, and those on no node. Of an Endpoints the subsets go that
    /// have no address left. Says whether anything is left to list: a slice is always left, an Endpoints if it has a
    /// subset.
    pub fn cut(self, object: &mut Object<'_>, nodes: &StringSet) -> Result<bool, Error> {
        match self {
            Self::Slice(names) => {
                object.retain_in(names, nodes)?;
                Ok(true)
            }
            Self::Endpoints => {
                object.retain_in(&ADDRESSES, nodes)?;
                object.retain_in(&NOT_READY, nodes)?;
                let ready = object.lengths(&ADDRESSES);
                let subsets: Rows =
                    ready.into_iter().zip(object.lengths(&NOT_READY)).map(|(ready, not)| ready + not > 0).collect();
                object.retain(&SUBSETS, &subsets)?;
                Ok(!subsets.none())
            }
        }
    }
}
