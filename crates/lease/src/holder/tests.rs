#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "a test that panics is a test that fails"
)]

use super::*;

const HOT: usize = 8;

/// A key of the domain `shop`, or of `depot` if it begins so.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct TestKey(&'static str);

impl LeaseKey for TestKey {
    fn domain(&self) -> &str {
        if self.0.starts_with("depot") { "depot" } else { "shop" }
    }

    fn size(&self) -> usize {
        self.0.len()
    }
}

/// A holder whose time is set.
struct Holder {
    leases: HeldLeases<TestKey>,
    exchanger: Exchanger<TestKey>,
    now: Instant,
}

impl Holder {
    fn new() -> Self {
        let now = Instant::now();
        Self { leases: HeldLeases::new(now), exchanger: Exchanger::new(), now }
    }

    fn advance(&mut self, ms: u64) {
        self.now += Duration::from_millis(ms);
    }

    fn look(&self, name: &'static str, hits: u32) -> Look {
        self.leases.take(&TestKey(name), || TestKey(name), hits, self.now)
    }

    fn admits(&self, name: &'static str, hits: u32) -> bool {
        matches!(self.look(name, hits).kind, LookKind::Taken(..))
    }

    fn taken(&self, name: &'static str, hits: u32) -> (TakenLease, LeasedCounter) {
        let LookKind::Taken(taken, counter) = self.look(name, hits).kind else {
            panic!("no hits for {name}")
        };
        (taken, counter)
    }

    fn exchange(&mut self) -> Option<LoanExchange<TestKey>> {
        self.exchanger.collect(&self.leases, self.now);
        self.exchanger.begin(self.now)
    }

    fn finish(&mut self, exchange: LoanExchange<TestKey>, answers: Vec<LeaseAnswer>) {
        self.exchanger.finish(exchange, answers, self.now);
    }

    /// Makes a key hot by requests of one hit, and begins the exchange for its want.
    fn wanted(&mut self, name: &'static str) -> LoanExchange<TestKey> {
        (0..HOT).for_each(|_| drop(self.look(name, 1)));
        self.exchange().unwrap()
    }

    /// Makes a key hot, and answers its want.
    fn answer(&mut self, name: &'static str, answer: LeaseAnswer) {
        let exchange = self.wanted(name);
        assert_eq!(exchange.wants.len(), 1);
        self.finish(exchange, vec![answer]);
    }
}

fn counter(remaining: u64) -> Option<LeasedCounter> {
    let [period, reset_after] = [Duration::from_secs(60), Duration::from_secs(30)];
    Some(LeasedCounter { limit: 100, period, remaining, reset_after })
}

fn loan(hits: u32, ms: u64) -> LeaseAnswer {
    let usable_for = Duration::from_millis(ms);
    let answer = WantAnswer::Loan { hits, receipt: vec![7], usable_for, counter: counter(50) };
    LeaseAnswer { generation: 1, answer }
}

fn used_and_unused(exchange: &LoanExchange<TestKey>) -> Vec<(u32, u32)> {
    exchange.returns.iter().map(|back| (back.used, back.unused)).collect()
}

#[test]
fn a_block_admits_its_hits_for_a_time_from_its_call_and_the_counter_has_those_in_hand() {
    let mut holder = Holder::new();
    let exchange = holder.wanted("ann");
    holder.advance(60);
    holder.finish(exchange, vec![loan(10, 1_000)]);
    let (_, counter) = holder.taken("ann", 4);
    assert_eq!((counter.limit, counter.remaining), (100, 56));
    assert_eq!(counter.reset_after, Duration::from_millis(29_940));
    assert!(!holder.admits("ann", 7), "7 of 6 hits are taken");
    holder.advance(939);
    assert!(holder.admits("ann", 1));
    holder.advance(1);
    assert!(!holder.admits("ann", 1), "the block has ended");
}

