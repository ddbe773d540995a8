//! The operations on this process, for the admin port and the commands of operators.

use std::sync::Arc;

use jiff::Timestamp;
use rustix::system::uname;

use super::parts::ProcessParts;
use super::serving::Serving;
use crate::operations::denial_sync::DenialSync;
use crate::operations::policies::{Installer, PolicyReloader};
use crate::operations::replicas::ReplicaDirectory;
use crate::operations::workers::WorkerService;
use crate::operations::{Backend, Operations};
use crate::settings::{PolicySettings, Settings};

/// Returns the operations over the parts of the process.
pub(super) fn operations<B: Backend>(
    settings: &Settings,
    shared: &ProcessParts<B>,
    serving: &Serving<B>,
    service: &Arc<WorkerService<B>>,
    installer: &Installer,
    denial_sync: &DenialSync<B>,
) -> Operations<B> {
    Operations {
        service: Arc::clone(service),
        services: serving.services.clone(),
        reports: shared.stores.reports().clone(),
        cached_for: shared.stores.cached_for(),
        bounds: settings.limits.request,
        reloads: settings.xds.is_none().then(|| reloader(&settings.policy)),
        installer: installer.clone(),
        denial_sync: denial_sync.clone(),
        replicas: ReplicaDirectory {
            id: Arc::clone(shared.stores.id()),
            name: uname().nodename().to_string_lossy().into(),
            begun: Timestamp::now(),
            process: Arc::clone(&shared.process),
            service: Arc::clone(service),
            rates: Arc::clone(&shared.observation.rates),
            fetched: Arc::default(),
            is_registered: shared.stores.sends_heartbeats(),
        },
    }
}

/// Returns the reload of the configured files.
fn reloader(settings: &PolicySettings) -> PolicyReloader {
    PolicyReloader { places: settings.places.clone(), options: settings.options }
}
