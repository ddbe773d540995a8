//! The services of the workers, through which operations reach limiters and stores.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::grpc::service::Rls;
use crate::store::layer::Layered;

/// A service over a store, tied to the runtime on which it was created.
pub type WorkerService<B> = Rls<Layered<B>>;

/// The services of all workers.
#[derive(Clone)]
pub struct WorkerServices<B>(Arc<Mutex<Vec<Weak<WorkerService<B>>>>>);

impl<B> Default for WorkerServices<B> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<B> WorkerServices<B> {
    /// Adds a service.
    pub fn register(&self, service: &Arc<WorkerService<B>>) {
        self.0.lock().push(Arc::downgrade(service));
    }

    /// Returns the services that still exist.
    pub fn all(&self) -> Vec<Arc<WorkerService<B>>> {
        self.0.lock().iter().filter_map(Weak::upgrade).collect()
    }
}
