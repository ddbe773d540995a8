//! Verification of a rate limit service by the history of its calls.
//!
//! Pure: a history in, findings out. A call may have been judged at any instant between its begin
//! and its end, and an error may have charged its hits. A finding is reported only if no choice of
//! these instants and charges explains the answers.
//!
//! | file | contents |
//! |---|---|
//! | [`history`] | calls and answers |
//! | [`bound`] | limits as bounds on histories |
//! | [`excess`] | admitted calls that exceed a bound |
//! | [`counted`] | hits that count against a call |
//! | [`denials`] | denials that nothing explains |
//! | [`check`] | the properties, each with its smallest example |
//! | [`verdict`] | verdicts on the properties, as far as a run shows them |

pub mod bound;
pub mod check;
pub mod counted;
pub mod denials;
pub mod excess;
pub mod history;
pub mod verdict;

#[cfg(test)]
mod tests;
