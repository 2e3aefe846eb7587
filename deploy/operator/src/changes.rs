//! A signal that something changed, for any number of readers. Signals that nobody has read yet are one.

use std::sync::Arc;

use futures_util::Stream;
use futures_util::stream::unfold;
use tokio::sync::watch;

/// The signal. Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Changes(Arc<watch::Sender<()>>);

impl Changes {
    /// Something changed.
    pub(crate) fn signal(&self) {
        self.0.send_replace(());
    }

    /// The changes from now on.
    pub(crate) fn stream(&self) -> impl Stream<Item = ()> + Send + 'static + use<> {
        unfold(self.0.subscribe(), |mut changed| async {
            changed.changed().await.ok()?;
            Some(((), changed))
        })
    }
}
