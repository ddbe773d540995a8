//! Rights on the admin port: tokens from files, loaded at startup and reloaded when the files
//! change.

use std::path::Path;
use std::sync::Arc;

use tracing::{error, info, warn};

use crate::admin::rights::{AdminRights, Right, Token};
use crate::bounded_file;
use crate::settings::AdminSettings;
use crate::watch;

/// The contents of the files, or the errors from reading them.
type RightsFiles = Vec<Result<String, UnreadableTokens>>;

/// Reason why a file of tokens cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path}: cannot be read: {reason}")]
struct UnreadableTokens {
    path: String,
    reason: String,
}

/// Tokens in force, with the file contents that they were parsed from.
pub(super) struct Admission {
    settings: AdminSettings,
    contents: RightsFiles,
    /// A warning about tokens that others can read. The log begins after the files are loaded.
    warning: Option<String>,
    pub(super) rights: Arc<AdminRights>,
}

impl Admission {
    /// Loads the tokens. If neither tokens nor client certificates are configured, every client of
    /// a loopback port has all rights, and clients of a port reachable from other machines have
    /// none.
    ///
    /// # Errors
    /// All problems with the files.
    pub(super) fn load(settings: &AdminSettings, is_loopback: bool) -> Result<Self, Vec<String>> {
        let contents = read(settings);
        let tokens = tokens(settings, &contents)?;
        let rights = if settings.is_open() && is_loopback {
            AdminRights::of_loopback(settings.open_pages)
        } else {
            AdminRights::of_tokens(tokens, settings.open_pages)
        };
        let warning = warning(settings, is_loopback);
        Ok(Self { settings: settings.clone(), contents, warning, rights: Arc::new(rights) })
    }

    /// Logs the warning.
    pub(super) fn announce(&self) {
        self.warning.iter().for_each(|warning| warn!("{warning}"));
    }

    /// Applies changes, forever. Invalid files are logged, and the current tokens stay in force.
    pub(super) async fn follow(self) {
        let Self { settings, contents, rights, .. } = self;
        if settings.token_file.is_none() && settings.read_token_file.is_none() {
            return;
        }
        let files = settings.clone();
        watch::watch(
            contents,
            move || read(&files),
            |contents| match tokens(&settings, &contents) {
                Ok(tokens) => {
                    rights.replace(tokens);
                    info!("tokens reloaded");
                }
                Err(problems) => {
                    let problems = problems.join("; ");
                    error!(problems, "token reload failed; current tokens remain in force");
                }
            },
        )
        .await;
    }
}

/// Returns a warning if others can read tokens on the network.
fn warning(settings: &AdminSettings, is_loopback: bool) -> Option<String> {
    let is_plain = !is_loopback && settings.tls.is_none() && files(settings).next().is_some();
    is_plain.then(|| {
        "--admin-listen: tokens are sent over plain HTTP and can be intercepted; set \
         --admin-tls-cert and --admin-tls-key, or listen on 127.0.0.1"
            .to_owned()
    })
}

/// Returns the configured files, each with the name and the right of its tokens without a name.
fn files(settings: &AdminSettings) -> impl Iterator<Item = (&Path, &'static str, Right)> {
    let write = settings.token_file.iter().map(|path| (path.as_path(), "writer", Right::Write));
    let read = settings.read_token_file.iter().map(|path| (path.as_path(), "reader", Right::Read));
    write.chain(read)
}

fn read(settings: &AdminSettings) -> RightsFiles {
    let texts = files(settings).map(|(path, ..)| {
        bounded_file::read_text(path).map_err(|error| UnreadableTokens {
            path: path.display().to_string(),
            reason: error.to_string(),
        })
    });
    texts.collect()
}

fn tokens(settings: &AdminSettings, contents: &RightsFiles) -> Result<Vec<Token>, Vec<String>> {
    let mut tokens = Vec::new();
    let mut problems = Vec::new();
    for ((path, unnamed, right), text) in files(settings).zip(contents) {
        match text.as_ref().map(|text| Token::read(text, unnamed, right)) {
            Ok(Ok(read)) => tokens.extend(read),
            Ok(Err(invalid)) => problems.push(format!("{}: {invalid}", path.display())),
            Err(unreadable) => problems.push(unreadable.to_string()),
        }
    }
    if problems.is_empty() { Ok(tokens) } else { Err(problems) }
}
