//! The services of the workers, through which operations reach limiters and stores.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::grpc::service::Rls;
use crate::store::any::AnyStore;
use crate::store::clock::SystemClock;

/// A service, tied to the runtime on which it was created.
pub type WorkerService = Rls<AnyStore<SystemClock>>;

/// The services of all workers.
#[derive(Clone, Default)]
pub struct WorkerServices(Arc<Mutex<Vec<Weak<WorkerService>>>>);

impl WorkerServices {
    /// Adds a service.
    pub fn add(&self, service: &Arc<WorkerService>) {
        self.0.lock().push(Arc::downgrade(service));
    }

    /// Returns the services that still exist.
    pub fn all(&self) -> Vec<Arc<WorkerService>> {
        self.0.lock().iter().filter_map(Weak::upgrade).collect()
    }
}
