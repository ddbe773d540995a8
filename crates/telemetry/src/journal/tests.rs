#![allow(clippy::arithmetic_side_effects, reason = "a test that panics is a test that fails")]

use std::sync::Arc;

use tollgate_core::algorithm::time::Micros;

use super::reading::{DenialFilter, DeniedKey, RecentDenials};
use super::worker_denials::{SLICES, WorkerDenials};
use super::*;

const MINUTE: u64 = 60_000_000;
const NOON: u64 = 1_780_315_200_000_000;

fn at(minute: u64) -> Timestamp {
    Timestamp::from_micros(NOON + minute * MINUTE)
}

fn denial<'a>(rule: &'a str, version: &'a Arc<str>) -> DenialEvent<'a> {
    DenialEvent {
        domain: "d",
        rule,
        version,
        why: DenialReason::NoRoom,
        hits: 1,
        retry_after: Some(Micros::from_secs(9)),
        recorded: &[],
    }
}

fn note(table: &mut WorkerDenials, rule: &str, user: &str, now: Timestamp) {
    let entries = [Entry { key: b"user", value: user.as_bytes() }];
    table.note(&denial(rule, &"v1".into()), &entries, now);
}

fn read(tables: &[&WorkerDenials], now: Timestamp) -> RecentDenials {
    RecentDenials::of(tables.iter().map(|table| table.slices()), now)
}

fn all() -> DenialFilter<'static> {
    DenialFilter::default()
}

fn shown(found: &[DeniedKey]) -> Vec<(&str, u64)> {
    found.iter().map(|found| (found.key.as_str(), found.record.count)).collect()
}

#[test]
fn why_at_12_03_has_an_answer_at_12_10() {
    let mut table = WorkerDenials::new(1 << 20);
    note(&mut table, "r", "ann", at(3));
    note(&mut table, "r", "ann", at(3) + Micros::from_secs(30));
    note(&mut table, "r", "ann", at(9));
    note(&mut table, "r", "bob", at(8));
    let denials = read(&[&table], at(10));
    let until = Some(at(3) + Micros::from_secs(59));
    let span = DenialFilter { since: Some(at(3)), until, ..all() };
    let found = denials.find(&span);
    assert_eq!(shown(&found), [("user=ann", 2)]);
    let record = &found[0].record;
    assert_eq!((record.first, record.last), (at(3), at(3) + Micros::from_secs(30)));
    assert_eq!(record.retry_at, Some(at(3) + Micros::from_secs(39)));
    assert_eq!((&*record.version, found[0].missed_at_most), ("v1", 0));
    assert_eq!(shown(&denials.find(&all())), [("user=ann", 3), ("user=bob", 1)]);
    let of_key = DenialFilter { key: Some("bo"), ..all() };
    assert_eq!(shown(&denials.find(&of_key)), [("user=bob", 1)]);
    assert_eq!(shown(&denials.find(&DenialFilter { rule: Some("other"), ..all() })), []);
}

#[test]
fn denials_of_several_workers_are_one_journal() {
    let mut one = WorkerDenials::new(1 << 20);
    let mut other = WorkerDenials::new(1 << 20);
    note(&mut one, "r", "ann", at(0));
    (0..3).for_each(|_| note(&mut other, "r", "ann", at(1)));
    (0..5).for_each(|_| note(&mut other, "q", "ann", at(1)));
    let top = read(&[&one, &other], at(1)).top(&all());
    let rules: Vec<_> = top.iter().map(|found| (found.rule.as_str(), found.record.count)).collect();
    assert_eq!(rules, [("q", 5), ("r", 4)]);
}

#[test]
fn denials_expire_after_15_minutes() {
    let mut table = WorkerDenials::new(1 << 20);
    note(&mut table, "r", "old", at(0));
    note(&mut table, "r", "new", at(15));
    assert_eq!(read(&[&table], at(15)).find(&all()).len(), 2);
    assert_eq!(shown(&read(&[&table], at(16)).find(&all())), [("user=new", 1)]);
    assert_eq!(table.expired(at(16)).len(), 1);
    note(&mut table, "r", "back", at(3));
    assert_eq!(read(&[&table], at(16)).find(&all()).len(), 2, "a clock that steps back writes on");
}

