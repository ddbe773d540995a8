//! Loans: a return counts once, on every store and by way of any replica; one round trip for all
//! wants. That they never exceed the limit is tested by models and simulated worlds.

use std::collections::HashMap;

use tollgate::algorithm::Charge;
use tollgate::algorithm::amend::Amendment;
use tollgate::grpc::proto::lease::lease_answer::Answer;
use tollgate::grpc::proto::lease::{LeaseResult, LeaseWant};
use tollgate::limiter::Modes;
use tollgate::store::loan::{LoanReturn, Returned};

use super::{calls, cluster, on_all_stores, policy, remaining, serve};
use crate::support::loans::{Holder, back, of};
use crate::support::policy::Policies;
use crate::support::redis::Redis;
use crate::support::rls::descriptor;
use crate::support::traces::sides::Sides;

const AT: u64 = 1_780_000_000_000_000;
const LEASE: &str = "lease: { size: 50, ttl: 30s, holders: [client] }";

fn limit(algorithm: &str) -> String {
    format!("algorithm: {algorithm}, unit: day, requests_per_unit: 1000, charge: admitted, {LEASE}")
}

#[tokio::test]
async fn a_return_counts_once_and_in_time() {
    let servers = (Redis::start().await, cluster().await);
    let sides = Sides::new(&[servers.0.url(), servers.1.url()], "loans:", Modes::default()).await;
    let algorithms = ["fixed_window", "sliding_window", "gcra", "sliding_log"];
    let limits = algorithms.map(|algorithm| (algorithm, limit(algorithm)));
    sides.install(&policy(&limits.each_ref().map(|(key, limit)| (*key, limit.as_str()))));
    let second = 1_000_000;
    for key in algorithms {
        let descriptor = format!("{key}=a");
        let charged = sides.lend(AT, &descriptor, 100, Charge::Admitted).await.unwrap().unwrap();
        let usable_for = tollgate::algorithm::time::Micros::from_secs(30);
        let back = |hits, number: u8| LoanReturn {
            unused: tollgate::algorithm::Receipt { hits, ..charged },
            number: [number; 16],
            usable_for,
        };
        let give_back = async |at, back| sides.return_loan(at, &descriptor, back).await.unwrap();
        let left = async |at| {
            let touched = sides.amend(at, &descriptor, Amendment::Look).await;
            touched.unwrap().unwrap().after.windows[0].remaining
        };
        assert_eq!(left(AT).await, 900, "{key}");
        // The clock has stepped back since the charge: the number would be kept too briefly.
        assert_eq!(give_back(AT - second, back(60, 1)).await, Returned::Late, "{key}");
        assert_eq!(give_back(AT + second, back(60, 1)).await, Returned::Accepted, "{key}");
        assert_eq!(left(AT + second).await, 960, "{key}");
        for at in [1, 2, 30, 34].map(|seconds| AT + seconds * second) {
            assert_eq!(give_back(at, back(60, 1)).await, Returned::Repeated, "{key} at {at}");
        }
        assert_eq!(give_back(AT + 34 * second, back(0, 2)).await, Returned::Accepted, "{key}");
        assert_eq!(give_back(AT + 34 * second, back(40, 2)).await, Returned::Repeated, "{key}");
        assert_eq!(give_back(AT + 35 * second, back(40, 3)).await, Returned::Late, "{key}");
        let other = back(40, 4);
        let last = AT + 35 * second - 1;
        assert_eq!(give_back(last, other).await, Returned::Accepted, "{key}");
        // A rate drains meanwhile, and takes back less in doubt.
        assert!((999..=1000).contains(&left(last).await), "{key}");
    }
}

#[tokio::test]
async fn a_return_by_way_of_another_replica_counts_once() {
    for (service, client, _guard) in on_all_stores(&[("tenant", &limit("fixed_window"))]).await {
        let mut holder = Holder::connect(service.grpc).await;
        let loan = holder.borrow("tenant", 50).await;
        assert_eq!(remaining(&client, "tenant", "a").await, 950);
        let returns = vec![back("tenant", &loan, 50, 0); 8];
        let mut results: HashMap<LeaseResult, usize> = HashMap::new();
        for result in holder.exchange(of(vec![], returns)).await.unwrap().results() {
            *results.entry(result).or_default() += 1;
        }
        let expected = [(LeaseResult::Accepted, 1), (LeaseResult::Repeated, 7)];
        assert_eq!(results, HashMap::from(expected));
        assert_eq!(remaining(&client, "tenant", "a").await, 1000);
    }
    let redis = Redis::start().await;
    let policies = Policies::of(&policy(&[("tenant", &limit("gcra"))]));
    let (first, client) = serve(&policies, &redis.url(), &[]).await;
    let (second, _) = serve(&policies, &redis.url(), &[]).await;
    let mut holders = [Holder::connect(first.grpc).await, Holder::connect(second.grpc).await];
    let loan = holders[0].borrow("tenant", 50).await;
    let once = back("tenant", &loan, 50, 0);
    assert_eq!(holders[1].give_back(once.clone()).await, LeaseResult::Accepted);
    let left = remaining(&client, "tenant", "a").await;
    assert_eq!(holders[0].give_back(once).await, LeaseResult::Repeated);
    assert_eq!(remaining(&client, "tenant", "a").await, left);
}

#[tokio::test]
async fn all_wants_of_a_call_reach_redis_together() {
    let redis = Redis::start().await;
    let policies = Policies::of(&policy(&[("tenant", &limit("fixed_window"))]));
    let (service, client) = serve(&policies, &redis.url(), &[]).await;
    client.hit("tenant", "warm").await;
    let mut holder = Holder::connect(service.grpc).await;
    let wants: Vec<_> = (0..256)
        .map(|number: u32| {
            let of_number = descriptor(&[("tenant", &number.to_string())]);
            LeaseWant { descriptor: Some(of_number), hits: 50 }
        })
        .collect();
    let before = calls(&[&redis], "evalsha").await + calls(&[&redis], "eval").await;
    let answers = holder.exchange(of(wants, vec![])).await.unwrap().answers;
    let spent = calls(&[&redis], "evalsha").await + calls(&[&redis], "eval").await - before;
    let is_loan = |answer: &Option<Answer>| matches!(answer, Some(Answer::Loan(_)));
    assert!(answers.iter().all(|answer| is_loan(&answer.answer)));
    // A batch takes at most 500 us of the server's time.
    assert!(spent <= 16, "{spent} script calls for 256 wants");
}

#[tokio::test]
async fn nothing_is_lent_while_the_store_is_away() {
    let redis = Redis::start().await;
    let policies = Policies::of(&policy(&[("tenant", &limit("fixed_window"))]));
    let (service, _client) = serve(&policies, &redis.url(), &["--store-timeout", "500ms"]).await;
    let mut holder = Holder::connect(service.grpc).await;
    let loan = holder.borrow("tenant", 50).await;
    redis.kill();
    let answer = holder.want("tenant", 50).await;
    let Some(Answer::AskEachRequest(answer_each)) = answer.answer else { panic!("{answer:?}") };
    assert_eq!(answer_each.reason().as_str_name(), "STORE_FAILED");
    let result = holder.give_back(back("tenant", &loan, 50, 0)).await;
    assert_eq!(result, LeaseResult::Failed);
}