#[test]
fn hits_are_returned_once_and_those_put_back_into_a_returned_block_are_lost() {
    let mut holder = Holder::new();
    holder.answer("ann", loan(10, 1_000));
    let (first, _) = holder.taken("ann", 3);
    let (second, _) = holder.taken("ann", 2);
    first.put_back();
    assert!(holder.exchanger.begin(holder.now).is_none());
    let exchange = holder.exchanger.begin_end(holder.now).unwrap();
    second.put_back();
    assert_eq!((used_and_unused(&exchange), exchange.hits()), (vec![(2, 8)], 8));
    assert_eq!(exchange.returns[0].receipt, [7]);
    assert!(holder.exchanger.begin_end(holder.now).is_none() && holder.exchanger.is_idle());
    assert!(!holder.admits("ann", 1));
}

#[test]
fn empty_and_ended_blocks_are_returned_and_others_kept() {
    let mut holder = Holder::new();
    holder.answer("ann", loan(10, 1_000));
    assert!(holder.admits("ann", 8));
    holder.advance(900);
    let exchange = holder.exchange().unwrap();
    assert_eq!((exchange.wants.len(), exchange.returns.len()), (1, 0));
    holder.finish(exchange, vec![loan(5, 1_000)]);
    assert!(holder.admits("ann", 2));
    let exchange = holder.exchange().unwrap();
    assert_eq!(used_and_unused(&exchange), [(10, 0)]);
    holder.finish(exchange, vec![]);
    holder.advance(1_000);
    let exchange = holder.exchange().unwrap();
    assert_eq!((used_and_unused(&exchange), holder.exchanger.blocks()), (vec![(0, 5)], 0));
}

#[test]
fn another_generation_ends_the_blocks_before_it() {
    let mut holder = Holder::new();
    holder.answer("ann", loan(10, 1_000));
    assert!(holder.admits("ann", 8), "another block is wanted");
    let exchange = holder.exchange().unwrap();
    holder.finish(exchange, vec![LeaseAnswer { generation: 2, ..loan(5, 1_000) }]);
    assert!(!holder.admits("ann", 6) && holder.admits("ann", 5));
    let exchange = holder.exchange().unwrap();
    assert_eq!(used_and_unused(&exchange), [(8, 2), (5, 0)]);
}

#[test]
fn a_block_is_wanted_once_when_a_key_is_hot_and_again_when_it_runs_out() {
    let mut holder = Holder::new();
    let wanted: Vec<_> = (0..3 * HOT).filter(|_| holder.look("ann", 2).wants).collect();
    assert_eq!(wanted, [HOT - 1, 2 * HOT - 1, 3 * HOT - 1], "again until it is added");
    let exchange = holder.exchange().unwrap();
    assert_eq!((exchange.wants.len(), exchange.wants[0].hits), (1, 160), "ten times 16 hits");
    assert!(!holder.look("ann", 2).wants, "there is no answer yet");
    holder.finish(exchange, vec![loan(40, 1_000)]);
    let until = (0..40).position(|_| holder.look("ann", 1).wants);
    assert_eq!(until, Some(29), "a quarter is left");
    assert!(!holder.look("ann", 1).wants, "it is wanted already");
    holder.advance(500);
    let exchange = holder.exchange().unwrap();
    assert!(exchange.wants[0].hits >= 60, "30 hits in half of the window and those before it");
}

#[test]
fn a_block_that_few_requests_use_is_not_followed_by_another() {
    let mut holder = Holder::new();
    holder.answer("ann", loan(10, 100));
    holder.advance(99);
    assert!((0..HOT - 1).all(|_| !holder.look("bob", 1).wants));
    holder.advance(401);
    let exchange = holder.exchange().unwrap();
    assert_eq!((used_and_unused(&exchange), exchange.wants.len()), (vec![(0, 10)], 0));
    holder.finish(exchange, vec![]);
    assert!(!holder.look("ann", 1).wants);
}

#[test]
fn a_denied_key_waits_for_its_time() {
    let mut holder = Holder::new();
    let valid_for = Duration::from_millis(300);
    let denial = WantAnswer::Denial { valid_for, counter: counter(0) };
    holder.answer("ann", LeaseAnswer { generation: 1, answer: denial });
    holder.advance(299);
    let denied = (0..2 * HOT).map(|_| holder.look("ann", 1));
    let denied: Vec<_> = denied.map(|look| (look.wants, look.kind)).collect();
    assert!(denied.iter().all(|(wants, kind)| !wants && matches!(kind, LookKind::Denied(_))));
    holder.advance(1);
    let look = holder.look("ann", 1);
    assert!(look.wants && matches!(look.kind, LookKind::Unknown));
}

