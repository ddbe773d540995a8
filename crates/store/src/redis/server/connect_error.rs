//! The reason why there is no connection, with the next step if the server refuses the login or
//! its commands.

use std::sync::Arc;
use std::time::Duration;

use super::failure::{is_of_login, shown};
use super::rights::advice;
use crate::redis::config::access::Access;
use crate::redis::credentials::CredentialsError;
use crate::redis::credentials::login::Login;
use crate::servers::AccessRefusal;

/// The reason why there is no connection.
#[derive(Debug, thiserror::Error)]
pub(in crate::redis) enum ConnectError {
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
    #[error(transparent)]
    Socket(#[from] std::io::Error),
    #[error("{}", shown(.0))]
    Tls(String),
    #[error("{}", shown(.0))]
    Redis(#[from] redis::RedisError),
    #[error("{}", login_advice(login, *.by_command, text))]
    Login {
        login: Arc<Login>,
        /// `true` if a program printed the login.
        by_command: bool,
        /// The error of the server.
        text: String,
    },
    #[error("connection timed out after {0:?}")]
    Late(Duration),
    #[error("server is a read-only replica")]
    Replica,
    #[error("{}", advice(.user.as_deref(), .commands, .extras))]
    Forbidden {
        user: Option<String>,
        /// Commands that decisions need.
        commands: Vec<&'static str>,
        /// Commands that other features need.
        extras: Vec<&'static str>,
    },
}

impl ConnectError {
    pub(in crate::redis) fn tls(error: impl ToString) -> Self {
        Self::Tls(error.to_string())
    }

    /// Returns the error with the next step, if the server refused this login of `access`.
    pub(in crate::redis) fn of_login(self, login: &Arc<Login>, access: &Access) -> Self {
        let Self::Redis(error) = self else { return self };
        if !is_of_login(&error) {
            return Self::Redis(error);
        }
        Self::Login {
            login: Arc::clone(login),
            by_command: access.credentials_command.is_some(),
            text: shown(error),
        }
    }

    /// Returns the reason if the server refuses all that decisions need.
    pub(in crate::redis) fn refusal(&self) -> Option<AccessRefusal> {
        match self {
            Self::Login { .. } => Some(AccessRefusal::Login),
            Self::Forbidden { .. } => Some(AccessRefusal::Commands),
            Self::Credentials(_)
            | Self::Socket(_)
            | Self::Tls(_)
            | Self::Redis(_)
            | Self::Late(_)
            | Self::Replica => None,
        }
    }
}

fn login_advice(login: &Login, by_command: bool, text: &str) -> String {
    let name = login.user.as_deref().unwrap_or("default");
    if by_command {
        return format!(
            "the server refuses user `{name}` with this password ({text}); correct the output of \
             --redis-credentials-command, which is run again"
        );
    }
    if login.password.is_some() {
        return format!(
            "the server refuses user `{name}` with this password ({text}); correct --redis-user \
             and --redis-password-file"
        );
    }
    format!(
        "the server requires a password, but none is configured ({text}); set \
         --redis-password-file FILE or TOLLGATE_REDIS_PASSWORD, and --redis-user NAME for a named \
         user"
    )
}
