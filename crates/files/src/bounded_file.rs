//! Reads small files: passwords, tokens, keys, certificates. A file without an end, such as a
//! device, is an error.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

/// Maximum size in bytes.
const MAX_BYTES: u64 = 1 << 20;

/// Reads a file of at most 1 MiB.
///
/// # Errors
/// The file cannot be read, or is larger.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let length = File::open(path)?.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
    if u64::try_from(length).unwrap_or(u64::MAX) > MAX_BYTES {
        return Err(io::Error::other(format!("more than {MAX_BYTES} bytes")));
    }
    Ok(bytes)
}

/// Reads a text file of at most 1 MiB.
///
/// # Errors
/// The file cannot be read, is larger, or is not UTF-8.
pub fn read_text(path: &Path) -> io::Result<String> {
    String::from_utf8(read(path)?).map_err(|error| io::Error::other(error.utf8_error()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_an_end_is_an_error() {
        let error = read(Path::new("/dev/zero")).unwrap_err().to_string();
        assert_eq!(error, "more than 1048576 bytes");
        assert_eq!(read_text(Path::new("/dev/null")).unwrap(), "");
    }
}
