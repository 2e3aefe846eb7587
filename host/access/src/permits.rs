//! The only place that makes a [`Permit`]: after the review of the request that it is made of, or for a store that is read with its
//! client's own credential.

use http::HeaderMap;
use weir_kube::{Encoding, RequestInfo, RequestKind, Verb};
use weir_store::StoreReader;

use crate::Access;
use crate::caller::{Caller, hash_of_headers};
use crate::error::AccessError;
use weir_view::Permit;
use weir_wire::headers::own_headers;

impl Access {
    /// Reviews a read that a view may serve. `None`: no view serves it to this client, and the API server must answer. A client
    /// without permission opens no view.
    pub async fn permit(&self, caller: &Caller, component: &str, request: &RequestInfo) -> Option<Permit> {
        self.reviewed(caller, component, request).await.ok().flatten()
    }

    /// Reviews a read as [`Access::permit`] does, and returns why there was no review.
    ///
    /// # Errors
    /// The API server gives no answer.
    pub async fn reviewed(
        &self,
        caller: &Caller,
        component: &str,
        request: &RequestInfo,
    ) -> Result<Option<Permit>, AccessError> {
        let (Some(views), Some(resource)) = (&self.views, request.resource()) else { return Ok(None) };
        if !self.authenticate(caller).await {
            return Ok(None);
        }
        let reader = views.reader(caller.identity(), caller.headers(), component, resource, || caller.reader());
        let Some(reader) = reader else { return Ok(None) };
        // Objects that are read as the node or as a certificate's user are for this identity alone.
        let is_reviewed = matches!(reader, StoreReader::Daemon | StoreReader::Client(_));
        if is_reviewed && !self.may_read_on(caller, request).await? {
            return Ok(None);
        }
        Ok(Permit::reviewed(reader, request))
    }

    /// Whether the API server refuses a client what it was permitted. False if it gives no answer. What it has said of the caller
    /// holds for the request that was made then.
    pub async fn is_revoked(&self, caller: &Caller, request: &RequestInfo) -> bool {
        let caller = caller.without_account();
        !self.authenticate(&caller).await || matches!(self.may_read_on(&caller, request).await, Ok(false))
    }

    /// The permit of a watch of a private store, and the headers with which its client delegates its credential to that store. All
    /// of them are in the name of the store.
    pub async fn own(
        &self,
        caller: &Caller,
        headers: &HeaderMap,
        request: &RequestInfo,
        encoding: Encoding,
    ) -> Option<(Permit, HeaderMap)> {
        // It names whose share the store counts in, and what is open in the store is not for a token that was refused since.
        if !self.authenticate(caller).await {
            return None;
        }
        let credential = own_headers(headers, caller.identity());
        let of_identity = StoreReader::of(caller.identity(), caller.headers());
        let reader = of_identity.unwrap_or_else(|| StoreReader::Client(hash_of_headers(&credential)));
        Some((Permit::own(reader, request, encoding)?, credential))
    }

    /// Whether a caller may read what it asks for. A list is followed by a watch: both are reviewed at once, so that a client
    /// that has its list before the API server is gone gets its watch, too.
    async fn may_read_on(&self, caller: &Caller, request: &RequestInfo) -> Result<bool, AccessError> {
        let mut watch = request.clone();
        match &mut watch.kind {
            RequestKind::Resource(resource) if resource.verb == Verb::List => resource.verb = Verb::Watch,
            _ => return self.may_read(caller, request).await,
        }
        let (may_list, _) = tokio::join!(self.may_read(caller, request), self.may_read(caller, &watch));
        may_list
    }
}
