//! A user and password.

use redis::{Cmd, RedisConnectionInfo};

/// A user and password.
#[derive(Clone, Default, PartialEq, Eq)]
pub(in crate::redis) struct Login {
    /// The ACL user; `None` is the default user.
    pub(in crate::redis) user: Option<String>,
    pub(in crate::redis) password: Option<String>,
}

impl std::fmt::Debug for Login {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Login").field("user", &self.user).finish_non_exhaustive()
    }
}

impl Login {
    /// Returns the settings of a handshake with this login.
    pub(in crate::redis) fn handshake(&self, database: i64) -> RedisConnectionInfo {
        let mut info = RedisConnectionInfo::default()
            .set_db(database)
            .set_lib_name("tollgate", env!("CARGO_PKG_VERSION"));
        if let Some(user) = &self.user {
            info = info.set_username(user);
        }
        if let Some(password) = &self.password {
            info = info.set_password(password);
        }
        info
    }

    /// Returns the command that authenticates a connection in use; `None` without a password.
    pub(in crate::redis) fn auth(&self) -> Option<Cmd> {
        let password = self.password.as_ref()?;
        let mut command = redis::cmd("AUTH");
        if let Some(user) = &self.user {
            command.arg(user);
        }
        command.arg(password);
        Some(command)
    }
}
