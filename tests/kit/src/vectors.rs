//! The recorded traces of `tests/vectors`, with the answers that a model of the contract expects.
//!
//! A folder has `policy.yaml`, `trace.jsonl` and `expected.jsonl`; the last two are compressed, and
//! `SHA256SUMS` has the digests of their contents. To add one:
//!
//! ```text
//! cd tests/vectors && sha256sum 7/*.jsonl >>SHA256SUMS && gzip -9n 7/*.jsonl
//! ```

use std::io::Read as _;

use flate2::read::GzDecoder;
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;

use super::root;

/// Names of all folders.
pub const NAMES: [&str; 6] = ["1", "2", "3", "4", "5", "6"];

/// Returns a copy of a folder, with its files as they were before they were compressed.
pub fn vectors(name: &str) -> TempDir {
    let folder = root().join("tests/vectors");
    let digests = std::fs::read_to_string(folder.join("SHA256SUMS")).unwrap();
    let copy = TempDir::new().unwrap();
    std::fs::copy(folder.join(name).join("policy.yaml"), copy.path().join("policy.yaml")).unwrap();
    for file in ["trace.jsonl", "expected.jsonl"] {
        let compressed = std::fs::read(folder.join(name).join(format!("{file}.gz"))).unwrap();
        let mut contents = Vec::new();
        GzDecoder::new(&compressed[..]).read_to_end(&mut contents).unwrap();
        let digest: String =
            Sha256::digest(&contents).iter().map(|byte| format!("{byte:02x}")).collect();
        let line = format!("{digest}  {name}/{file}");
        assert!(digests.lines().any(|found| found == line), "SHA256SUMS lacks {line}");
        std::fs::write(copy.path().join(file), contents).unwrap();
    }
    copy
}
