//! Who may do what on the admin port: tokens, compared in constant time, each with a name and a right.

use std::fmt;

use parking_lot::RwLock;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

/// Letters that a token has at least: what is shorter can be tried out.
const MIN_LETTERS: usize = 16;
/// Tokens of one file.
const MAX_TOKENS: usize = 1_000;

/// What somebody may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Right {
    /// To read.
    Read,
    /// To read and to write.
    Write,
}

/// A token: the digest of its secret, so that the secret itself is nowhere in memory for long.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    name: String,
    digest: [u8; 32],
    right: Right,
}

/// Who is let in, and to what.
#[derive(Debug)]
pub struct Rights {
    /// None: everybody on this machine may do everything.
    tokens: RwLock<Vec<Token>>,
    /// What those may do who come with nothing.
    stranger: Option<Right>,
    /// Whether pages are for everybody.
    pub(super) open_pages: bool,
    /// Whether requests have to be for this machine by name: without a token, a page of elsewhere whose name leads here could
    /// ask as its reader.
    pub(super) checks_host: bool,
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({}, {:?})", self.name, self.right)
    }
}

impl Token {
    /// Reads tokens, one a line: `NAME:SECRET`, or a secret alone, which is called `unnamed`. Lines that begin with `#` and empty ones
    /// are none.
    ///
    /// # Errors
    /// What is wrong, without the secret.
    pub fn read(text: &str, unnamed: &str, right: Right) -> Result<Vec<Self>, String> {
        let tokens = secrets(text).map(|(line, name, secret)| match secret.chars().count() {
            0..MIN_LETTERS => Err(format!("a token has at least {MIN_LETTERS} letters, line {line} has fewer")),
            _ if !secret.chars().all(|letter| letter.is_ascii_graphic()) => {
                Err(format!("a token has letters, digits and signs of ASCII, line {line} has others"))
            }
            _ => Ok(Self { name: name.unwrap_or(unnamed).to_owned(), digest: digest(secret), right }),
        });
        let tokens: Vec<Self> = tokens.collect::<Result<_, _>>()?;
        match tokens.len() {
            0 => Err("there is no token in it".to_owned()),
            1..=MAX_TOKENS => Ok(tokens),
            found => Err(format!("at most {MAX_TOKENS} tokens, found {found}")),
        }
    }

    /// The first secret of a text as [`read`](Self::read) takes it, for who has to show it.
    pub fn first_secret(text: &str) -> Option<&str> {
        secrets(text).map(|(_, _, secret)| secret).next()
    }
}

impl Rights {
    /// Those of a listener that only this machine reaches: everybody may do everything.
    pub fn of_loopback(open_pages: bool) -> Self {
        Self { tokens: RwLock::default(), stranger: Some(Right::Write), open_pages, checks_host: true }
    }

    /// Those of who has a token. Where there is none, nobody has any but those who come otherwise, by a certificate.
    pub fn of_tokens(tokens: Vec<Token>, open_pages: bool) -> Self {
        Self { tokens: RwLock::new(tokens), stranger: None, open_pages, checks_host: false }
    }

    /// Puts other tokens in force.
    pub fn replace(&self, tokens: Vec<Token>) {
        *self.tokens.write() = tokens;
    }

    /// Who shows this, and what they may do. Looks at every token, however early one fits.
    pub(super) fn of_secret(&self, secret: &str) -> Option<(String, Right)> {
        let (shown, mut found) = (digest(secret), None);
        for token in self.tokens.read().iter() {
            if bool::from(token.digest.ct_eq(&shown)) {
                found = Some((token.name.clone(), token.right));
            }
        }
        found
    }

    /// What those may do who show nothing.
    pub(super) fn of_stranger(&self) -> Option<Right> {
        self.stranger
    }
}

/// Numbers of lines, names and secrets.
fn secrets(text: &str) -> impl Iterator<Item = (usize, Option<&str>, &str)> {
    let lines = text.lines().map(str::trim).zip(1..).filter(|(line, _)| !line.is_empty() && !line.starts_with('#'));
    lines.map(|(line, number)| match line.split_once(':') {
        Some((name, secret)) => (number, Some(name.trim()), secret.trim()),
        None => (number, None, line),
    })
}

/// Of one length, so that comparing tells nothing of a secret's.
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
        let rights = Rights::of_tokens(tokens, false);
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
    fn what_is_no_token_is_told_without_it() {
        for (text, told) in
            [("", "no token"), ("# only this", "no token"), ("ann:short", "16"), ("ümlaut-ümlaut-ümlaut", "ASCII")]
        {
            let error = Token::read(text, "unnamed", Right::Read).unwrap_err();
            assert!(error.contains(told) && !error.contains("short") && !error.contains("mlaut"), "{error}");
        }
        assert!(!format!("{:?}", Token::read(SECRET, "unnamed", Right::Read)).contains(SECRET));
    }
}
