//! The keys that sign receipts of loans: read at startup, and replaced when their file changes.

use tracing::{error, info};

use crate::receipts::ReceiptKeys;
use crate::settings::LoanSettings;
use crate::watch;

/// The keys in use, and the file that they are from.
#[derive(Clone)]
pub(super) struct LoanKeys {
    settings: LoanSettings,
    /// The keys, shared by all services.
    pub(super) keys: ReceiptKeys,
}

impl LoanKeys {
    pub(super) fn new(settings: &LoanSettings) -> Self {
        let keys = settings.keys.as_ref().map(|(_, keys)| ReceiptKeys::new(keys));
        Self { settings: settings.clone(), keys: keys.unwrap_or_default() }
    }

    /// Applies changes, forever; returns at once if there is no file. An invalid file is logged,
    /// and the current keys stay in use.
    pub(super) async fn follow(self) {
        let Some((file, known)) = self.settings.keys else { return };
        let keys = self.keys;
        watch::watch(
            Ok(known),
            move || ReceiptKeys::read(&file),
            |read| match read {
                Ok(read) => {
                    keys.replace(&read);
                    info!("loan keys reloaded");
                }
                Err(problem) => {
                    let problem = problem.to_string();
                    error!(problem, "loan key reload failed; current keys remain in use");
                }
            },
        )
        .await;
    }
}