#[test]
fn times_longer_than_a_service_gives_are_cut() {
    let hour = Duration::from_secs(3_600);
    let mut holder = Holder::new();
    let denial = WantAnswer::Denial { valid_for: hour, counter: counter(0) };
    holder.answer("ann", LeaseAnswer { generation: 1, answer: denial });
    holder.advance(999);
    assert!(matches!(holder.look("ann", 1).kind, LookKind::Denied(_)));
    holder.advance(1);
    assert!(matches!(holder.look("ann", 1).kind, LookKind::Unknown));
    let loan =
        WantAnswer::Loan { hits: 9, receipt: vec![1], usable_for: hour, counter: counter(9) };
    holder.answer("ann", LeaseAnswer { generation: 1, answer: loan });
    holder.advance(59_000);
    assert!(matches!(holder.look("ann", 1).kind, LookKind::Taken(..)));
    holder.advance(1_000);
    assert!(matches!(holder.look("ann", 1).kind, LookKind::Unknown));
}

#[test]
fn what_is_never_lent_is_wanted_again_after_10_s() {
    let mut holder = Holder::new();
    holder.answer("ann", LeaseAnswer { generation: 0, answer: WantAnswer::NotLeasable });
    for (ms, wants) in [(9_999, false), (1, true)] {
        holder.advance(ms);
        assert_eq!((0..HOT).any(|_| holder.look("ann", 1).wants), wants);
    }
}

#[test]
fn an_exchange_has_keys_of_one_domain_and_at_most_256_of_a_kind() {
    let mut holder = Holder::new();
    let names: Vec<&'static str> =
        (0..600).map(|number| &*Box::leak(format!("{number}").into_boxed_str())).collect();
    for name in names.iter().copied().chain(["depot"]) {
        (0..HOT).for_each(|_| drop(holder.look(name, 1)));
    }
    let mut sizes = Vec::new();
    let mut next = holder.exchange();
    while let Some(exchange) = next {
        sizes.push((exchange.domain().to_owned(), exchange.wants.len()));
        let answers = exchange.wants.iter().map(|_| loan(1, 1_000)).collect();
        holder.finish(exchange, answers);
        next = holder.exchanger.begin(holder.now);
    }
    sizes.sort();
    let wanted = [("depot", 1), ("shop", 88), ("shop", 256), ("shop", 256)];
    assert_eq!(sizes, wanted.map(|(domain, count)| (domain.to_owned(), count)));
    assert_eq!(holder.exchanger.blocks(), 601);
}

#[test]
fn keys_are_bounded_and_idle_ones_are_removed() {
    let mut holder = Holder::new();
    for number in 0..MAX_KEYS + 10 {
        let name: &'static str = Box::leak(format!("{number}").into_boxed_str());
        (0..HOT).for_each(|_| drop(holder.look(name, 1)));
        if number % 500 == 0 {
            holder.exchanger.collect(&holder.leases, holder.now);
        }
    }
    holder.exchanger.collect(&holder.leases, holder.now);
    assert_eq!(holder.leases.count(), MAX_KEYS);
    assert!((0..HOT).all(|_| !holder.look("one more", 1).wants));
    while let Some(exchange) = holder.exchange() {
        holder.finish(exchange, vec![]);
    }
    holder.advance(11_000);
    holder.exchanger.collect(&holder.leases, holder.now);
    assert_eq!(holder.leases.count(), 0);
}

#[test]
fn an_exchange_has_at_most_48_kib() {
    let mut holder = Holder::new();
    for number in 0..60 {
        // With the 32 bytes of its item, a key has 1 KiB.
        let name: &'static str = Box::leak(format!("{number:0992}").into_boxed_str());
        (0..HOT).for_each(|_| drop(holder.look(name, 1)));
    }
    let first = holder.exchange().unwrap();
    let second = holder.exchanger.begin(holder.now).unwrap();
    assert_eq!([first.wants.len(), second.wants.len()], [48, 12]);
}

