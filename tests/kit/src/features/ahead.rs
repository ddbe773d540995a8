//! Hits charged before it is known how many are used, in the ways that callers have.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use http_body::Body as _;
use prost::Message as _;
use serde_json::{Value, json};
use tollgate::algorithm::amend::Amendment;
use tollgate::descriptor::hold::{COMMIT, RESERVE, SETTLE};
use tollgate::grpc::json::{HoldPath, hold_text};
use tollgate::grpc::proto::hold::{CancelRequest, CommitRequest, ReserveRequest};
use tollgate::grpc::proto::lease::lease_answer::Answer;
use tollgate::grpc::proto::lease::{ExchangeRequest, LeaseReturn, LeaseWant};
use tollgate::grpc::proto::quota::{BucketId, RateLimitQuotaResponse};
use tollgate::grpc::proto::rate_limit_descriptor::RateLimitOverride;
use tollgate::grpc::proto::rate_limit_response::Code;
use tollgate::grpc::proto::{RateLimitDescriptor, RateLimitResponse};
use tollgate::grpc::rights::DomainRights;
use tollgate::grpc::service::HoldCall;
use tollgate::grpc::service::quotas::QuotaCaller;
use tollgate::http2::{BodySender, Budget, CallAccount, Delivery, RequestBody};
use tonic::body::Body;

use super::place::Place;
use super::{AHEAD, Form};
use crate::http2::framed;
use crate::rls::descriptor;
use crate::world::proxy::{ProxyDecision, SimProxy};

/// The interval of a proxy's reports.
const REPORTS: Duration = Duration::from_secs(5);
/// Time in which a proxy gets its first assignment.
const READ_WITHIN: Duration = Duration::from_secs(1);
/// Intervals after which every loan of a proxy has ended.
const ENDED_AFTER: u32 = 6;
/// Bytes that a stream accepts, and the memory of its connection.
const ROOM: usize = 1 << 20;
/// Bytes before a message.
const PREFIX: usize = 5;
/// Requests of a process that make a key worth a block.
pub(super) const WARM: u32 = 10;
/// Time after which a block of a process has been returned.
const BLOCK_ENDED: Duration = Duration::from_secs(3);
const ID: &str = "r";

/// A caller of the limit of a cell, in one of the ways.
pub(super) struct CellCaller<'p> {
    pub(super) place: &'p Place,
    form: Form,
    /// The limit that each request has instead, if there is one.
    pub(super) limit: Option<RateLimitOverride>,
    /// A loan: its receipt and its hits.
    loan: Option<(Receipt, u32)>,
    /// Hits that requests have taken one by one.
    taken: u32,
    proxy: Option<Proxy>,
}

/// A way to end a hold without a cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Abandoned {
    /// By a descriptor in a request like that of a proxy, whoever made the hold.
    Settled,
    /// By HoldService.
    Cancelled,
}

/// A receipt of a loan, by gRPC or in JSON.
enum Receipt {
    Bytes(Vec<u8>),
    Text(Value),
}

/// A proxy with its stream.
struct Proxy {
    client: SimProxy,
    messages: BodySender,
    responses: Body,
    delivery: Delivery,
}

impl<'p> CellCaller<'p> {
    pub(super) fn new(place: &'p Place, form: Form) -> Self {
        Self { place, form, limit: None, loan: None, taken: 0, proxy: None }
    }

    /// Returns the descriptor of the counter, with an operation on a hold if there is one.
    fn descriptor(&self, operation: Option<&str>) -> RateLimitDescriptor {
        let entries: Vec<_> =
            std::iter::once(("k0", "a")).chain(operation.map(|key| (key, ID))).collect();
        RateLimitDescriptor { limit: self.limit, ..descriptor(&entries) }
    }

    /// Makes a plain request. Returns its response, or the error.
    pub(super) async fn request(&self, hits: u64) -> Result<RateLimitResponse, String> {
        let one = RateLimitDescriptor { hits_addend: Some(hits), ..self.descriptor(None) };
        self.place.decide(vec![one]).await
    }

    /// Makes a plain request. Returns `true` if it is admitted, or the error.
    pub(super) async fn is_admitted(&self, hits: u64) -> Result<bool, String> {
        self.request(hits).await.map(|response| response.overall_code() == Code::Ok)
    }

    async fn of_hold(&self, operation: &str, hits: u32) -> Result<RateLimitResponse, String> {
        let descriptor = self.descriptor(Some(operation));
        let one = RateLimitDescriptor { hits_addend: Some(hits.into()), ..descriptor };
        self.place.decide(vec![one]).await
    }

    /// Returns the descriptor of the counter in JSON.
    fn json_descriptor(&self) -> Value {
        let limit = self.limit.map_or(
            Value::Null,
            |limit| json!({ "requestsPerUnit": limit.requests_per_unit, "unit": limit.unit }),
        );
        json!({ "entries": [{ "key": "k0", "value": "a" }], "limit": limit })
    }

