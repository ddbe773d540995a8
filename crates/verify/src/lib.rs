//! Verification of a rate limit service by the history of its calls.
//!
//! Sends the requests of a run, and checks the answers. A call may have been judged at any instant
//! between its begin and its end, and an error may have charged its hits. A finding is reported
//! only if no choice of these instants and charges explains the answers.
//!
//! Knows limits and policies, and no protocol of a service: connections are given to it, as
//! [`service::VerifiedService`]. May use `core` and `policy`; no stores. Reads and writes no files,
//! but its workload may run a command that disturbs the service, by `sh -c`. What checks a history
//! is pure: no clock, no IO.
//!
//! | file | contents |
//! |---|---|
//! | [`rules`] | the rules that can be verified, and requests that match them |
//! | `counters` | the counters that these requests use |
//! | `open_holds` | holds that a run can end |
//! | [`service`] | the service, as its clients see it |
//! | `requests` | the next request, and the record of its answer |
//! | [`workload`] | the requests of a run |
//! | [`run`] | a run: its rules, counters and calls |
//! | [`history`] | calls and answers |
//! | `clock` | the clock of this machine |
//! | `charge` | the hits of a call over time |
//! | `windows` | windows of a period or a calendar |
//! | `bound` | limits as bounds on histories |
//! | `excess` | admitted calls that exceed a bound |
//! | `counted` | hits that count against a call |
//! | `denials` | denials that nothing explains |
//! | [`check`] | the properties, each with its smallest example |
//! | [`verdict`] | verdicts on the properties, as far as a run shows them |

mod bound;
mod charge;
pub mod check;
mod clock;
mod counted;
mod counters;
mod denials;
mod excess;
pub mod history;
mod open_holds;
mod requests;
pub mod rules;
pub mod run;
pub mod service;
pub mod verdict;
mod windows;
pub mod workload;

#[cfg(test)]
mod tests;
