//! Mappings of HTTP requests to descriptors.

mod repeated;

use super::super::PolicySet;
use super::super::requests::{
    GatewayRequest, IfUndecided, MAX_HEADERS, MAX_VALUE_BYTES, Unmappable,
};
use super::{errors, policies};

const SHOP: &str = r#"
domain: shop
requests:
- name: shop
  trusted_hops: 1
  undecided: deny
  descriptors:
  - entries: { remote_address: { attribute: client_address, ipv6_prefix: 64 } }
  - match: { methods: [post], paths: [/login, /api/*/login] }
    entries: { account: { header: X-Account, repeated: join, default: none }, route: login }
    hits: 2
  - match: { hosts: ["*.Example.com"] }
    entries: { host: { attribute: host }, page: { query: page, repeated: join }, tenant: { segment: 2 } }
  - entries: { user: { metadata: [envoy.filters.http.jwt_authn, claims, sub] } }
  - entries: { certificate: { attribute: client_certificate }, method: { attribute: method }, path: { attribute: path } }
descriptors:
- key: remote_address
  rate_limit: { unit: minute, requests_per_unit: 5 }
"#;

/// Returns the descriptors of a request, as `key=value,…`, with the hits if they are not 1.
fn mapped(set: &PolicySet, http: &GatewayRequest<'_>) -> Result<Vec<String>, Unmappable> {
    let mapping = set.mapping("shop").unwrap();
    let attributes = mapping.read(http.clone())?;
    let mapped = mapping.map(&attributes);
    let Some(request) = mapped.request() else { return Ok(Vec::new()) };
    assert_eq!(request.domain, "shop");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let descriptors = request.descriptors.iter().map(|descriptor| {
        let entries = descriptor.entries.iter();
        let entries: Vec<_> =
            entries.map(|entry| format!("{}={}", text(entry.key), text(entry.value))).collect();
        match descriptor.hits.amount() {
            Some(1) => entries.join(","),
            hits => format!("{} {hits:?}", entries.join(",")),
        }
    });
    Ok(descriptors.collect())
}

fn get<'a>(target: &'a str, headers: &[(&'a str, &'a str)]) -> GatewayRequest<'a> {
    let headers = headers.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()));
    GatewayRequest {
        method: b"GET",
        host: b"front",
        target: target.as_bytes(),
        peer: Some(b"198.51.100.9"),
        headers: headers.collect(),
        ..GatewayRequest::default()
    }
}

#[test]
fn a_request_has_the_descriptors_that_match_and_have_values() {
    let set = policies(SHOP);
    let mapping = set.mapping("shop").unwrap();
    assert_eq!((mapping.domain(), mapping.undecided()), ("shop", IfUndecided::Deny));
    assert!(set.mapping("other").is_none());

    assert_eq!(mapped(&set, &get("/x", &[])).unwrap(), ["remote_address=198.51.100.9"]);
    let claims = serde_json::json!({ "envoy.filters.http.jwt_authn": { "claims": { "sub": 42 } } });
    let login = GatewayRequest {
        method: b"post",
        peer: Some(b"2001:db8:1:2:3::4"),
        certificate: Some(b"spiffe://mesh/pay"),
        metadata: Some(&claims),
        ..get("/%61pi/v1/login?page=3", &[("x-ACCOUNT", "ann"), ("X-Account", "bob")])
    };
    assert_eq!(
        mapped(&set, &login).unwrap(),
        [
            "remote_address=2001:db8:1:2::/64",
            "account=ann,bob,route=login Some(2)",
            "user=42",
            "certificate=spiffe://mesh/pay,method=POST,path=/api/v1/login",
        ]
    );
    let hops = [("x-forwarded-for", "198.51.100.1"), ("X-Forwarded-For", "203.0.113.7")];
    let shop = GatewayRequest {
        peer: None,
        ..get("http://Shop.Example.com:8080/tenants/acme?page=1%2b1&page=2+", &hops)
    };
    assert_eq!(
        mapped(&set, &shop).unwrap(),
        ["remote_address=198.51.100.1", "host=shop.example.com,page=1+1,2 ,tenant=acme"]
    );
}

#[test]
fn a_default_is_the_value_of_a_request_without_one() {
    let set = policies(SHOP);
    let login = GatewayRequest { method: b"POST", ..get("/login", &[("x-account", "")]) };
    let descriptors = ["remote_address=198.51.100.9", "account=none,route=login Some(2)"];
    assert_eq!(mapped(&set, &login).unwrap(), descriptors);
}

#[test]
fn a_request_whose_client_is_unknown_keeps_its_limit() {
    let set = policies(SHOP);
    let unknown = GatewayRequest { peer: None, ..get("/x", &[]) };
    assert_eq!(mapped(&set, &unknown), Err(Unmappable::NoAddress));
    let text = SHOP.replace("ipv6_prefix: 64", "ipv6_prefix: 64, default: unknown");
    let descriptors = ["remote_address=unknown"];
    assert_eq!(mapped(&policies(&text), &unknown).unwrap(), descriptors);
}

#[test]
fn what_cannot_be_matched_whole_is_refused() {
    let set = policies(SHOP);
    let long = "a".repeat(MAX_VALUE_BYTES);
    let whole = GatewayRequest { method: b"POST", ..get("/login", &[("x-account", &long)]) };
    let mapped_whole = mapped(&set, &whole).unwrap();
    assert_eq!(mapped_whole[1].len(), "account=,route=login Some(2)".len() + MAX_VALUE_BYTES);
    let user = |value: &str| {
        let claims = serde_json::json!({ "claims": { "sub": value } });
        serde_json::json!({ "envoy.filters.http.jwt_authn": claims })
    };
    let user_of_claim = user(&long);
    let long_user = GatewayRequest {
        certificate: Some(long.as_bytes()),
        metadata: Some(&user_of_claim),
        ..get("/login", &[])
    };
    assert_eq!(mapped(&set, &long_user).unwrap()[1].len(), "user=".len() + MAX_VALUE_BYTES);

    let longer = format!("/{long}");
    let longer_user = user(&longer);
    let too_long = [
        get("/login", &[("x-account", &longer)]),
        get("/login", &[("x-account", &long), ("x-account", "b")]),
        get(&longer, &[]),
        GatewayRequest { host: longer.as_bytes(), ..get("/", &[]) },
        GatewayRequest { metadata: Some(&longer_user), ..get("/", &[]) },
    ];
    for http in too_long {
        assert_eq!(mapped(&set, &http), Err(Unmappable::TooLong));
    }
    let unread = get("/", &[("x-unread", &longer)]);
    assert_eq!(mapped(&set, &unread).unwrap(), ["remote_address=198.51.100.9"]);
    let most = vec![("a", "b"); MAX_HEADERS];
    assert_eq!(mapped(&set, &get("/", &most)).unwrap(), ["remote_address=198.51.100.9"]);
    let many = vec![("a", "b"); MAX_HEADERS + 1];
    assert_eq!(mapped(&set, &get("/", &many)), Err(Unmappable::TooManyHeaders));
    assert_eq!(mapped(&set, &get("/a/..%2flogin", &[])), Err(Unmappable::Ambiguous));
}

#[test]
fn mistakes_in_a_match_are_shown_where_they_are() {
    let text = "domain: shop
requests:
- name: a/b
  descriptors:
  - match: { methods: ['G E T'], hosts: ['shop:80'], paths: [login, /a//b, '/a?b', '/a/..;/b'] }
    entries: { tollgate.reserve: x }
";
    insta::assert_snapshot!(errors(&[text]), @r##"
    error: `name` must be at most 64 letters, digits, `-`, `_` and `.`: it is part of a URL
     --> a.yaml:3:9
      |
    3 | - name: a/b
      |         ^^^
      = in request mapping `a/b` of domain `shop`

    error: a method must be a word such as GET, found `G E T`
     --> a.yaml:5:24
      |
    5 |   - match: { methods: ['G E T'], hosts: ['shop:80'], paths: [login, /a//b, '/a?b', '/a/..;/b'] }
      |                        ^^^^^^^
      = in request mapping `a/b` of domain `shop`

    error: a host has no port and no final dot here; use `shop`
     --> a.yaml:5:42
      |
    5 |   - match: { methods: ['G E T'], hosts: ['shop:80'], paths: [login, /a//b, '/a?b', '/a/..;/b'] }
      |                                          ^^^^^^^^^
      = in request mapping `a/b` of domain `shop`

    error: a path must begin with `/` or `*`, found `login`
     --> a.yaml:5:62
      |
    5 |   - match: { methods: ['G E T'], hosts: ['shop:80'], paths: [login, /a//b, '/a?b', '/a/..;/b'] }
      |                                                              ^^^^^
      = in request mapping `a/b` of domain `shop`

    error: no normalized path matches `/a//b`
     --> a.yaml:5:69
      |
    5 |   - match: { methods: ['G E T'], hosts: ['shop:80'], paths: [login, /a//b, '/a?b', '/a/..;/b'] }
      |                                                                     ^^^^^
      = normalized, it is `/a/b`
      = in request mapping `a/b` of domain `shop`

    error: no normalized path matches `/a?b`
     --> a.yaml:5:76
      |
    5 |   - match: { methods: ['G E T'], hosts: ['shop:80'], paths: [login, /a//b, '/a?b', '/a/..;/b'] }
      |                                                                            ^^^^^^
      = a path is matched without query and fragment
      = in request mapping `a/b` of domain `shop`

    error: no normalized path matches `/a/..;/b`
     --> a.yaml:5:84
      |
    5 |   - match: { methods: ['G E T'], hosts: ['shop:80'], paths: [login, /a//b, '/a?b', '/a/..;/b'] }
      |                                                                                    ^^^^^^^^^^
      = servers resolve it differently, so such requests are refused
      = in request mapping `a/b` of domain `shop`

    error: `tollgate.reserve` cannot be a key: it is empty or reserved for holds
     --> a.yaml:6:16
      |
    6 |     entries: { tollgate.reserve: x }
      |                ^^^^^^^^^^^^^^^^
      = in request mapping `a/b` of domain `shop`
    "##);
}

#[test]
fn mistakes_in_sources_and_names_are_shown_where_they_are() {
    let text = "domain: shop
requests:
- name: shop
  descriptors:
  - entries: { path: { header: ':path' }, user: { header: x, query: y }, seg: { segment: 0 } }
- name: shop
  descriptors: []
";
    insta::assert_snapshot!(errors(&[text]), @r##"
    error: `:path` is not the name of a header
     --> a.yaml:5:32
      |
    5 |   - entries: { path: { header: ':path' }, user: { header: x, query: y }, seg: { segment: 0 } }
      |                                ^^^^^^^
      = method, host and path are attributes: `attribute: path`
      = in request mapping `shop` of domain `shop`

    error: a source must have exactly one of header, query, segment, metadata, attribute
     --> a.yaml:5:51
      |
    5 |   - entries: { path: { header: ':path' }, user: { header: x, query: y }, seg: { segment: 0 } }
      |                                                   ^^^^^^
      = in request mapping `shop` of domain `shop`

    error: segments are counted from 1
     --> a.yaml:5:90
      |
    5 |   - entries: { path: { header: ':path' }, user: { header: x, query: y }, seg: { segment: 0 } }
      |                                                                                          ^
      = in request mapping `shop` of domain `shop`

    error: duplicate request mapping `shop`
     --> a.yaml:6:9
      |
    6 | - name: shop
      |         ^^^^
     --> a.yaml:3:9
      |
    3 | - name: shop
      |         ^^^^ first defined here
      = in request mapping `shop` of domain `shop`

    error: `descriptors` must have at least one item, found none
     --> a.yaml:7:16
      |
    7 |   descriptors: []
      |                ^^
      = in request mapping `shop` of domain `shop`
    "##);
}

#[test]
fn unknown_words_and_forms_in_a_mapping_are_errors() {
    let text = "domain: shop
requests:
- name: shop
  trusted_hops: 17
  undecided: open
  descriptors:
  - entries: { a: [], b: { attribute: client_addres }, c: { header: h, ipv4_prefix: 24 }, c: d }
  - entries: {}
    hit: 2
";
    insta::assert_snapshot!(errors(&[text]), @r##"
    error: `trusted_hops` must be a whole number from 0 to 16, without quotes, found `17`
     --> a.yaml:4:17
      |
    4 |   trusted_hops: 17
      |                 ^^
      = in request mapping `shop` of domain `shop`

    error: `undecided` must be one of error, allow, deny, found `open`
     --> a.yaml:5:14
      |
    5 |   undecided: open
      |              ^^^^
      = in request mapping `shop` of domain `shop`

    error: `a` must be a text or a source, found a list
     --> a.yaml:7:19
      |
    7 |   - entries: { a: [], b: { attribute: client_addres }, c: { header: h, ipv4_prefix: 24 }, c: d }
      |                   ^^
      = in request mapping `shop` of domain `shop`

    error: `attribute` must be one of method, host, path, client_address, client_certificate, found `client_addres`
     --> a.yaml:7:39
      |
    7 |   - entries: { a: [], b: { attribute: client_addres }, c: { header: h, ipv4_prefix: 24 }, c: d }
      |                                       ^^^^^^^^^^^^^
      = did you mean `client_address`?
      = in request mapping `shop` of domain `shop`

    error: `ipv4_prefix` and `ipv6_prefix` require `attribute: client_address`
     --> a.yaml:7:61
      |
    7 |   - entries: { a: [], b: { attribute: client_addres }, c: { header: h, ipv4_prefix: 24 }, c: d }
      |                                                             ^^^^^^
      = in request mapping `shop` of domain `shop`

    error: duplicate key `c`
     --> a.yaml:7:91
      |
    7 |   - entries: { a: [], b: { attribute: client_addres }, c: { header: h, ipv4_prefix: 24 }, c: d }
      |                                                                                           ^
     --> a.yaml:7:56
      |
    7 |   - entries: { a: [], b: { attribute: client_addres }, c: { header: h, ipv4_prefix: 24 }, c: d }
      |                                                        ^ first defined here
      = in request mapping `shop` of domain `shop`

    error: `entries` must have at least one key, found none
     --> a.yaml:8:14
      |
    8 |   - entries: {}
      |              ^^
      = in request mapping `shop` of domain `shop`

    error: unknown key `hit`
     --> a.yaml:9:5
      |
    9 |     hit: 2
      |     ^^^
      = did you mean `hits`?
      = allowed in a descriptor of `requests`: match, entries, hits
      = in request mapping `shop` of domain `shop`
    "##);
}

#[test]
fn the_bounds_of_a_mapping_are_errors() {
    let many = |count: usize, item: &str| vec![item; count].join(", ");
    let descriptors = many(65, "{ entries: { a: b } }");
    let found = errors(&[&format!(
        "domain: d\nrequests:\n- {{ name: m, descriptors: [{descriptors}] }}\n"
    )]);
    assert!(found.contains("more than 64 descriptors"), "{found}");
    let entries: Vec<_> = (0..33).map(|number| format!("k{number}: v")).collect();
    let entries = entries.join(", ");
    let paths = many(257, "/a");
    let found = errors(&[&format!(
        "domain: d\nrequests:\n- name: m\n  descriptors:\n  - {{ match: {{ paths: [{paths}] }}, entries: {{ {entries} }} }}\n"
    )]);
    assert!(found.contains("more than 32 entries"), "{found}");
    assert!(found.contains("more than 256 items in `match`"), "{found}");
}

#[test]
fn the_version_changes_with_a_mapping() {
    let version = |text: &str| policies(text).version().to_owned();
    let base = version(SHOP);
    assert_eq!(base, version(&SHOP.replace("[post]", "[POST]")));
    for (from, to) in [
        ("trusted_hops: 1", "trusted_hops: 2"),
        ("undecided: deny", "undecided: allow"),
        ("/login,", "/signin,"),
        ("default: none", "default: absent"),
        ("hits: 2", "hits: 3"),
        ("segment: 2", "segment: 1"),
    ] {
        assert_ne!(base, version(&SHOP.replace(from, to)), "{from}");
    }
}
