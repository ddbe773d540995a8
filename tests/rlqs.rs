//! RLQS: the service with real Envoys. The behavior of Envoy on which it relies is measured in
//! `stock_envoy`, among the long tests.

mod cost;
mod end_to_end;
mod faults;
mod protocol;
