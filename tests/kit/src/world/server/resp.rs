//! The protocol of Redis, version 2: commands in, replies out.

/// A reply of a server.
#[derive(Clone, Debug, PartialEq)]
pub enum Resp {
    /// A simple string, such as `OK`.
    Status(&'static str),
    /// An error, with its code.
    Error(String),
    /// An integer.
    Integer(i64),
    /// Bytes.
    Bulk(Vec<u8>),
    /// Nothing.
    Nil,
    /// Several replies.
    Array(Vec<Resp>),
}

impl Resp {
    /// Returns an error.
    pub fn error(text: &str) -> Self {
        Self::Error(text.to_owned())
    }

    /// Returns text.
    pub fn text(text: &str) -> Self {
        Self::Bulk(text.as_bytes().to_vec())
    }

    /// Appends the encoded reply.
    pub fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Status(text) => line(out, '+', text),
            Self::Error(text) => line(out, '-', text),
            Self::Integer(number) => line(out, ':', &number.to_string()),
            Self::Nil => line(out, '$', "-1"),
            Self::Bulk(bytes) => {
                line(out, '$', &bytes.len().to_string());
                out.extend_from_slice(bytes);
                out.extend_from_slice(b"\r\n");
            }
            Self::Array(all) => {
                line(out, '*', &all.len().to_string());
                all.iter().for_each(|reply| reply.write(out));
            }
        }
    }
}

fn line(out: &mut Vec<u8>, kind: char, text: &str) {
    out.extend_from_slice(format!("{kind}{text}\r\n").as_bytes());
}

/// Bytes that arrived on a connection and are not yet a whole command.
#[derive(Default)]
pub struct CommandReader {
    bytes: Vec<u8>,
}

impl CommandReader {
    /// Adds bytes that arrived.
    pub fn add(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Removes the next whole command; `None` if it has not arrived yet.
    pub fn next(&mut self) -> Option<Vec<Vec<u8>>> {
        let mut at = 0;
        let count = header(&self.bytes, &mut at, b'*')?;
        let mut words = Vec::with_capacity(count);
        for _ in 0..count {
            let length = header(&self.bytes, &mut at, b'$')?;
            let word = self.bytes.get(at..at + length)?;
            // With the line end that follows.
            self.bytes.get(at + length + 1)?;
            words.push(word.to_vec());
            at += length + 2;
        }
        self.bytes.drain(..at);
        Some(words)
    }
}

/// Reads a line with a number, such as `*3`.
fn header(bytes: &[u8], at: &mut usize, kind: u8) -> Option<usize> {
    let rest = bytes.get(*at..)?;
    let end = rest.windows(2).position(|pair| pair == b"\r\n")?;
    assert_eq!(rest[0], kind, "not a command: {:?}", String::from_utf8_lossy(rest));
    *at += end + 2;
    Some(std::str::from_utf8(&rest[1..end]).unwrap().parse().unwrap())
}