    async fn in_json(&self, hits: u32, is_refund: bool) -> Result<RateLimitResponse, String> {
        let mut descriptor = self.json_descriptor();
        descriptor["hitsAddend"] = hits.into();
        descriptor["isNegativeHits"] = is_refund.into();
        let request = json!({ "domain": "test", "descriptors": [descriptor] });
        self.place.decide_json(&request.to_string()).await
    }

    async fn of_json(
        &self,
        path: HoldPath,
        hits: Option<u32>,
    ) -> Result<RateLimitResponse, String> {
        let descriptors = [self.json_descriptor()];
        let mut call = json!({ "domain": "test", "descriptors": descriptors, "id": ID });
        if let Some(hits) = hits {
            call["hits"] = hits.into();
        }
        let call =
            hold_text(path, call.to_string().as_bytes()).map_err(|error| error.to_string())?;
        self.place.hold(call).await
    }

    /// Asks for hits ahead. Returns how many are charged; `None` if the caller gets none, and the
    /// reason if that is an error.
    pub(super) async fn charge_ahead(&mut self, hits: u32) -> Result<Option<u32>, String> {
        let is_ok =
            |response: RateLimitResponse| (response.overall_code() == Code::Ok).then_some(hits);
        let domain = "test".to_owned();
        let id = ID.to_owned();
        match self.form {
            Form::Plain | Form::Windows | Form::Calendar => {
                self.request(hits.into()).await.map(is_ok)
            }
            Form::ExtAuthz => Ok(self.place.check().await?.then_some(AHEAD)),
            Form::ForwardAuth => Ok(self.place.forward_auth().await?.then_some(AHEAD)),
            Form::Json => self.in_json(hits, false).await.map(is_ok),
            Form::Hold => self.of_hold(RESERVE, hits).await.map(is_ok),
            Form::HoldService => {
                let descriptors = vec![self.descriptor(None)];
                let reserve = ReserveRequest { domain, descriptors, id, hits, ttl: None };
                self.place.hold(HoldCall::from(reserve)).await.map(is_ok)
            }
            Form::HoldJson => self.of_json(HoldPath::Reserve, Some(hits)).await.map(is_ok),
            Form::Process => {
                self.take_singly(WARM).await?;
                self.place.wait(Duration::from_millis(1)).await;
                let used = self.used().await;
                Ok((used > 0).then_some(used))
            }
            Form::Client => {
                let wants = vec![LeaseWant { descriptor: Some(self.descriptor(None)), hits }];
                let call = ExchangeRequest { domain, wants, returns: Vec::new() };
                let mut response = self.place.exchange(call).await?;
                let Answer::Loan(loan) = response.answers.remove(0).answer.unwrap() else {
                    return Ok(None);
                };
                self.loan = Some((Receipt::Bytes(loan.receipt), loan.hits));
                Ok(Some(loan.hits))
            }
            Form::ClientJson => {
                let want = json!({ "descriptor": self.json_descriptor(), "hits": hits });
                let call = json!({ "domain": domain, "wants": [want] });
                let mut response = self.place.exchange_json(&call).await?;
                let loan = response["answers"][0]["loan"].take();
                let Some(hits) = loan["hits"].as_u64() else { return Ok(None) };
                let hits = hits.try_into().unwrap();
                self.loan = Some((Receipt::Text(loan["receipt"].clone()), hits));
                Ok(Some(hits))
            }
            Form::Proxy => Ok(self.join(hits).await),
        }
    }

    /// Makes requests of one hit each.
    async fn take_singly(&mut self, count: u32) -> Result<(), String> {
        for _ in 0..count {
            let response = self.request(1).await?;
            self.taken += u32::from(response.overall_code() == Code::Ok);
        }
        Ok(())
    }

    /// Returns the loan, if there is one.
    async fn return_loan(&mut self, used: u32) {
        let Some((receipt, hits)) = self.loan.take() else { return };
        let unused = hits - used;
        let domain = "test".to_owned();
        match receipt {
            Receipt::Bytes(receipt) => {
                let descriptor = Some(self.descriptor(None));
                let returns = vec![LeaseReturn { descriptor, receipt, unused, used }];
                let call = ExchangeRequest { domain, wants: Vec::new(), returns };
                self.place.exchange(call).await.unwrap();
            }
            Receipt::Text(receipt) => {
                let descriptor = self.json_descriptor();
                let back = json!({ "descriptor": descriptor, "receipt": receipt, "unused": unused, "used": used });
                let call = json!({ "domain": domain, "returns": [back] });
                self.place.exchange_json(&call).await.unwrap();
            }
        }
    }

    async fn used(&self) -> u32 {
        let reading = self.place.amend(Amendment::Look).await;
        reading.windows[0].used.try_into().unwrap()
    }

