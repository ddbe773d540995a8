//! Repeated reading of files and repeated runs of the program, before their results expire.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, sleep_until};
use tollgate_core::backoff::Backoff;
use tollgate_telemetry::metrics::StoreMetrics;
use tracing::{info, warn};

use super::CurrentLogin;
use super::command::{CredentialsCommand, PrintedLogin, RunError};
use super::source::LoginSource;

/// Interval at which files are read. A change is used once two readings agree, so that a file is
/// not used while it is being written, nor a user without the password that is written with it.
const READ_EVERY: Duration = Duration::from_millis(250);
/// Part of the validity of credentials after which the program is run again, from the first to the
/// second by chance, so that the replicas of a service do not all run it at once.
const REFRESH_AFTER: (f64, f64) = (0.7, 0.8);
/// Minimum interval between runs of the program, and that after a success if the credentials have
/// no end.
const SHORTEST_INTERVAL: Duration = Duration::from_secs(1);
const WITHOUT_EXPIRY: Duration = Duration::from_secs(60);
/// Longest wait after runs that failed, or whose credentials a server refused.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// Keeps the login of a source up to date, forever.
pub(super) async fn keep(
    source: LoginSource,
    current: watch::Sender<CurrentLogin>,
    refused: Arc<Notify>,
    metrics: Arc<StoreMetrics>,
) {
    match &source.command {
        Some(command) => run_again(command, &current, &refused, &metrics).await,
        None => read_again(&source, &current).await,
    }
}

