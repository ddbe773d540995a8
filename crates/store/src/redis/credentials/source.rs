//! The sources of users and passwords: text, files, or a program.

use std::io;
use std::path::{Path, PathBuf};

use super::command::CredentialsCommand;
use super::login::Login;

/// A user name or a password, or the file that contains it.
#[derive(Clone, PartialEq, Eq, Hash)]
pub enum Credential {
    /// The name or password itself.
    Text(String),
    /// The file that contains it.
    File(PathBuf),
}

impl std::fmt::Debug for Credential {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Text(_) => f.write_str("Text(***)"),
            Self::File(path) => f.debug_tuple("File").field(path).finish(),
        }
    }
}

impl Credential {
    fn is_file(&self) -> bool {
        matches!(self, Self::File(_))
    }

    /// Returns the text, without white space at the end if it is that of a file.
    fn read(&self) -> Result<String, CredentialFileError> {
        match self {
            Self::Text(text) => Ok(text.clone()),
            Self::File(path) => {
                let bytes = tollgate_files::bounded_file::read(path);
                let bytes = bytes.map_err(|error| CredentialFileError::of(path, error))?;
                Ok(String::from_utf8_lossy(&bytes).trim_end().to_owned())
            }
        }
    }
}

/// The reason why a file gave no user name or password.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {error}")]
pub(in crate::redis) struct CredentialFileError {
    path: String,
    error: io::Error,
}

impl CredentialFileError {
    fn of(path: &Path, error: io::Error) -> Self {
        Self { path: path.display().to_string(), error }
    }
}

/// The source of a user and password.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(in crate::redis) struct LoginSource {
    pub(in crate::redis) user: Option<Credential>,
    pub(in crate::redis) password: Option<Credential>,
    /// The program that prints both, instead of them.
    pub(in crate::redis) command: Option<CredentialsCommand>,
}

impl LoginSource {
    /// Returns `true` if the login never changes.
    pub(super) fn is_constant(&self) -> bool {
        let mut both = self.user.iter().chain(&self.password);
        self.command.is_none() && !both.any(Credential::is_file)
    }

    /// Returns the login, if it never changes.
    pub(super) fn text(&self) -> Option<Login> {
        self.is_constant().then(|| self.read().ok()).flatten()
    }

    /// Reads the files.
    ///
    /// # Errors
    /// A file cannot be read, or has no user name.
    pub(super) fn read(&self) -> Result<Login, CredentialFileError> {
        let user = self.user.as_ref().map(Credential::read).transpose()?;
        let user = user.map(|user| user.trim().to_owned());
        if user.as_deref() == Some("")
            && let Some(Credential::File(path)) = &self.user
        {
            return Err(CredentialFileError::of(
                path,
                io::Error::other("expected a user name, found none"),
            ));
        }
        let password = self.password.as_ref().map(Credential::read).transpose()?;
        Ok(Login { user, password })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(directory: &Path, name: &str, text: &str) -> Option<Credential> {
        let path = directory.join(name);
        std::fs::write(&path, text).unwrap();
        Some(Credential::File(path))
    }

    #[test]
    fn line_ends_of_files_are_no_part_of_a_login_and_an_empty_user_is_an_error() {
        let directory = std::env::temp_dir().join(format!("tollgate-login-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let password = file(&directory, "password", "  first\r\n");
        let user = file(&directory, "user", " app\n");
        let source = LoginSource { user, password, command: None };
        let login = source.read().unwrap();
        assert_eq!(
            (login.user.as_deref(), login.password.as_deref()),
            (Some("app"), Some("  first"))
        );
        let user = file(&directory, "user", "\n");
        let error = LoginSource { user, ..source }.read().unwrap_err().to_string();
        assert!(error.ends_with("user: expected a user name, found none"), "{error}");
        std::fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn no_secret_is_in_debug_output() {
        let secret = || Some("SECRET".to_owned());
        let login = Login { user: Some("app".to_owned()), password: secret() };
        let source = LoginSource {
            user: None,
            password: secret().map(Credential::Text),
            command: CredentialsCommand::parse("get-token SECRET").ok(),
        };
        let shown = format!("{login:?} {source:?}");
        assert!(shown.contains("app") && shown.contains("get-token"), "{shown}");
        assert!(!shown.contains("SECRET"), "{shown}");
    }
}
