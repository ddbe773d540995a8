//! A holder of leased hits: a client of `LeaseService`, with short constructors for its messages.

use std::net::SocketAddr;

use tollgate::grpc::proto::lease::lease_answer::Answer;
use tollgate::grpc::proto::lease::lease_service_client::LeaseServiceClient;
use tollgate::grpc::proto::lease::{
    ExchangeRequest, ExchangeResponse, LeaseAnswer, LeaseResult, LeaseReturn, LeaseWant, Loan,
};
use tonic::Status;
use tonic::transport::Channel;

use super::rls::{channel, descriptor};

/// A client of the service in domain `test`.
#[derive(Clone)]
pub struct Holder(LeaseServiceClient<Channel>);

impl Holder {
    pub async fn connect(address: SocketAddr) -> Self {
        Self::over(channel(address).await)
    }

    pub fn over(channel: Channel) -> Self {
        Self(LeaseServiceClient::new(channel))
    }

    pub async fn exchange(&mut self, request: ExchangeRequest) -> Result<ExchangeResponse, Status> {
        Ok(self.0.exchange(request).await?.into_inner())
    }

    /// Returns the answer to one want.
    pub async fn want(&mut self, key: &str, hits: u32) -> LeaseAnswer {
        let mut response = self.exchange(of(vec![want(key, hits)], vec![])).await.unwrap();
        assert_eq!((response.answers.len(), response.results.len()), (1, 0));
        response.answers.remove(0)
    }

    /// Borrows hits, which must be lent.
    pub async fn borrow(&mut self, key: &str, hits: u32) -> Loan {
        match self.want(key, hits).await.answer {
            Some(Answer::Loan(loan)) => loan,
            other => panic!("{other:?}"),
        }
    }

    /// Returns a loan, and the result of that.
    pub async fn give_back(&mut self, back: LeaseReturn) -> LeaseResult {
        let response = self.exchange(of(vec![], vec![back])).await.unwrap();
        assert_eq!((response.answers.len(), response.results.len()), (0, 1));
        response.results().next().unwrap()
    }
}

/// Returns a request in domain `test`.
pub fn of(wants: Vec<LeaseWant>, returns: Vec<LeaseReturn>) -> ExchangeRequest {
    ExchangeRequest { domain: "test".to_owned(), wants, returns }
}

/// Returns a want for the value `a` of a key.
pub fn want(key: &str, hits: u32) -> LeaseWant {
    LeaseWant { descriptor: Some(descriptor(&[(key, "a")])), hits }
}

/// Returns the return of a loan of the value `a` of a key.
pub fn back(key: &str, loan: &Loan, unused: u32, used: u32) -> LeaseReturn {
    let descriptor = Some(descriptor(&[(key, "a")]));
    LeaseReturn { descriptor, receipt: loan.receipt.clone(), unused, used }
}
