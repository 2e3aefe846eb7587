//! The only place that makes a [`Permit`]: after the review of the request that it is made of.

use weir_kube::{RequestInfo, RequestKind, Verb};
use weir_store::StoreReader;

use crate::Access;
use crate::caller::Caller;
use crate::error::AccessError;
use weir_view::Permit;

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
