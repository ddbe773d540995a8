//! The leases and exchanges of a domain: shared by all configurations of the process, so that
//! blocks survive an update of a listener, and that several listeners use the same.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Instant;

use tollgate_lease::holder::{HeldLeases, LookKind};

use crate::descriptor::Descriptor;
use crate::exchange::{CallResult, Exchanges};
use crate::host::MainThread;
use crate::pacer::{Pacer, Wake};

/// The holders of a process.
#[derive(Debug)]
pub(crate) struct Registry(Mutex<Vec<Weak<Holder>>>);

/// The holder of a domain's blocks.
#[derive(Debug)]
pub(crate) struct Holder {
    leases: HeldLeases<Descriptor>,
    /// Locked by the main thread only, or when a configuration ends.
    exchanges: Mutex<Exchanges>,
    drivers: Arc<Drivers>,
    pacer: Pacer,
    clock: fn() -> Instant,
}

/// The configurations of a holder, of which one calls the service.
#[derive(Default)]
struct Drivers {
    next: AtomicU64,
    list: Mutex<Vec<(u64, Box<dyn Wake>)>>,
}

impl std::fmt::Debug for Drivers {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Drivers").field("next", &self.next).finish_non_exhaustive()
    }
}

impl Wake for Arc<Drivers> {
    fn wake(&self) {
        // The newest one: after an update, the others end soon, and with them their calls.
        if let Some((_, driver)) = lock(&self.list).last() {
            driver.wake();
        }
    }
}

/// The part of a configuration in a holder. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Driver {
    holder: Arc<Holder>,
    number: u64,
}

impl Registry {
    /// Creates an empty registry.
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    /// Adds a configuration to the holder of a domain's blocks from a cluster.
    ///
    /// # Errors
    ///
    /// The system refuses a thread.
    pub(crate) fn join(
        &self,
        domain: &str,
        cluster: &str,
        wake: impl Wake,
        clock: fn() -> Instant,
    ) -> std::io::Result<Driver> {
        let mut holders = lock(&self.0);
        holders.retain(|holder| holder.strong_count() > 0);
        let is_of = |holder: &Arc<Holder>| lock(&holder.exchanges).is_of(domain, cluster);
        let found = holders.iter().filter_map(Weak::upgrade).find(is_of);
        let holder = match found {
            Some(holder) => holder,
            None => {
                let holder = Arc::new(Holder::new(domain, cluster, clock)?);
                holders.push(Arc::downgrade(&holder));
                holder
            }
        };
        let number = holder.drivers.next.fetch_add(1, Ordering::Relaxed);
        lock(&holder.drivers.list).push((number, Box::new(wake)));
        Ok(Driver { holder, number })
    }
}

impl Holder {
    fn new(domain: &str, cluster: &str, clock: fn() -> Instant) -> std::io::Result<Self> {
        let drivers = Arc::new(Drivers::default());
        Ok(Self {
            leases: HeldLeases::new(clock()),
            exchanges: Mutex::new(Exchanges::new(domain.to_owned(), cluster.to_owned())),
            pacer: Pacer::start(Arc::clone(&drivers), clock)?,
            drivers,
            clock,
        })
    }
}

impl Driver {
    /// Counts a request for a descriptor and takes a hit from a block.
    pub(crate) fn look(&self, descriptor: &Descriptor, now: Instant) -> LookKind {
        let look = self.holder.leases.take(descriptor, || descriptor.clone(), 1, now);
        if look.wants {
            self.holder.pacer.want();
        }
        look.kind
    }

    /// Returns the time.
    pub(crate) fn now(&self) -> Instant {
        (self.holder.clock)()
    }

    /// Makes an exchange if one is needed. Called on the main thread when it was woken.
    pub(crate) fn on_wake(&self, host: &mut impl MainThread) {
        let mut exchanges = lock(&self.holder.exchanges);
        exchanges.run(self.number, &self.holder.leases, host, self.now());
        self.holder.pacer.set_next_end(exchanges.next_end());
    }

    /// Records the response of an exchange. Called on the main thread.
    pub(crate) fn on_response(&self, id: u64, result: CallResult, host: &mut impl MainThread) {
        let mut exchanges = lock(&self.holder.exchanges);
        exchanges.on_response(self.number, id, result, host, self.now());
        self.holder.pacer.set_next_end(exchanges.next_end());
        if self.holder.leases.has_wants() {
            self.holder.pacer.want();
        }
    }

    #[cfg(test)]
    pub(crate) fn leases(&self) -> &HeldLeases<Descriptor> {
        &self.holder.leases
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        lock(&self.holder.drivers.list).retain(|(number, _)| *number != self.number);
        lock(&self.holder.exchanges).abandon(self.number, self.now());
        self.holder.pacer.want();
    }
}

/// Locks a mutex. A panic while it was locked has left its value in order, or at worst an exchange
/// without its answer.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
