//! Arbitrary texts as the shared denials of other replicas: parsed, merged, queried, and published
//! again.

use tollgate::telemetry::journal::peers::MAX_MESSAGE;
use tollgate::telemetry::journal::{DenialFilter, Journal, PeerDenials};

/// Reads texts separated by zero bytes, all of the current minute.
pub(crate) fn run(bytes: &[u8]) {
    let journal = Journal::new(1 << 16, 1);
    let minute = *Journal::minutes().end();
    let texts = bytes.split(|byte| *byte == 0);
    let peers: Vec<PeerDenials> =
        texts.filter_map(|text| PeerDenials::read(minute, text)).collect();
    let denials = journal.read_with(peers);
    let all = DenialFilter::default();
    let found = denials.find(&all);
    assert_eq!(found.len(), denials.top(&all).len());
    if let Some(one) = found.first() {
        let span = DenialFilter {
            domain: Some(&one.domain),
            rule: Some(&one.rule),
            key: Some(&one.key),
            ..all
        };
        let again = denials.find(&span);
        let is_it =
            one.record.first <= one.record.last && again.iter().any(|found| found.key == one.key);
        assert!(is_it || one.record.first > one.record.last, "{one:?}");
    }
    if let Some(text) = denials.message(minute) {
        assert!(PeerDenials::read(minute, text.as_bytes()).is_some(), "{text}");
        assert!(text.len() <= 2 * MAX_MESSAGE, "{} bytes", text.len());
    }
}