#[test]
fn an_exchanger_is_idle_without_blocks_and_keys_that_wait() {
    let mut holder = Holder::new();
    assert!(holder.exchanger.is_idle() && !holder.leases.has_wants());
    assert_eq!(holder.exchanger.next_end(), None);
    (0..HOT).for_each(|_| drop(holder.look("ann", 1)));
    assert!(holder.leases.has_wants(), "of a new key");
    holder.exchanger.collect(&holder.leases, holder.now);
    assert!(!holder.leases.has_wants() && !holder.exchanger.is_idle());
    let exchange = holder.exchanger.begin(holder.now).unwrap();
    assert!(holder.exchanger.is_idle());
    holder.finish(exchange, vec![loan(10, 1_000)]);
    assert!(!holder.exchanger.is_idle());
    assert_eq!(holder.exchanger.next_end(), Some(holder.now + Duration::from_secs(1)));
    assert!(holder.admits("ann", 9) && holder.leases.has_wants(), "of a key in use");
}

#[test]
fn requests_that_blocks_admit_keep_a_key_hot() {
    let mut holder = Holder::new();
    holder.answer("ann", loan(100, 1_000));
    for _ in 0..3 {
        holder.advance(800);
        assert!(holder.look("ann", 1).wants, "the block is nearly over");
        let exchange = holder.exchange().unwrap();
        holder.finish(exchange, vec![loan(100, 1_000)]);
        // No block has as many hits: the service is to decide.
        drop(holder.look("ann", 1_000));
    }
    // The third window of demand: two requests were not admitted in the one before.
    holder.advance(250);
    drop(holder.look("ann", 1_000));
    let admitted = (0..HOT).filter(|_| holder.admits("ann", 1)).count();
    holder.advance(550);
    assert!(admitted == HOT && holder.look("ann", 1).wants);
}

#[test]
fn a_key_is_removed_10_s_after_its_last_answer() {
    for (ms, count) in [(2_000, 1), (9_999, 1), (10_000, 0)] {
        let mut holder = Holder::new();
        let exchange = holder.wanted("ann");
        holder.advance(9_000);
        let answer = LeaseAnswer { generation: 1, answer: WantAnswer::NotLeasable };
        holder.finish(exchange, vec![answer]);
        holder.advance(ms);
        holder.exchanger.collect(&holder.leases, holder.now);
        assert_eq!(holder.leases.count(), count, "{ms} ms later");
    }
}

#[test]
fn a_key_stays_until_its_want_is_answered() {
    let mut holder = Holder::new();
    let _exchange = holder.wanted("ann");
    holder.advance(60_000);
    holder.exchanger.collect(&holder.leases, holder.now);
    assert_eq!(holder.leases.count(), 1);
}

#[test]
fn words_of_operations_on_holds_are_known() {
    assert!(RESERVED.iter().all(|word| is_on_hold(word.as_bytes())));
    assert!(![&b""[..], b"user"].iter().any(|word| is_on_hold(word)));
}

#[test]
fn a_key_has_four_blocks_at_most() {
    let mut holder = Holder::new();
    holder.answer("ann", loan(4, 1_000));
    for blocks in 1..=4 {
        assert!(holder.admits("ann", 3), "one is left");
        // No block has as many hits.
        assert_eq!(holder.leases.has_wants() || holder.look("ann", 9).wants, blocks < 4);
        if let Some(exchange) = holder.exchange() {
            holder.finish(exchange, vec![loan(4, 1_000)]);
        }
    }
    assert_eq!(holder.exchanger.blocks(), 4);
}

#[test]
fn idle_keys_stay_until_a_second_after_the_last_removal() {
    let mut holder = Holder::new();
    holder.answer("ann", LeaseAnswer { generation: 1, answer: WantAnswer::NotLeasable });
    for (ms, count) in [(9_500, 1), (999, 1), (1, 0)] {
        holder.advance(ms);
        holder.exchanger.collect(&holder.leases, holder.now);
        assert_eq!(holder.leases.count(), count, "{ms} ms later");
    }
}
