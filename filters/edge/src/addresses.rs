//! Endpoints by the node they are on, in the three shapes that Kubernetes writes them: EndpointSlice v1 and v1beta1,
//! and Endpoints v1. Reads and cuts whole columns; keeps nothing.

use weir_filter::{Error, Object, Path, Rows};

/// The label of a slice that names its Service.
pub const SERVICE_LABEL: &str = "kubernetes.io/service-name";

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

    /// The name of the Service whose endpoints these are, in the object's own namespace.
    pub fn service(self, object: &Object<'_>) -> Option<String> {
        match self {
            Self::Slice(_) => object.label(SERVICE_LABEL),
            Self::Endpoints => Some(object.name()),
        }
    }

    /// Where the ready endpoints name their nodes; of a slice, all endpoints.
    pub fn nodes(self) -> &'static Path {
        match self {
            Self::Slice(nodes) => nodes,
            Self::Endpoints => &ADDRESSES,
        }
    }

    /// Cuts the endpoints on nodes that are not to be kept, and those on no node. Of an Endpoints the subsets go that
    /// have no address left. Says whether anything is left to list: a slice is always left, an Endpoints if it has a
    /// subset.
    pub fn cut(self, object: &mut Object<'_>, keep: impl Fn(&str) -> bool) -> Result<bool, Error> {
        match self {
            Self::Slice(nodes) => {
                cut_rows(object, nodes, &keep)?;
                Ok(true)
            }
            Self::Endpoints => {
                cut_rows(object, &ADDRESSES, &keep)?;
                cut_rows(object, &NOT_READY, &keep)?;
                let ready = object.lengths(&ADDRESSES);
                let subsets: Rows =
                    ready.into_iter().zip(object.lengths(&NOT_READY)).map(|(ready, not)| ready + not > 0).collect();
                object.retain(&SUBSETS, &subsets)?;
                Ok(!subsets.none())
            }
        }
    }
}

fn cut_rows(object: &mut Object<'_>, nodes: &Path, keep: &impl Fn(&str) -> bool) -> Result<(), Error> {
    let rows = object.column(nodes).rows(|node| node.is_some_and(keep));
    object.retain(nodes, &rows)
}
