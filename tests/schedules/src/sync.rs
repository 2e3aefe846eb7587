//! `weir_process::sync` with the locks and atomics of shuttle.

pub(crate) use shuttle::sync::{Mutex, MutexGuard, PoisonError, atomic};

/// A value that is published, as `tokio::sync::watch` has it: changed under its lock.
pub(crate) mod watch {
    use std::sync::Arc;

    use super::{Mutex, MutexGuard};

    #[derive(Debug)]
    pub(crate) struct Sender<T>(Arc<Mutex<T>>);

    pub(crate) struct Receiver<T>(Arc<Mutex<T>>);

    impl<T> Sender<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(Arc::new(Mutex::new(value)))
        }

        pub(crate) fn send_if_modified(&self, change: impl FnOnce(&mut T) -> bool) -> bool {
            change(&mut self.0.lock().unwrap())
        }

        pub(crate) fn subscribe(&self) -> Receiver<T> {
            Receiver(self.0.clone())
        }
    }

    impl<T> Receiver<T> {
        pub(crate) fn borrow(&self) -> MutexGuard<'_, T> {
            self.0.lock().unwrap()
        }
    }
}