#[test]
fn a_million_keys_stay_within_the_room_and_the_heavy_ones_are_found() {
    let max = 4 << 20;
    let mut table = WorkerDenials::new(max);
    for number in 0..1_000_000u64 {
        let now = Timestamp::from_micros(NOON + number * 900);
        note(
            &mut table,
            "flood",
            &format!("10.{}.{}.{}", number >> 16, (number >> 8) & 255, number & 255),
            now,
        );
        if number % 100 == 0 {
            note(&mut table, "flood", "heavy", now);
            note(&mut table, "quiet", "ann", now);
        }
        assert!(number % 1_000 > 0 || table.bytes() <= max);
    }
    let now = Timestamp::from_micros(NOON + 900_000_000);
    let denials = read(&[&table], now);
    let top = denials.top(&DenialFilter { rule: Some("flood"), ..all() });
    let heavy = &top[0];
    assert_eq!(heavy.key, "user=heavy");
    assert!(
        heavy.record.count <= 10_000 && heavy.record.count + heavy.missed_at_most >= 10_000,
        "{heavy:?}"
    );
    let quiet = denials.top(&DenialFilter { rule: Some("quiet"), ..all() });
    assert_eq!(
        (shown(&quiet), quiet[0].missed_at_most),
        (vec![("user=ann", 10_000)], 0),
        "no flood hides another rule"
    );
    assert!(table.lost.replaced > 900_000 && table.lost.dropped == 0, "{:?}", table.lost);
}

#[test]
fn long_texts_in_the_place_of_short_ones_stay_within_the_room() {
    let max = 16 << 16;
    let mut table = WorkerDenials::new(max);
    for length in [1, 150] {
        for number in 0..20_000 {
            note(&mut table, "r", &format!("{number:x}{}", "x".repeat(length)), at(0));
            assert!(table.bytes() <= max / usize::try_from(SLICES).unwrap());
        }
    }
}

#[test]
fn many_rules_share_the_room() {
    let mut table = WorkerDenials::new(16 << 16);
    (0..10_000).for_each(|rule| note(&mut table, &format!("rule-{rule}"), "ann", at(0)));
    assert!(table.bytes() <= 1 << 16);
    let found = read(&[&table], at(0));
    let known = found.find(&all()).len();
    assert!(
        known > 50 && found.dropped(&all()) == 10_000 - u64::try_from(known).unwrap(),
        "{known}"
    );
}

fn received(table: &WorkerDenials, minute: u64) -> PeerDenials {
    let text = read(&[table], at(15)).message(at(minute).index(SLICE)).unwrap();
    assert!(text.len() < peers::MAX_MESSAGE + 1_000, "{}", text.len());
    PeerDenials::read(at(minute).index(SLICE), text.as_bytes()).unwrap()
}

#[test]
fn denials_of_another_process_are_merged_as_those_of_a_worker() {
    let mut own = WorkerDenials::new(1 << 20);
    let mut other = WorkerDenials::new(1 << 20);
    for (minute, user) in [(1, "ann"), (2, "ann"), (2, "bob")] {
        note(&mut own, "r", "ann", at(minute));
        note(&mut other, "r", user, at(minute) + Micros::from_secs(7));
        note(&mut other, "q", user, at(minute) + Micros::from_secs(9));
    }
    let slices = [own.slices(), vec![received(&other, 1).0, received(&other, 2).0]];
    let together = RecentDenials::of(slices, at(15));
    let as_tables = read(&[&own, &other], at(15));
    for span in [all(), DenialFilter { until: Some(at(1)), ..all() }] {
        assert_eq!(together.find(&span), as_tables.find(&span));
    }
    assert!(
        read(&[&own], at(15)).message(at(9).index(SLICE)).is_none(),
        "nothing was denied in that minute"
    );
    assert!(
        PeerDenials::read(0, b"{\"rules\": 7}").is_none()
            && PeerDenials::read(0, b"\xff").is_none()
    );
}

#[test]
fn a_message_is_bounded_and_counts_what_it_omits() {
    let mut table = WorkerDenials::new(64 << 20);
    for number in 0..5_000 {
        let times = if number < 10 { 3 } else { 2 };
        (0..times).for_each(|_| note(&mut table, "flood", &format!("u{number}"), at(0)));
    }
    note(&mut table, "quiet", "ann", at(0));
    let denials = RecentDenials::of([vec![received(&table, 0).0]], at(15));
    let found = denials.top(&all());
    assert!(found.len() > 100 && found.len() < 1_000, "{}", found.len());
    let heavy = found.iter().filter(|found| found.record.count == 3).count();
    assert_eq!(
        (heavy, shown(&found).contains(&("user=ann", 1))),
        (10, true),
        "the heavy, and those of other rules"
    );
    let own = RecentDenials::of([vec![received(&table, 0).0], table.slices()], at(15));
    let top = own.find(&DenialFilter { key: Some("u4999"), ..all() });
    assert_eq!(
        (top[0].record.count, top[0].missed_at_most),
        (2, 2),
        "the other may have denied it as often as those left out"
    );
}

#[test]
fn without_room_nothing_is_written() {
    let journal = Journal::new(0, 3);
    let recorder = journal.recorder();
    recorder.note(&denial("r", &"v".into()), &[]);
    assert!(!journal.is_on() && !recorder.is_on() && journal.read().find(&all()).is_empty());
    let journal = Journal::new(1 << 20, 2);
    journal.recorder().note(&denial("r", &"v".into()), &[]);
    journal.expire();
    assert_eq!(shown(&journal.read().find(&all())), [("", 1)]);
    assert!(journal.bytes() > 0 && journal.lost() == DenialLosses::default());
}