/// Reads files and publishes each change.
async fn read_again(source: &LoginSource, current: &watch::Sender<CurrentLogin>) {
    let mut ticks = interval(READ_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut last = None;
    loop {
        ticks.tick().await;
        match source.read() {
            Ok(login) => {
                let is_settled = last.as_ref() == Some(&login);
                let is_new = current.borrow().login.as_deref() != Some(&login);
                if is_settled && is_new {
                    let login = Some(Arc::new(login.clone()));
                    current.send_replace(CurrentLogin { login, ..CurrentLogin::default() });
                }
                last = Some(login);
            }
            Err(error) => {
                let text = error.to_string();
                // Before the first login, it is the error of the connections.
                let is_used = current.borrow().login.is_some();
                if is_used && current.borrow().error.as_ref() != Some(&text) {
                    warn!(
                        error = text,
                        "cannot read the credentials of Redis; the last ones remain in use"
                    );
                    current.send_if_modified(|current| {
                        current.error = Some(text);
                        false
                    });
                }
            }
        }
    }
}

/// Runs the program and publishes each change.
async fn run_again(
    command: &CredentialsCommand,
    current: &watch::Sender<CurrentLogin>,
    refused: &Notify,
    metrics: &StoreMetrics,
) {
    let mut failures = Backoff::new(SHORTEST_INTERVAL, LONGEST_WAIT);
    let mut refusals = failures;
    loop {
        let begun = Instant::now();
        let wait = match command.run().await {
            Ok(printed) => {
                failures.reset();
                let wait = wait_after(&printed, rand::random_range(0.0..=1.0));
                if publish(command, current, printed, begun) {
                    refusals.reset();
                }
                wait
            }
            Err(error) => {
                metrics.credentials_failures.inc();
                report(command, current, &error);
                failures.next(rand::random_range(0.0..=1.0))
            }
        };
        let due = begun.checked_add(wait).unwrap_or(begun);
        tokio::select! {
            () = sleep_until(due.max(earliest(Instant::now(), begun))) => {}
            () = refused.notified() => {
                sleep(refusals.next(rand::random_range(0.0..=1.0))).await;
            }
        }
    }
}

/// Returns the earliest time of the next run.
fn earliest(now: Instant, begun: Instant) -> Instant {
    begun.checked_add(SHORTEST_INTERVAL).unwrap_or(now).max(now)
}

/// Returns the time from the start of a run to that of the next one.
fn wait_after(printed: &PrintedLogin, random: f64) -> Duration {
    let (first, last) = REFRESH_AFTER;
    let part = random.clamp(0.0, 1.0).mul_add(last - first, first);
    printed.life.map_or(WITHOUT_EXPIRY, |life| life.mul_f64(part)).max(SHORTEST_INTERVAL)
}

/// Publishes the result of a run that began at this time. Returns `true` if the login has changed.
fn publish(
    command: &CredentialsCommand,
    current: &watch::Sender<CurrentLogin>,
    printed: PrintedLogin,
    begun: Instant,
) -> bool {
    let PrintedLogin { login, life } = printed;
    if current.borrow().error.is_some() {
        info!(command = command.program(), "the credentials command works again");
    }
    let valid_until = life.and_then(|life| begun.checked_add(life));
    let is_new = current.borrow().login.as_deref() != Some(&login);
    let login = Some(Arc::new(login));
    // Connections that wait for a result are waiting for its validity as well.
    current.send_replace(CurrentLogin { login, valid_until, error: None });
    is_new
}

/// Logs the error of a run if it is a new one. The last result remains in use while it is valid.
fn report(command: &CredentialsCommand, current: &watch::Sender<CurrentLogin>, error: &RunError) {
    let text = format!("credentials command `{}`: {error}", command.program());
    if current.borrow().error.as_ref() == Some(&text) {
        return;
    }
    let now = Instant::now();
    if current.borrow().is_valid(now) {
        let until = current.borrow().valid_until;
        let remaining = until.map(|until| until.saturating_duration_since(now));
        warn!(
            error = text,
            valid_for_seconds =
                remaining.map(|remaining| remaining.as_micros().div_ceil(1_000_000)),
            "no new credentials for Redis; the last ones are used while they are valid"
        );
    } else {
        warn!(error = text, "no new credentials for Redis, and no valid ones");
    }
    current.send_modify(|current| current.error = Some(text));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redis::credentials::login::Login;
    use crate::redis::credentials::source::Credential;

    fn printed(life: Option<u64>) -> PrintedLogin {
        PrintedLogin { login: Login::default(), life: life.map(Duration::from_secs) }
    }

    #[test]
    fn the_program_is_run_again_before_the_credentials_expire() {
        let seconds = |life, random| wait_after(&printed(life), random).as_secs();
        assert_eq!([seconds(Some(900), 0.0), seconds(Some(900), 1.0)], [630, 720]);
        assert_eq!(seconds(Some(1), 0.0), 1, "at most once a second");
        assert_eq!(seconds(None, 0.5), 60);
    }

    #[tokio::test(start_paused = true)]
    async fn a_file_is_used_once_two_readings_agree() {
        let directory = std::env::temp_dir().join(format!("tollgate-files-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let path = directory.join("password");
        std::fs::write(&path, "first").unwrap();
        let password = Some(Credential::File(path.clone()));
        let source = LoginSource { password, ..LoginSource::default() };
        let current = watch::Sender::new(CurrentLogin::default());
        let mut changes = current.subscribe();
        let password_now =
            || current.borrow().login.as_ref().and_then(|login| login.password.clone());
        let reading = read_again(&source, &current);
        let changing = async {
            changes.changed().await.unwrap();
            assert_eq!(password_now().as_deref(), Some("first"));
            for torn in ["", "sec"] {
                std::fs::write(&path, torn).unwrap();
                sleep(READ_EVERY).await;
            }
            std::fs::write(&path, "second").unwrap();
            changes.changed().await.unwrap();
            assert_eq!(password_now().as_deref(), Some("second"), "no part of it");
            std::fs::remove_file(&path).unwrap();
            sleep(READ_EVERY * 4).await;
            assert!(!changes.has_changed().unwrap(), "connections keep what they have");
        };
        tokio::select! {
            // Each file is read once before it changes at the same time.
            biased;
            () = reading => {}
            () = changing => {}
        }
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
