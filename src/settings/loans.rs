//! Settings of loans, the leased hits in the hands of clients.

use std::path::PathBuf;
use std::time::Duration;

use super::{FlagError, Problems, parse};
use crate::descriptor::HashKey;
use crate::receipts::ReceiptKeys;
use crate::rlqs::QuotaOptions;

/// Bounds of the guard of RLQS.
const GUARD: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(5)];

#[derive(Debug, clap::Args)]
#[group(skip)]
#[command(next_help_heading = "Loans")]
pub(super) struct Flags {
    /// File with one or two secrets, each on its own line, that sign the receipts of leased hits
    /// in the hands of clients: the first signs, both are valid. Read again when it changes. Must
    /// be the same for all replicas. Default: receipts are not signed, and clients are trusted.
    #[arg(long, env = "TOLLGATE_LOAN_KEY_FILE", value_name = "FILE")]
    loan_key_file: Option<PathBuf>,
    /// RLQS: time within which a proxy must have received the hits that were charged for it, from
    /// 1s to 5s. Assignments end that much before their window does, and a proxy that acknowledges
    /// later is disconnected.
    #[arg(long, env = "TOLLGATE_RLQS_GUARD", value_name = "DURATION", default_value = "2s", value_parser = guard)]
    rlqs_guard: Duration,
    /// RLQS: `on` or `off`. Give back hits that a proxy held and did not admit. Set to `off` if
    /// another proxy between them ends HTTP/2 connections: it acknowledges what it has not
    /// delivered yet.
    #[arg(long, env = "TOLLGATE_RLQS_RETURN", value_name = "STATE", default_value = "on", action = clap::ArgAction::Set, value_parser = on_or_off)]
    rlqs_return: bool,
}

fn guard(text: &str) -> Result<Duration, FlagError> {
    let [shortest, longest] = GUARD;
    let guard = parse::duration(text)?;
    let is_bounded = (shortest..=longest).contains(&guard);
    is_bounded.then_some(guard).ok_or_else(|| FlagError::unexpected("from 1s to 5s", text))
}

fn on_or_off(text: &str) -> Result<bool, FlagError> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(FlagError::unexpected("on or off", text)),
    }
}

/// Settings of loans.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoanSettings {
    /// The file with keys that sign receipts, and its keys.
    pub keys: Option<(PathBuf, Vec<HashKey>)>,
    /// Options of RLQS streams.
    pub quotas: QuotaOptions,
}

impl Flags {
    pub(super) fn resolve(self, problems: &mut Problems) -> LoanSettings {
        let quotas = QuotaOptions { guard: self.rlqs_guard, returns: self.rlqs_return };
        let mut keys = None;
        if let Some(file) = self.loan_key_file {
            match ReceiptKeys::read(&file) {
                Ok(read) => keys = Some((file, read)),
                Err(error) => {
                    problems.add("--loan-key-file", format_args!("{}: {error}", file.display()));
                }
            }
        }
        LoanSettings { keys, quotas }
    }
}
