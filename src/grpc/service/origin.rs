//! Callers: the domains that they may use, the memory of their calls, their timeouts.

use std::sync::Arc;
use std::time::Duration;

use super::Rls;
use crate::grpc::response::Receiver;
use crate::grpc::rights::DomainRights;
use crate::http2::{Budget, CallAccount};

/// The caller of a call.
#[derive(Clone, Copy, Debug)]
pub struct Caller<'a> {
    /// Domains that it may use.
    pub rights: &'a DomainRights,
    /// Account of its connection, to which large requests are charged.
    pub account: &'a CallAccount,
    /// Its timeout; `None` for the service's own.
    pub time: Option<Duration>,
    /// Its kind, by which its answers differ.
    pub receiver: Receiver,
}

/// The accounts that callers over HTTP share.
pub(super) struct HttpAccounts {
    callers: CallAccount,
    gateways: CallAccount,
}

impl HttpAccounts {
    /// Creates accounts of at most a quarter of a budget each.
    pub(super) fn of(budget: &Arc<Budget>) -> Self {
        let account = || CallAccount::new(Arc::clone(budget));
        Self { callers: account(), gateways: account() }
    }
}

impl<S> Rls<S> {
    /// Returns a caller over HTTP, which does not identify clients: all have the same rights, and
    /// share one account.
    pub fn http_caller(&self) -> Caller<'_> {
        let receiver = Receiver::Caller;
        Caller {
            rights: &DomainRights::All,
            account: &self.http_accounts.callers,
            time: None,
            receiver,
        }
    }

    /// Returns a gateway over HTTP: as [`http_caller`](Self::http_caller), with an account that
    /// other callers cannot use up.
    pub fn http_gateway(&self) -> Caller<'_> {
        Caller { account: &self.http_accounts.gateways, ..self.http_caller() }
    }
}
