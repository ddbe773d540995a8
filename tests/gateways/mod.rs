//! Gateways that know no descriptors: ext_authz and `/auth/NAME`, by themselves and behind a real
//! Envoy, nginx, HAProxy and Caddy with the configurations of `deploy/gateways`.

mod auth;
mod check;

use crate::support::policy::Policies;
use crate::support::tollgate::Tollgate;
use crate::support::web::Web;

/// Two requests per day for each address, and one attempt to log in.
const POLICY: &str = "
domain: test
requests:
- name: shop
  undecided: error
  descriptors:
  - entries: { address: { attribute: client_address } }
  - match: { paths: [/login] }
    entries: { route: login }
  - entries: { subject: { metadata: [jwt, claims, sub] } }
descriptors:
- key: address
  rate_limit: { unit: day, requests_per_unit: 2, charge: admitted }
- key: route
  value: login
  rate_limit: { unit: day, requests_per_unit: 1 }
- key: subject
  rate_limit: { unit: day, requests_per_unit: 1 }
";

fn serve(policy: &str, flags: &[&str]) -> (Tollgate, Web) {
    let service = Tollgate::serve_with(Policies::of(policy).path(), flags);
    let web = Web::new(service.http);
    (service, web)
}
