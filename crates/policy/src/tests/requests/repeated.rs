//! Values that a request has twice, and targets that readers take for a host.

use super::*;

/// Returns the policies of `SHOP` with another treatment of repeated values.
fn of(repeated: &str) -> PolicySet {
    policies(&SHOP.replace("repeated: join", &format!("repeated: {repeated}")))
}

#[test]
fn a_value_that_occurs_twice_is_refused_unless_its_source_says_which_counts() {
    let twice = [("x-account", "ann"), ("X-Account", "bob")];
    let joined = [("x-account", "ann , bob")];
    for (repeated, lines, is_joined, account) in [
        ("join", &twice[..], false, Some("ann,bob")),
        ("first", &twice, false, Some("ann")),
        ("refuse", &twice, false, None),
        ("join", &joined, true, Some("ann , bob")),
        ("first", &joined, true, Some("ann")),
        ("refuse", &joined, true, None),
        ("refuse", &joined, false, Some("ann , bob")),
    ] {
        let http =
            GatewayRequest { method: b"POST", joins_lines: is_joined, ..get("/login", lines) };
        let account = account.map(|account| format!("account={account},route=login Some(2)"));
        let found = mapped(&of(repeated), &http).map(|descriptors| descriptors[1].clone());
        assert_eq!(found, account.ok_or(Unmappable::Repeated), "{repeated} {is_joined}");
    }
    for (repeated, page) in [("join", Some("1,2")), ("first", Some("1")), ("refuse", None)] {
        let http = GatewayRequest { host: b"a.example.com", ..get("/a/b?page=1&page=2", &[]) };
        let expected = page.map(|page| format!("host=a.example.com,page={page},tenant=b"));
        let found = mapped(&of(repeated), &http).map(|descriptors| descriptors[1].clone());
        assert_eq!(found, expected.ok_or(Unmappable::Repeated), "{repeated}");
    }
    // What no source reads may occur as often as it likes, and hops are a list.
    let others = [
        ("accept", "a"),
        ("accept", "b"),
        ("x-forwarded-for", "1.2.3.4"),
        ("x-forwarded-for", "1.2.3.4"),
    ];
    let http = GatewayRequest { peer: None, ..get("/x?a=1&a=2", &others) };
    assert_eq!(mapped(&of("refuse"), &http).unwrap(), ["remote_address=1.2.3.4"]);
}

#[test]
fn a_name_that_some_servers_read_as_a_mapped_one_is_refused() {
    for (query, is_refused) in [
        ("Page=1", true),
        ("page[]=1", true),
        ("page[", true),
        ("+page=1", true),
        ("%20page", true),
        ("%70a%67E=1", true),
        ("page%00x=1", true),
        ("a=1;page=2", true),
        ("a;PAGE", true),
        ("page=1;page=2", true),
        ("page=1;a=2", true),
        ("page;a=1", true),
        ("[page]=1", true),
        ("%5Bpage%5D=1", true),
        ("page]=1", true),
        ("]page=1", true),
        ("%u0070age=1", true),
        ("page=%u0031", true),
        ("a=1;b=2&a=%u0031", false),
        ("pages=1&a.page=2&a[page]=3&a%3Bpage=4&page+=5", false),
    ] {
        let target = format!("/a/b?{query}");
        let http = GatewayRequest { host: b"a.example.com", ..get(&target, &[]) };
        let found = mapped(&of("refuse"), &http);
        assert_eq!(found == Err(Unmappable::Spelling), is_refused, "{query}: {found:?}");
        assert!(mapped(&of("first"), &http).is_ok(), "{query}");
    }
    // PHP makes an underscore of a bracket that is not closed.
    let of_name = |name: &str| {
        policies(&SHOP.replace("query: page, repeated: join", &format!("query: {name}")))
    };
    for (name, query, is_refused) in [
        ("page_id", "page[id=1", true),
        ("page_id", "page.id=1", true),
        ("page_id", "page_id=1", false),
        ("page_id", "page[id]=1", false),
        ("\"page[id]\"", "page[id]=1&page[size]=2&page=3", false),
        ("\"page[id]\"", "Page[id]=1", true),
    ] {
        let target = format!("/a/b?{query}");
        let http = GatewayRequest { host: b"a.example.com", ..get(&target, &[]) };
        let found = mapped(&of_name(name), &http);
        assert_eq!(found == Err(Unmappable::Spelling), is_refused, "{name}: {query}: {found:?}");
    }
    // So do servers of CGI of dashes in headers.
    for (name, is_refused) in [("x_account", true), ("X_Account", true), ("x_other", false)] {
        let found = mapped(&of("refuse"), &get("/login", &[(name, "ann")]));
        assert_eq!(found == Err(Unmappable::Spelling), is_refused, "{name}: {found:?}");
        assert!(mapped(&of("join"), &get("/login", &[(name, "ann")])).is_ok());
    }
}

#[test]
fn a_target_that_begins_with_two_slashes_is_refused() {
    let set = policies(SHOP);
    for target in ["//x/login", "/\\x/login", "\\\\x/login", "http://shop//x/login", "//"] {
        assert_eq!(mapped(&set, &get(target, &[])), Err(Unmappable::TwoSlashes), "{target}");
    }
    assert!(mapped(&set, &get("/a//b", &[])).is_ok());
}
