//! Settings of loans, the leased hits in the hands of clients.

use std::path::PathBuf;

use super::{Problems, SettingProblem};
use crate::descriptor::HashKey;
use crate::receipts::ReceiptKeys;

#[derive(Debug, clap::Args)]
#[group(skip)]
#[command(next_help_heading = "Loans")]
pub(super) struct Flags {
    /// File with one or two secrets, each on its own line, that sign the receipts of leased hits
    /// in the hands of clients: the first signs, both are valid. Read again when it changes. Must
    /// be the same for all replicas. Default: receipts are not signed, and clients are trusted.
    #[arg(long, env = "TOLLGATE_LOAN_KEY_FILE", value_name = "FILE")]
    loan_key_file: Option<PathBuf>,
}

/// Settings of loans.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoanSettings {
    /// The file with keys that sign receipts, and its keys.
    pub keys: Option<(PathBuf, Vec<HashKey>)>,
}

impl Flags {
    pub(super) fn resolve(self, problems: &mut Problems) -> LoanSettings {
        let read = |file: PathBuf| match ReceiptKeys::read(&file) {
            Ok(keys) => Some((file, keys)),
            Err(what) => {
                let what = format!("{}: {what}", file.display());
                problems.0.push(SettingProblem { flag: "--loan-key-file", what });
                None
            }
        };
        LoanSettings { keys: self.loan_key_file.and_then(read) }
    }
}
