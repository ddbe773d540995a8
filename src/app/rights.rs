//! Rights on the admin port: tokens from files, loaded at startup and reloaded when the files
//! change.

use std::path::Path;
use std::sync::Arc;

use tracing::{error, info};

use crate::admin::rights::{AdminRights, Right, Token};
use crate::settings::AdminSettings;
use crate::watch;

/// Maximum size of a token file in bytes.
const MAX_BYTES: usize = 256 * 1024;

/// The contents of the files, or the errors from reading them.
type RightsFiles = Vec<Result<String, String>>;

/// Tokens in force, with the file contents that they were parsed from.
pub(super) struct Admission {
    settings: AdminSettings,
    contents: RightsFiles,
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
        Ok(Self { settings: settings.clone(), contents, rights: Arc::new(rights) })
    }

    /// Applies changes, forever. Invalid files are logged, and the current tokens stay in force.
    pub(super) async fn follow(self) {
        let Self { settings, contents, rights } = self;
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

fn read(settings: &AdminSettings) -> RightsFiles {
    let text = |path: &Path| match std::fs::read_to_string(path) {
        Ok(text) if text.len() > MAX_BYTES => {
            Err(format!("{}: more than {MAX_BYTES} bytes", path.display()))
        }
        Ok(text) => Ok(text),
        Err(error) => Err(format!("{}: cannot be read: {error}", path.display())),
    };
    [&settings.token_file, &settings.read_token_file]
        .into_iter()
        .flatten()
        .map(|path| text(path))
        .collect()
}

fn tokens(settings: &AdminSettings, contents: &RightsFiles) -> Result<Vec<Token>, Vec<String>> {
    let files = [
        (&settings.token_file, "writer", Right::Write),
        (&settings.read_token_file, "reader", Right::Read),
    ];
    let files = files
        .into_iter()
        .filter_map(|(path, unnamed, right)| Some((path.as_ref()?, unnamed, right)));
    let mut tokens = Vec::new();
    let mut problems = Vec::new();
    for ((path, unnamed, right), text) in files.zip(contents) {
        let read = text.clone().and_then(|text| {
            Token::read(&text, unnamed, right)
                .map_err(|problem| format!("{}: {problem}", path.display()))
        });
        match read {
            Ok(read) => tokens.extend(read),
            Err(problem) => problems.push(problem),
        }
    }
    if problems.is_empty() { Ok(tokens) } else { Err(problems) }
}
