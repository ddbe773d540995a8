//! RLQS: the behavior of Envoy 1.40 on which the server relies, measured with a scripted server.

mod end_to_end;
mod ping;
mod protocol;
mod stock_envoy;
