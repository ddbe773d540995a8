//! Normalization of the host and the target of a request, the same for all gateways.
//!
//! - A target in absolute form (`http://host/path`) has the host; its path is what follows.
//! - Host: in lower case, without port and without a final dot.
//! - Path: without query, and without the parameters of segments (`;v=1`, RFC 3986, 3.3). Each
//!   character is written in one way: visible ASCII as itself, also if it was escaped, except `%`,
//!   `?`, `#` and `;`; these and all other bytes as an escape with upper-case digits. `\` is `/`,
//!   several `/` are one, `.` and `..` segments are resolved.
//!
//! A path that servers resolve differently is refused: with a dot segment beside an escaped `/` or
//! a `\` (`/a/..%2fb`), or with parameters (`/a/..;/b`); with an escaped control character, at
//! which some end a path (`/a%00`), or an escape that few know (`/%u0061`); and a target with a
//! fragment.

use std::borrow::Cow;

use super::Unmappable;

/// A host and a path, normalized, and the query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NormalTarget<'a> {
    pub(super) host: Cow<'a, [u8]>,
    pub(super) path: Cow<'a, [u8]>,
    /// The query as received, without the question mark.
    pub(super) query: &'a [u8],
}

impl<'a> NormalTarget<'a> {
    /// Normalizes the target of a request. `host` applies unless the target has one.
    ///
    /// # Errors
    /// [`Unmappable::Ambiguous`], [`Unmappable::TwoSlashes`]
    pub(super) fn of(host: &'a [u8], target: &'a [u8]) -> Result<Self, Unmappable> {
        let (own_host, target) = split_host(target);
        if target.contains(&b'#') {
            return Err(Unmappable::Ambiguous);
        }
        // By WHATWG's URL, what follows is a host, and `/` its path: `//x/login`, `/\\x/login`.
        if matches!(target, [b'/' | b'\\', b'/' | b'\\', ..]) {
            return Err(Unmappable::TwoSlashes);
        }
        let (path, query) = until(target, b'?');
        let host = normal_host(own_host.unwrap_or(host));
        Ok(Self { host, path: normal_path(path)?, query })
    }

    /// Returns the segment of the path with this number, from 1; `None` if there is none.
    pub(super) fn segment(&self, number: usize) -> Option<&[u8]> {
        let mut segments = self.path.split(|byte| *byte == b'/').skip(1);
        segments.nth(number.checked_sub(1)?).filter(|segment| !segment.is_empty())
    }
}

/// Splits at the first `mark`, which neither part has. Without one, the second part is empty.
fn until(text: &[u8], mark: u8) -> (&[u8], &[u8]) {
    let mut parts = text.splitn(2, |byte| *byte == mark);
    (parts.next().unwrap_or_default(), parts.next().unwrap_or_default())
}

/// Returns the host and the rest of a target in absolute form; `None` and all of it otherwise.
fn split_host(target: &[u8]) -> (Option<&[u8]>, &[u8]) {
    let scheme = target.iter().take_while(|byte| byte.is_ascii_alphanumeric()).count();
    let rest = target.get(scheme..).and_then(|rest| rest.strip_prefix(b"://"));
    let Some(rest) = rest.filter(|_| scheme > 0) else { return (None, target) };
    let end = rest.iter().position(|byte| matches!(byte, b'/' | b'?' | b'#' | b'\\'));
    let (authority, path) = rest.split_at_checked(end.unwrap_or(rest.len())).unwrap_or((rest, b""));
    // User information comes before the last `@`.
    (authority.rsplit(|byte| *byte == b'@').next(), path)
}

/// Returns a text in lower case.
pub(super) fn in_lower_case(text: &[u8]) -> Cow<'_, [u8]> {
    if text.iter().any(u8::is_ascii_uppercase) {
        Cow::Owned(text.to_ascii_lowercase())
    } else {
        Cow::Borrowed(text)
    }
}

/// Normalizes a host.
pub(crate) fn normal_host(host: &[u8]) -> Cow<'_, [u8]> {
    let colon = host.iter().rposition(|byte| *byte == b':');
    let named = colon.and_then(|colon| {
        let (name, port) = host.split_at_checked(colon)?;
        // The colons of an IPv6 address are within brackets.
        let is_name = !name.contains(&b':') || name.ends_with(b"]");
        (is_name && port.get(1..)?.iter().all(u8::is_ascii_digit)).then_some(name)
    });
    let name = named.unwrap_or(host);
    in_lower_case(name.strip_suffix(b".").unwrap_or(name))
}

/// A segment of a path as it is read.
#[derive(Default)]
struct Segment {
    text: Vec<u8>,
    /// The separator before it.
    separator: Separator,
}

/// A separator between segments of a path.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Separator {
    /// A slash, or the beginning or the end of the path.
    #[default]
    Plain,
    /// An escaped slash, or a backslash.
    Disguised,
}

