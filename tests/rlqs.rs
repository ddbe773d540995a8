//! RLQS: the behavior of Envoy 1.40 on which the server relies, measured with a scripted server;
//! and the service with real Envoys.

mod cost;
mod end_to_end;
mod faults;
mod ping;
mod protocol;
mod stock_envoy;
