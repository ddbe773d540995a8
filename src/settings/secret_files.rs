//! The files with secrets, which no other user of the machine should read.

use std::path::{Path, PathBuf};

use super::{Settings, StoreLocation};
use crate::store::redis::{Access, Credential};

const KEY: &str = "the key of the certificate";

/// A file, and the words for its contents.
type SecretFile<'a> = (&'a Path, &'static str);

impl Settings {
    /// Returns the files with secrets that the service reads.
    pub fn secret_files(&self) -> Vec<SecretFile<'_>> {
        let tokens = [&self.admin.token_file, &self.admin.read_token_file];
        let tokens = tokens.into_iter().flatten().map(|file| (file.as_path(), "the tokens"));
        let loans = self.loans.keys.iter().map(|(file, _)| (file.as_path(), "the keys"));
        let hashes = self.policy.hash_key_file.iter().map(|file| (file.as_path(), "the key"));
        let servers = [&self.tls, &self.admin.tls].into_iter().flatten();
        let servers = servers.map(|tls| (tls.key.as_path(), KEY));
        let control = self.xds.iter().filter_map(|control| control.tls.as_ref());
        let control = control.flat_map(|tls| of_certificate(tls.certificate.as_ref()));
        let stores = match &self.store.place {
            StoreLocation::Memory => Vec::new(),
            StoreLocation::Redis(options) => {
                let others = options.per_second.iter();
                let others = others.flat_map(|other| [&other.access, &other.sentinel_access]);
                [&options.access, &options.sentinel_access].into_iter().chain(others).collect()
            }
        };
        let stores = stores.into_iter().flat_map(of_access);
        let mut files: Vec<_> =
            tokens.chain(loans).chain(hashes).chain(servers).chain(control).chain(stores).collect();
        files.sort_unstable();
        files.dedup();
        files
    }
}

/// Returns the files with secrets of an access to Redis.
fn of_access(access: &Access) -> impl Iterator<Item = SecretFile<'_>> {
    let password = match &access.password {
        Some(Credential::File(file)) => Some((file.as_path(), "the password")),
        Some(Credential::Text(_)) | None => None,
    };
    password.into_iter().chain(of_certificate(access.certificate.as_ref()))
}

/// Returns the file with the key of a client's certificate.
fn of_certificate(certificate: Option<&(PathBuf, PathBuf)>) -> Option<SecretFile<'_>> {
    certificate.map(|(_, key)| (key.as_path(), KEY))
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use crate::settings::Flags;

    #[derive(clap::Parser)]
    struct FlagsCommand {
        #[command(flatten)]
        flags: Flags,
    }

    /// Every flag for a file with a secret: those whose names end in `-key`, `-key-file`,
    /// `-token-file` or `-password-file`.
    #[test]
    fn every_file_with_a_secret_is_listed() {
        let directory = tempfile::tempdir().unwrap();
        let command = <FlagsCommand as clap::CommandFactory>::command();
        let secret = ["-key", "-key-file", "-token-file", "-password-file"];
        let names = command.get_arguments().filter_map(|argument| argument.get_long());
        let names = names.filter(|name| secret.iter().any(|end| name.ends_with(end)));
        let names: Vec<_> = names.filter(|name| *name != "hash-key").collect();
        assert!(names.len() >= 9, "{names:?}");
        let mut arguments = vec!["serve".to_owned()];
        let mut expected = Vec::new();
        for name in names {
            let file = directory.path().join(name);
            std::fs::write(&file, "0123456789abcdef0123456789abcdef\n").unwrap();
            arguments.extend([format!("--{name}"), file.display().to_string()]);
            expected.push(file);
        }
        for flag in ["--redis-cert", "--grpc-tls-cert", "--admin-tls-cert", "--xds-cert"] {
            arguments.extend([flag.to_owned(), "cert.pem".to_owned()]);
        }
        let stores = ["--store", "redis://main", "--per-second-store", "redis://other"];
        let control = ["--xds", "control:18000", "--xds-tls"];
        arguments.extend(stores.into_iter().chain(control).map(str::to_owned));
        let (settings, _) = FlagsCommand::parse_from(arguments).flags.resolve();
        let found: Vec<_> =
            settings.secret_files().iter().map(|(file, _)| file.to_path_buf()).collect();
        expected.sort_unstable();
        assert_eq!(found, expected);
    }
}
