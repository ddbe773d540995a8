//! The filter: decides a request if there are blocks in hand for all of its descriptors, or if it
//! has one and the service denies it; passes all others on untouched.

use std::time::Instant;

use smallvec::SmallVec;
use tollgate_lease::holder::{LeasedCounter, LookKind, TakenLease};

use crate::config::{Config, Error, RateLimits};
use crate::descriptor::Descriptor;
use crate::headers::{self, LimitHeaders};
use crate::holder::{Driver, Registry};
use crate::host::{Request, Response, Stat};
use crate::matcher::Ambiguous;
use crate::pacer::Wake;

/// Response code details of a denial, as of the rate limit filter.
const DETAILS: &str = "request_rate_limited";

/// A configuration of the filter.
#[derive(Debug)]
pub(crate) struct Filter {
    config: Config,
    driver: Driver,
}

/// An error of the start of a filter.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartError {
    #[error(transparent)]
    Config(#[from] Error),
    #[error("the system refuses a thread: {0}")]
    Thread(#[from] std::io::Error),
}

/// The decision of a request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The request continues, and its response gets these headers.
    Continue(Option<LimitHeaders>),
    /// The module has answered the request.
    Answered,
}

impl Filter {
    /// Starts a filter.
    ///
    /// # Errors
    ///
    /// The configuration is invalid, or the system refuses a thread.
    pub(crate) fn start(
        config: &[u8],
        registry: &Registry,
        wake: impl Wake,
        clock: fn() -> Instant,
    ) -> Result<Self, StartError> {
        let config = Config::read(config)?;
        let driver = registry.join(&config.domain, &config.cluster, wake, clock)?;
        Ok(Self { config, driver })
    }

    /// Decides a request, or passes it on. `of_route` are the descriptors of its route, if it has
    /// any.
    pub(crate) fn decide(
        &self,
        request: &mut impl Request,
        of_route: Option<&RateLimits>,
    ) -> Verdict {
        // The rate limit filter decides nothing without a route.
        if request.cluster().is_none() {
            return Verdict::Continue(None);
        }
        let limits = of_route.unwrap_or(&self.config.rate_limits);
        let Ok(descriptors) = descriptors(limits, request) else { return pass_on(request) };
        if descriptors.is_empty() {
            return Verdict::Continue(None);
        }
        let are_leasable = descriptors.iter().enumerate().all(|(index, descriptor)| {
            let others = descriptors.get(..index).unwrap_or_default();
            descriptor.is_leasable() && !others.contains(descriptor)
        });
        if !are_leasable {
            return pass_on(request);
        }
        let now = self.driver.now();
        let mut taken = SmallVec::<[(TakenLease, LeasedCounter); 2]>::new();
        let mut denied = None;
        for descriptor in &descriptors {
            // All are looked at, since the demand for each is counted.
            match self.driver.look(descriptor, now) {
                LookKind::Taken(hits, counter) => taken.push((hits, counter)),
                LookKind::Denied(counter) => denied = Some(counter),
                LookKind::Unknown => {}
            }
        }
        if taken.len() == descriptors.len() && request.mark_decided() {
            request.count(Stat::Decided);
            let counters = taken.iter().map(|(_, counter)| *counter);
            return Verdict::Continue(
                self.config.shows_limits.then(|| headers::limits(counters)).flatten(),
            );
        }
        for (hits, _) in taken {
            hits.put_back();
        }
        // What a denied request costs its other descriptors is for the service to say.
        match denied.filter(|_| descriptors.len() == 1) {
            Some(counter) => self.deny(request, counter),
            None => pass_on(request),
        }
    }

    fn deny(&self, request: &mut impl Request, counter: LeasedCounter) -> Verdict {
        request.count(Stat::OverLimit);
        let limits = self.config.shows_limits.then(|| headers::limits([counter])).flatten();
        let retry_after = self.config.shows_retry_after.then(|| headers::seconds(&counter));
        let mut list = SmallVec::<[(&str, &str); 6]>::new();
        if self.config.shows_ratelimited {
            list.push(("x-envoy-ratelimited", "true"));
        }
        if let Some(limits) = &limits {
            list.extend(limits.pairs());
        }
        if let Some(retry_after) = &retry_after {
            list.push(("retry-after", retry_after));
        }
        request.respond(429, &list, DETAILS);
        Verdict::Answered
    }

    /// Returns its part in the exchanges of the domain.
    pub(crate) fn driver(&self) -> &Driver {
        &self.driver
    }
}

/// Returns the descriptors of a request.
///
/// # Errors
///
/// They depend on a setting of Envoy.
pub(crate) fn descriptors(
    limits: &RateLimits,
    request: &impl Request,
) -> Result<SmallVec<[Descriptor; 2]>, Ambiguous> {
    let mut descriptors = SmallVec::new();
    'limits: for actions in &limits.0 {
        let mut descriptor = Descriptor::default();
        for action in actions {
            if !action.apply(request, &mut descriptor)? {
                continue 'limits;
            }
        }
        descriptors.push(descriptor);
    }
    Ok(descriptors)
}

fn pass_on(request: &mut impl Request) -> Verdict {
    request.count(Stat::PassedOn);
    Verdict::Continue(None)
}

/// Sets the headers of a decided request's response.
pub(crate) fn show(limits: &LimitHeaders, response: &mut impl Response) {
    for (name, value) in limits.pairs() {
        response.set_header(name, value);
    }
}
