//! The configuration of a store: where it is, how to log in, and what it runs in.
//!
//! | file | purpose |
//! |---|---|
//! | `options` | the options of a store |
//! | `url` | its address as a URL |
//! | `access` | credentials, TLS, maximum age of connections |
//! | `environment` | the network, clock and randomness, which a simulation replaces |

pub(super) mod access;
pub(super) mod environment;
pub(super) mod options;
pub(super) mod url;