impl Segment {
    /// Appends the segment to a path. `next`: the separator behind it.
    fn close(self, next: Separator, path: &mut Vec<Vec<u8>>) -> Result<(), Unmappable> {
        let name = until(&self.text, b';').0;
        let is_dots = matches!(name, b"." | b"..");
        let is_disguised = [self.separator, next].contains(&Separator::Disguised);
        if is_dots && (name.len() < self.text.len() || is_disguised) {
            return Err(Unmappable::Ambiguous);
        }
        match name {
            b"" | b"." => {}
            b".." => {
                path.pop();
            }
            _ => path.push(name.to_vec()),
        }
        Ok(())
    }
}

/// Normalizes a path.
///
/// # Errors
/// [`Unmappable::Ambiguous`]
pub(crate) fn normal_path(path: &[u8]) -> Result<Cow<'_, [u8]>, Unmappable> {
    if is_normal(path) { Ok(Cow::Borrowed(path)) } else { normalized(path).map(Cow::Owned) }
}

/// Returns `true` if a path is normalized, as nearly all are.
fn is_normal(path: &[u8]) -> bool {
    let is_unchanged = |byte: &u8| is_written_plainly(*byte) && *byte != b'\\';
    let Some(rest) = path.strip_prefix(b"/").filter(|rest| rest.iter().all(is_unchanged)) else {
        return false;
    };
    let mut segments = rest.split(|byte| *byte == b'/');
    // The last one is empty if a slash ends the path.
    let last = segments.next_back().unwrap_or_default();
    let is_dots = |segment: &[u8]| matches!(segment, b"." | b"..");
    !is_dots(last) && !segments.any(|segment| segment.is_empty() || is_dots(segment))
}

fn normalized(path: &[u8]) -> Result<Vec<u8>, Unmappable> {
    let mut segments = Vec::new();
    let mut segment = Segment::default();
    let mut rest = path;
    while let Some((byte, after)) = rest.split_first() {
        let escaped = if *byte == b'%' { escape(after) } else { None };
        let decoded = escaped.map_or(*byte, |(decoded, _)| decoded);
        let is_wide = *byte == b'%' && escaped.is_none() && is_wide_escape(after);
        if is_wide || decoded.is_ascii_control() {
            return Err(Unmappable::Ambiguous);
        }
        rest = escaped.map_or(after, |(_, after)| after);
        match decoded {
            b'/' | b'\\' => {
                let separator = if escaped.is_some() || decoded == b'\\' {
                    Separator::Disguised
                } else {
                    Separator::Plain
                };
                std::mem::take(&mut segment).close(separator, &mut segments)?;
                segment.separator = separator;
            }
            // Parameters follow, unless it is escaped.
            b';' if escaped.is_none() => segment.text.push(decoded),
            _ if is_written_plainly(decoded) => segment.text.push(decoded),
            _ => segment.text.extend([b'%', hex(decoded >> 4), hex(decoded & 15)]),
        }
    }
    let is_folder = matches!(until(&segment.text, b';').0, b"" | b"." | b"..");
    segment.close(Separator::Plain, &mut segments)?;
    let mut normal = Vec::with_capacity(path.len().max(1));
    for segment in &segments {
        normal.push(b'/');
        normal.extend_from_slice(segment);
    }
    if is_folder || normal.is_empty() {
        normal.push(b'/');
    }
    // `OPTIONS *` is about no path.
    Ok(if path == b"*" { path.to_vec() } else { normal })
}

/// Returns the byte of an escape after its `%`, and what follows.
fn escape(text: &[u8]) -> Option<(u8, &[u8])> {
    let (&[high, low], after) = text.split_first_chunk()?;
    Some((digit(high)? << 4 | digit(low)?, after))
}

/// Returns `true` if what follows a `%` makes an escape of 16 bits, such as `u006c`.
pub(super) fn is_wide_escape(text: &[u8]) -> bool {
    let digits = text.strip_prefix(b"u").or_else(|| text.strip_prefix(b"U"));
    digits
        .and_then(|digits| digits.get(..4))
        .is_some_and(|four| four.iter().all(u8::is_ascii_hexdigit))
}

/// Returns the value of a hexadecimal digit.
fn digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

/// Decodes a name or a value of a query: every escape, and `+` as a space.
pub(super) fn decoded(text: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((byte, after)) = rest.split_first() {
        let escaped = if *byte == b'%' { escape(after) } else { None };
        plain.push(match (escaped, byte) {
            (Some((decoded, _)), _) => decoded,
            (None, b'+') => b' ',
            (None, _) => *byte,
        });
        rest = escaped.map_or(after, |(_, after)| after);
    }
    plain
}

fn is_written_plainly(byte: u8) -> bool {
    byte.is_ascii_graphic() && !matches!(byte, b'%' | b'?' | b'#' | b';')
}