    /// Uses some of the hits that were charged ahead, and gives the rest back.
    pub(super) async fn end(&mut self, ahead: u32, cost: u32) {
        let domain = "test".to_owned();
        match self.form {
            Form::Plain | Form::ExtAuthz | Form::ForwardAuth | Form::Windows | Form::Calendar => {
                let hits_addend = Some(u64::from(ahead - cost));
                let back = self.descriptor(None);
                let back = RateLimitDescriptor { hits_addend, is_negative_hits: true, ..back };
                self.place.decide(vec![back]).await.unwrap();
            }
            Form::Json => drop(self.in_json(ahead - cost, true).await.unwrap()),
            Form::Hold => drop(self.of_hold(COMMIT, cost).await.unwrap()),
            Form::HoldService => {
                let descriptors = vec![self.descriptor(None)];
                let commit = CommitRequest { domain, descriptors, id: ID.to_owned(), hits: cost };
                self.place.hold(HoldCall::from(commit)).await.unwrap();
            }
            Form::HoldJson => drop(self.of_json(HoldPath::Commit, Some(cost)).await.unwrap()),
            Form::Process => {
                self.take_singly(cost.saturating_sub(self.taken)).await.unwrap();
                self.place.wait(BLOCK_ENDED).await;
            }
            Form::Client | Form::ClientJson => self.return_loan(cost).await,
            Form::Proxy => {
                let place = self.place;
                let Some(proxy) = &mut self.proxy else { return };
                for _ in 0..cost {
                    proxy.take(place);
                }
                for _ in 0..ENDED_AFTER {
                    proxy.report(place, REPORTS).await;
                }
            }
        }
    }

    /// Ends the hits of a hold that was charged ahead without a cost, in a way of its form.
    pub(super) async fn abandon(&mut self, way: Abandoned) {
        let domain = "test".to_owned();
        let id = ID.to_owned();
        match (way, self.form) {
            (Abandoned::Settled, _) => drop(self.of_hold(SETTLE, 0).await.unwrap()),
            (Abandoned::Cancelled, Form::HoldJson) => {
                self.of_json(HoldPath::Extend, None).await.unwrap();
                self.of_json(HoldPath::Cancel, None).await.unwrap();
            }
            (Abandoned::Cancelled, _) => {
                let descriptors = vec![self.descriptor(None)];
                let cancel = CancelRequest { domain, descriptors, id };
                self.place.hold(HoldCall::from(cancel)).await.unwrap();
            }
        }
    }

    /// Lets a proxy make requests that are denied, report them, and get what is lent to it.
    async fn join(&mut self, denied: u32) -> Option<u32> {
        let place = self.place;
        let delivery = Delivery::new();
        delivery.set_room(ROOM);
        let account = CallAccount::new(Arc::new(Budget::new(ROOM)));
        let waker = Waker::noop().clone();
        let (messages, body) = RequestBody::channel(waker, account.clone(), Some(ROOM));
        let rights = DomainRights::All;
        let caller =
            QuotaCaller { rights, delivery: delivery.clone(), account, message_timeout: REPORTS };
        let responses = Arc::clone(&place.service).open_quotas(caller, body);
        let mut proxy = Proxy { client: SimProxy::default(), messages, responses, delivery };
        let before = self.used().await;
        for _ in 0..denied {
            proxy.take(place);
        }
        proxy.report(place, READ_WITHIN).await;
        self.proxy = Some(proxy);
        let lent = self.used().await - before;
        (lent > 0).then_some(lent)
    }

    /// Lets the proxy make a request. Returns `true` if it is admitted.
    pub(super) fn is_admitted_by_proxy(&mut self) -> bool {
        let proxy = self.proxy.as_mut().unwrap();
        matches!(proxy.take(self.place), ProxyDecision::Allowed | ProxyDecision::Lent(_))
    }
}

impl Proxy {
    fn take(&mut self, place: &Place) -> ProxyDecision {
        let bucket = || BucketId { bucket: [("k0".to_owned(), "a".to_owned())].into() };
        self.client.decide(0, bucket, place.now_us())
    }

    /// Reports all requests, and reads what is assigned for a time.
    async fn report(&mut self, place: &Place, time: Duration) {
        let Some(mut report) = self.client.report(None) else { return };
        report.domain = "test".to_owned();
        self.messages.send(&framed(&report.encode_to_vec())).unwrap();
        let reading = std::future::poll_fn(|cx| self.poll_read(place, cx));
        tokio::select! {
            biased;
            () = reading => panic!("the stream has ended"),
            () = place.wait(time) => {}
        }
    }

    /// Reads what is sent, and acknowledges it. Ready at the end of the stream.
    fn poll_read(&mut self, place: &Place, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            let frame = Pin::new(&mut self.responses).poll_frame(cx);
            while let Some(ping) = self.delivery.take_ping(1) {
                let number = u32::from_be_bytes(*ping.last_chunk::<4>().unwrap());
                self.delivery.acknowledge(number, tokio::time::Instant::now().into_std());
            }
            match frame {
                Poll::Ready(Some(Ok(frame))) => {
                    let bytes = frame.into_data().unwrap();
                    let response = RateLimitQuotaResponse::decode(&bytes[PREFIX..]).unwrap();
                    for action in &response.bucket_action {
                        self.client.apply(action, Some(0), place.now_us());
                    }
                }
                Poll::Ready(_) => return Poll::Ready(()),
                Poll::Pending => return Poll::Pending,
            }
        }
    }
}
