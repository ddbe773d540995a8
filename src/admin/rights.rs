//! Rights on the admin port. Each token has a name and a right, and is compared in constant time.

use std::collections::HashMap;
use std::fmt;

use parking_lot::RwLock;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

/// Minimum length of a token in characters. Shorter ones can be guessed.
const MIN_LETTERS: usize = 16;
/// Maximum number of tokens in one file.
const MAX_TOKENS: usize = 1_000;

/// A level of access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Right {
    /// Read access.
    Read,
    /// Read and write access.
    Write,
}

/// A token. Holds the digest of the secret, so that the secret does not stay in memory.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    name: String,
    digest: [u8; 32],
    right: Right,
}

/// Reason why a file of tokens is invalid. Has no secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the text of each variant says what its fields are")]
pub enum InvalidTokens {
    #[error("lines {first} and {line} have the same name")]
    SameName { first: usize, line: usize },
    #[error("line {line}: a token must have at least {MIN_LETTERS} characters")]
    Short { line: usize },
    #[error("line {line}: a token must consist of printable ASCII characters")]
    Unprintable { line: usize },
    #[error("no token found")]
    None,
    #[error("at most {MAX_TOKENS} tokens, found {found}")]
    TooMany { found: usize },
}

/// The access rules of the admin port.
#[derive(Debug)]
pub struct AdminRights {
    /// Tokens in force; empty on a loopback listener without tokens.
    tokens: RwLock<Vec<Token>>,
    /// The right of clients without credentials.
    anonymous: Option<Right>,
    /// `true` if pages need no token.
    pub(super) open_pages: bool,
    /// `true` if the `Host` header must name this machine. Without tokens, a page of another site
    /// could otherwise send requests on behalf of its reader, through a DNS name that resolves to
    /// this machine.
    pub(super) checks_host: bool,
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({}, {:?})", self.name, self.right)
    }
}

impl Token {
    /// Parses tokens, one per line: `NAME:SECRET`, or a secret alone, which is named `unnamed`.
    /// Skips empty lines and lines that begin with `#`.
    ///
    /// # Errors
    /// The first problem.
    pub fn read(text: &str, unnamed: &str, right: Right) -> Result<Vec<Self>, InvalidTokens> {
        let mut lines = HashMap::new();
        for (line, name, _) in secrets(text) {
            let Some(name) = name else { continue };
            if let Some(first) = lines.insert(name, line) {
                return Err(InvalidTokens::SameName { first, line });
            }
        }
        let tokens = secrets(text).map(|(line, name, secret)| match secret.chars().count() {
            0..MIN_LETTERS => Err(InvalidTokens::Short { line }),
            _ if !secret.chars().all(|letter| letter.is_ascii_graphic()) => {
                Err(InvalidTokens::Unprintable { line })
            }
            _ => {
                Ok(Self { name: name.unwrap_or(unnamed).to_owned(), digest: digest(secret), right })
            }
        });
        let tokens: Vec<Self> = tokens.collect::<Result<_, _>>()?;
        match tokens.len() {
            0 => Err(InvalidTokens::None),
            1..=MAX_TOKENS => Ok(tokens),
            found => Err(InvalidTokens::TooMany { found }),
        }
    }

    /// Returns the first secret of a text in the format of [`read`](Self::read), for clients that
    /// send it.
    pub fn first_secret(text: &str) -> Option<&str> {
        secrets(text).map(|(_, _, secret)| secret).next()
    }
}

impl AdminRights {
    /// Creates the rules of a loopback listener: every client has all rights.
    pub fn of_loopback(open_pages: bool) -> Self {
        Self {
            tokens: RwLock::default(),
            anonymous: Some(Right::Write),
            open_pages,
            checks_host: true,
        }
    }

    /// Creates the rules of a listener that requires tokens. With no tokens, only clients with a
    /// certificate have access.
    pub fn of_tokens(tokens: Vec<Token>, open_pages: bool) -> Self {
        Self { tokens: RwLock::new(tokens), anonymous: None, open_pages, checks_host: false }
    }

    /// Replaces the tokens in force.
    pub fn replace(&self, tokens: Vec<Token>) {
        *self.tokens.write() = tokens;
    }

    /// Returns the name and the right of a secret. Compares it with every token, so that the time
    /// taken does not depend on the position of a match.
    pub(super) fn of_secret(&self, secret: &str) -> Option<(String, Right)> {
        let shown = digest(secret);
        let mut found = None;
        for token in self.tokens.read().iter() {
            if bool::from(token.digest.ct_eq(&shown)) {
                found = Some((token.name.clone(), token.right));
            }
        }
        found
    }

    /// Returns the right of clients that send no credentials.
    pub(super) fn anonymous(&self) -> Option<Right> {
        self.anonymous
    }
}

/// Yields the line number, the name if there is one, and the secret of each line.
fn secrets(text: &str) -> impl Iterator<Item = (usize, Option<&str>, &str)> {
    let lines = text
        .lines()
        .map(str::trim)
        .zip(1..)
        .filter(|(line, _)| !line.is_empty() && !line.starts_with('#'));
    lines.map(|(line, number)| match line.split_once(':') {
        Some((name, secret)) => (number, Some(name.trim()), secret.trim()),
        None => (number, None, line),
    })
}

/// Hashes a secret to a fixed length, so that comparison reveals nothing about its length.
fn digest(secret: &str) -> [u8; 32] {
    Sha256::digest(secret.as_bytes()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "0123456789abcdef";

    #[test]
    fn a_token_is_known_by_its_secret_alone() {
        let text = format!("# of the team\nann: {SECRET}x\n\n{SECRET}\n");
        let mut tokens = Token::read(&text, "unnamed", Right::Write).unwrap();
        tokens.extend(Token::read(&format!("bob:{SECRET}y"), "unnamed", Right::Read).unwrap());
        let rights = AdminRights::of_tokens(tokens, false);
        assert_eq!(rights.of_secret(&format!("{SECRET}x")), Some(("ann".to_owned(), Right::Write)));
        assert_eq!(rights.of_secret(&format!("{SECRET}y")), Some(("bob".to_owned(), Right::Read)));
        assert_eq!(rights.of_secret(SECRET), Some(("unnamed".to_owned(), Right::Write)));
        assert_eq!(rights.of_secret(""), None);
        assert_eq!(rights.of_secret(&format!("ann: {SECRET}x")), None);
        rights.replace(vec![]);
        assert_eq!(rights.of_secret(SECRET), None);
        assert_eq!(Token::first_secret(&text), Some("0123456789abcdefx"));
    }

    #[test]
    fn an_invalid_token_is_reported_without_its_text() {
        for (text, expected) in [
            ("", "no token"),
            ("# only this", "no token"),
            ("ann:short", "16"),
            ("ann:0123456789short0\n\nbob:1123456789short1\nann:2123456789short2", "lines 1 and 4"),
            ("ümlaut-ümlaut-ümlaut", "ASCII"),
        ] {
            let error = Token::read(text, "unnamed", Right::Read).unwrap_err().to_string();
            assert!(
                error.contains(expected) && !error.contains("short") && !error.contains("mlaut"),
                "{error}"
            );
        }
        assert!(!format!("{:?}", Token::read(SECRET, "unnamed", Right::Read)).contains(SECRET));
    }
}
