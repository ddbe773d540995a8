//! Users and passwords of connections, as they are now: as text, in files that others replace, or
//! as the output of a program.
//!
//! A thread of the process reads the files and runs the program, so that neither delays a decision,
//! and the results are shared by all connections of the process.
//!
//! | file | purpose |
//! |---|---|
//! | `login` | a user and password |
//! | `command` | the program: its command line, its bounds, its output |
//! | `source` | where both come from; the files that contain them |
//! | `refresh` | when files are read and the program is run again |

pub(super) mod command;
pub(super) mod login;
mod refresh;
pub(super) mod source;

use std::collections::HashMap;
use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot, watch};
use tokio::time::{Instant, timeout};
use tollgate_telemetry::metrics::StoreMetrics;
use tracing::error;

use self::login::Login;
use self::source::{CredentialFileError, LoginSource};

/// Stack of the thread that reads the files and waits for the program.
const STACK_BYTES: usize = 256 * 1024;

/// The logins of a process by their sources, shared by the handles of all workers.
#[derive(Clone, Debug, Default)]
pub struct SharedLogins(Arc<Mutex<HashMap<LoginSource, Arc<Logins>>>>);

impl SharedLogins {
    /// Returns the logins of a source. The first call for a source that changes starts the thread
    /// that reads it.
    pub(super) fn of(&self, source: LoginSource, metrics: &Arc<StoreMetrics>) -> Arc<Logins> {
        let mut all = self.0.lock();
        let logins = all
            .entry(source)
            .or_insert_with_key(|source| Logins::start(source.clone(), Arc::clone(metrics)));
        Arc::clone(logins)
    }
}

/// Settings are equal whatever was read.
impl PartialEq for SharedLogins {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for SharedLogins {}

/// The current login of a source.
#[derive(Debug)]
pub(super) struct Logins {
    source: LoginSource,
    current: watch::Sender<CurrentLogin>,
    /// Notifies that a server refused the current login.
    refused: Arc<Notify>,
    /// Ends the thread when dropped.
    _alive: Option<oneshot::Sender<Infallible>>,
}

/// The last login of a source, and the reason why there is no newer one.
#[derive(Clone, Debug, Default)]
pub(super) struct CurrentLogin {
    pub(super) login: Option<Arc<Login>>,
    /// The time from which the login is no longer valid.
    valid_until: Option<Instant>,
    /// Error of the last attempt to replace it.
    error: Option<String>,
}

/// The reason why there is no valid login.
#[derive(Debug, thiserror::Error)]
pub(super) enum CredentialsError {
    #[error(transparent)]
    File(#[from] CredentialFileError),
    #[error("the credentials command has not ended yet")]
    NotYet,
    #[error("the credentials have expired")]
    Expired,
    /// The last run of the program failed, or the thread that runs it has not started.
    #[error("{0}")]
    Failed(String),
}

impl CurrentLogin {
    /// Returns `true` if there is a login, and it is valid at this time.
    fn is_valid(&self, now: Instant) -> bool {
        self.login.is_some() && self.valid_until.is_none_or(|until| now < until)
    }
}

impl Logins {
    fn start(source: LoginSource, metrics: Arc<StoreMetrics>) -> Arc<Self> {
        let (alive, ended) = oneshot::channel();
        let refused = Arc::<Notify>::default();
        let is_constant = source.is_constant();
        let first = CurrentLogin { login: source.text().map(Arc::new), ..CurrentLogin::default() };
        let current = watch::Sender::new(first);
        let logins = Arc::new(Self {
            source: source.clone(),
            current: current.clone(),
            refused: Arc::clone(&refused),
            _alive: (!is_constant).then_some(alive),
        });
        if !is_constant {
            let refreshing = refresh::keep(source, current.clone(), refused, metrics);
            if let Err(error) = start_thread(refreshing, ended) {
                error!(%error, "cannot start the thread for the credentials of Redis");
                current.send_modify(|current| current.error = Some(error.to_string()));
            }
        }
        logins
    }

    /// Returns the login for a new connection. Files are read now; a program is not run, but its
    /// first result is waited for, for this time.
    ///
    /// # Errors
    /// A file cannot be read, or there is no valid result of the program.
    pub(super) async fn current(&self, within: Duration) -> Result<Arc<Login>, CredentialsError> {
        if self.source.command.is_none() {
            return Ok(Arc::new(self.source.read()?));
        }
        let mut changes = self.current.subscribe();
        let is_known = |now: &CurrentLogin| now.login.is_some() || now.error.is_some();
        let Ok(result) = timeout(within, changes.wait_for(is_known)).await else {
            return Err(CredentialsError::NotYet);
        };
        let current = result.map(|now| now.clone()).unwrap_or_default();
        let is_valid = current.is_valid(Instant::now());
        let CurrentLogin { login, error, .. } = current;
        match login {
            Some(login) if is_valid => Ok(login),
            _ => Err(error.map_or(CredentialsError::Expired, CredentialsError::Failed)),
        }
    }

    /// Returns the last login that was read, without reading anything.
    pub(super) fn published(&self) -> Option<Arc<Login>> {
        self.current.borrow().login.clone()
    }

    /// Returns a receiver of changes.
    pub(super) fn changes(&self) -> watch::Receiver<CurrentLogin> {
        self.current.subscribe()
    }

    /// Returns the name of the user, if there is one and it is known.
    pub(super) fn user(&self) -> Option<String> {
        let published = self.published();
        let published = published.and_then(|login| login.user.clone());
        published.or_else(|| self.source.read().ok()?.user)
    }

    /// Records that a server refused a login, so that a program is run again before its result
    /// expires.
    pub(super) fn record_refusal(&self, login: &Arc<Login>) {
        if self.published().is_some_and(|current| current == *login) {
            self.refused.notify_one();
        }
    }
}

/// Runs a future on a thread of its own, until it or `ended` completes.
fn start_thread(
    refreshing: impl Future<Output = ()> + Send + 'static,
    ended: oneshot::Receiver<Infallible>,
) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let thread = std::thread::Builder::new().name("credentials".to_owned());
    thread.stack_size(STACK_BYTES).spawn(move || {
        runtime.block_on(async {
            tokio::select! {
                () = refreshing => {}
                _ = ended => {}
            }
        });
    })?;
    Ok(())
}
