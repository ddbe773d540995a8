//! The environment of a store: network, clock and randomness, of the system or of a simulation.
//!
//! Nothing here is on the path of a request but one comparison when the clock is read.

use std::fmt;
use std::io;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite};
use tollgate_core::algorithm::time::Timestamp;

use super::url::ServerAddress;
use crate::clock::{Clock as _, SystemClock};

/// The network, clock and randomness of a store.
#[derive(Clone, Default)]
pub enum Environment {
    /// The system's own.
    #[default]
    System,
    /// A simulation's.
    Simulated(Arc<dyn Simulation>),
}

/// A simulated network, clock and source of randomness, for tests that can be replayed.
pub trait Simulation: Send + Sync {
    /// Opens a stream to a server.
    fn open(&self, address: &ServerAddress) -> BoxFuture<'static, io::Result<BoxedStream>>;

    /// Returns the time of the process's clock.
    fn now(&self) -> Timestamp;

    /// Returns a random number from 0 to 1.
    fn random(&self) -> f64;
}

/// A stream of bytes in both directions.
pub trait NetworkStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> NetworkStream for S {}

/// A stream of a simulated network.
pub type BoxedStream = Box<dyn NetworkStream>;

impl Environment {
    /// Returns the time of the process's clock.
    pub(in crate::redis) fn now(&self) -> Timestamp {
        match self {
            Self::System => SystemClock.now(),
            Self::Simulated(simulation) => simulation.now(),
        }
    }

    /// Returns a random number from 0 to 1.
    pub(in crate::redis) fn random(&self) -> f64 {
        match self {
            Self::System => rand::random_range(0.0..=1.0),
            Self::Simulated(simulation) => simulation.random(),
        }
    }
}

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::System => f.write_str("System"),
            Self::Simulated(_) => f.write_str("Simulated"),
        }
    }
}

impl PartialEq for Environment {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::System, Self::System) => true,
            (Self::Simulated(own), Self::Simulated(others)) => Arc::ptr_eq(own, others),
            (Self::System, Self::Simulated(_)) | (Self::Simulated(_), Self::System) => false,
        }
    }
}

impl Eq for Environment {}