/// Returns the digit of a number below 16.
fn hex(number: u8) -> u8 {
    let digit = char::from_digit(number.into(), 16).unwrap_or('0');
    u8::try_from(digit.to_ascii_uppercase()).unwrap_or(b'0')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn path(text: &str) -> Option<String> {
        normal_path(text.as_bytes()).ok().map(|path| String::from_utf8(path.into_owned()).unwrap())
    }

    #[test]
    fn a_path_is_read_as_the_server_behind_would() {
        for (text, normal) in [
            ("", "/"),
            ("/", "/"),
            ("*", "*"),
            ("/a/b", "/a/b"),
            ("/a/b/", "/a/b/"),
            ("//a///b", "/a/b"),
            ("/a/./b", "/a/b"),
            ("/a/../b", "/b"),
            ("/../../b", "/b"),
            ("/a/b/..", "/a/"),
            ("/a/b/.", "/a/b/"),
            ("/%61%70%69", "/api"),
            ("/%2e%2e/api", "/api"),
            ("/a%2fb", "/a/b"),
            ("/a%2Fb%5cc\\d", "/a/b/c/d"),
            ("/a%252fb", "/a%252fb"),
            ("/a%c3%a4", "/a%C3%A4"),
            ("/a\u{e4}", "/a%C3%A4"),
            ("/a%3fb%23c%3b", "/a%3Fb%23c%3B"),
            ("/a b%20c", "/a%20b%20c"),
            ("/v1/items%3Asearch", "/v1/items:search"),
            ("/users/%40me", "/users/@me"),
            ("/a%zz%2", "/a%25zz%252"),
            ("/A", "/A"),
            ("/...", "/..."),
            ("/a;v=1/b", "/a/b"),
            ("/login;x", "/login"),
            ("/;x/login", "/login"),
        ] {
            assert_eq!(path(text).as_deref(), Some(normal), "{text}");
        }
    }

    #[test]
    fn a_path_that_servers_resolve_differently_is_refused() {
        for text in [
            "/a/..%2fb",
            "/a%2f..%2fb",
            "/a%2f../b",
            "/a/.%2fb",
            "/a\\..\\b",
            "/a/..;/b",
            "/a/..;v=1/b",
            "/a/.;/b",
            "/a/%2e%2e%2fb",
            "/a%2f..",
            "/login%00",
            "/log\tin",
            "/login%0a",
            "/login%09/x",
            "/login%7f",
            "/%u006cogin",
            "/%U006Cogin",
        ] {
            assert_eq!(path(text), None, "{text}");
        }
    }

    #[test]
    fn a_host_has_no_port_and_no_upper_case() {
        for (host, normal) in [
            ("Shop.Example", "shop.example"),
            ("shop.example:8443", "shop.example"),
            ("shop.example.", "shop.example"),
            ("shop.example.:80", "shop.example"),
            ("[::1]:80", "[::1]"),
            ("[::1]", "[::1]"),
            ("::1", "::1"),
            ("", ""),
        ] {
            assert_eq!(&*normal_host(host.as_bytes()), normal.as_bytes(), "{host}");
        }
    }

    #[test]
    fn the_host_of_an_absolute_target_wins() {
        for (target, host, path, query) in [
            ("/x?a=b?c", "front", "/x", "a=b?c"),
            ("http://Other:80/x?y", "other", "/x", "y"),
            ("https://user@other", "other", "/", ""),
            ("http://other?y", "other", "/", "y"),
            ("/http://other/x", "front", "/http:/other/x", ""),
            ("://other/x", "front", "/:/other/x", ""),
        ] {
            let read = NormalTarget::of(b"Front", target.as_bytes()).unwrap();
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
            assert_eq!(
                (text(&read.host).as_str(), text(&read.path).as_str(), text(read.query).as_str()),
                (host, path, query),
                "{target}"
            );
        }
    }

    #[test]
    fn a_target_with_a_fragment_is_refused() {
        let read = NormalTarget::of(b"", b"/x#/../login");
        assert_eq!(read, Err(Unmappable::Ambiguous));
    }

    #[test]
    fn segments_are_counted_from_one() {
        let read = NormalTarget::of(b"", b"/tenants/acme/").unwrap();
        assert_eq!(read.segment(1), Some(b"tenants".as_slice()));
        assert_eq!(read.segment(2), Some(b"acme".as_slice()));
        assert_eq!([read.segment(3), read.segment(0)], [None, None]);
    }

    proptest! {
        /// A path that is borrowed is one that would be written alike.
        #[test]
        fn a_path_is_normal_if_normalization_leaves_it_as_it_is(text in "/[/a-c.%;\\\\é \u{7f}#?]{0,12}") {
            let bytes = text.as_bytes();
            prop_assert_eq!(is_normal(bytes), normalized(bytes).is_ok_and(|normal| normal == bytes));
        }

        /// A normalized path stays as it is, whatever the bytes were.
        #[test]
        fn normalization_is_idempotent(text in "[/\\\\.%;a2fF5cCeE]{0,24}") {
            if let Ok(normal) = normal_path(text.as_bytes()) {
                prop_assert_eq!(normal_path(&normal).unwrap(), normal.clone());
                prop_assert!(normal.starts_with(b"/"));
                let dots = normal.split(|byte| *byte == b'/').any(|segment| matches!(segment, b"." | b".."));
                prop_assert!(!dots);
            }
        }
    }
}
