//! Arbitrary text as the name of a key in the journal, which users type and replicas send.

use tollgate::telemetry::journal::key;

/// Parses a text; a parsed key must survive a round trip unchanged.
pub(crate) fn run(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let Ok(read) = key::read_text(&text) else { return };
    let mut written = String::new();
    key::write_text(&read.entries(), &mut written);
    // Text that is too long is cut and followed by a digest.
    assert!(written.len() <= key::MAX_TEXT + "…".len() + 16, "{written}");
    assert!(!written.chars().any(char::is_control), "{written:?}");
    match key::read_text(&written) {
        Ok(again) => assert_eq!(again, read, "{written}"),
        Err(error) => assert_eq!(error, key::NoEntries::CutShort, "{written}"),
    }
}
