//! Endpoints grouped by node, in the three formats that Kubernetes has: EndpointSlice v1 and v1beta1, and Endpoints v1.
//! Reads and edits whole columns, and keeps no state.

use weir_filter::{Error, Object, Path, Rows, StringSet, cluster};

/// The label in which a slice names its Service.
pub const SERVICE_LABEL: &str = "kubernetes.io/service-name";

static SERVICE: Path = Path::new("metadata.labels['kubernetes.io/service-name']");
static NAME: Path = Path::new("metadata.name");
static SLICE_NODES: Path = Path::new("endpoints[*].nodeName");
static SLICE_BETA_NODES: Path = Path::new("endpoints[*].topology['kubernetes.io/hostname']");
static SUBSETS: Path = Path::new("subsets[*]");
static ADDRESSES: Path = Path::new("subsets[*].addresses[*].nodeName");
/// The path at which the addresses of an Endpoints object that are not ready name their nodes.
pub static NOT_READY: Path = Path::new("subsets[*].notReadyAddresses[*].nodeName");

/// The format of an object that lists a Service's endpoints.
#[derive(Clone, Copy, Debug)]
pub enum Format {
    /// An EndpointSlice, with the path at which its endpoints name their nodes.
    Slice(&'static Path),
    /// An Endpoints object.
    Endpoints,
}

impl Format {
    /// Returns the format of this object, or none if it is of another kind.
    pub fn of(object: &Object<'_>) -> Option<Self> {
        match (object.kind().as_str(), object.api_version().as_str()) {
            ("EndpointSlice", "discovery.k8s.io/v1") => Some(Self::Slice(&SLICE_NODES)),
            ("EndpointSlice", "discovery.k8s.io/v1beta1") => Some(Self::Slice(&SLICE_BETA_NODES)),
            ("Endpoints", "v1") => Some(Self::Endpoints),
            _ => None,
        }
    }

    /// Looks up the Service of these endpoints.
    pub fn service(self, object: &Object<'_>) -> Option<Object<'static>> {
        let name = match self {
            Self::Slice(_) => &SERVICE,
            Self::Endpoints => &NAME,
        };
        cluster::referent("services", object, name)
    }

    /// Returns the path at which the endpoints name their nodes: all endpoints of a slice, the ready ones of an
    /// Endpoints object.
    pub fn nodes(self) -> &'static Path {
        match self {
            Self::Slice(nodes) => nodes,
            Self::Endpoints => &ADDRESSES,
        }
    }

    /// Removes the endpoints that are on other nodes or on no node. Removes the subsets of an Endpoints object that
    /// have no address left. Returns whether the object still lists something: always for a slice, and for an Endpoints
    /// object if it has a subset.
    pub fn cut(self, object: &mut Object<'_>, nodes: &StringSet) -> Result<bool, Error> {
        object.retain_in(self.nodes(), nodes)?;
        if let Self::Slice(_) = self {
            return Ok(true);
        }
        object.retain_in(&NOT_READY, nodes)?;
        drop_empty_subsets(object)
    }

    /// Like [`Format::cut`], with a test of each endpoint's node.
    pub fn cut_by(self, object: &mut Object<'_>, keep: impl Fn(Option<&str>) -> bool) -> Result<bool, Error> {
        let ready = object.column(self.nodes()).rows(&keep);
        let not_ready = match self {
            Self::Slice(_) => Rows::default(),
            Self::Endpoints => object.column(&NOT_READY).rows(&keep),
        };
        self.cut_rows(object, &ready, &not_ready)
    }

    /// Like [`Format::cut`], with the rows to keep: of [`Format::nodes`], and of the addresses of an Endpoints object
    /// that are not ready.
    pub fn cut_rows(self, object: &mut Object<'_>, keep: &Rows, not_ready: &Rows) -> Result<bool, Error> {
        object.retain(self.nodes(), keep)?;
        if let Self::Slice(_) = self {
            return Ok(true);
        }
        object.retain(&NOT_READY, not_ready)?;
        drop_empty_subsets(object)
    }
}

/// Removes the subsets without addresses from an Endpoints object. Returns whether one is left.
fn drop_empty_subsets(object: &mut Object<'_>) -> Result<bool, Error> {
    let ready = object.lengths(&ADDRESSES);
    let subsets: Rows = ready.into_iter().zip(object.lengths(&NOT_READY)).map(|(ready, not)| ready + not > 0).collect();
    object.retain(&SUBSETS, &subsets)?;
    Ok(!subsets.none())
}
