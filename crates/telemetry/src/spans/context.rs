//! Trace context of the caller: `traceparent`, by W3C Trace Context.

/// The caller's position in a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parent {
    /// Trace ID.
    pub trace: [u8; 16],
    /// Span ID of the caller.
    pub span: [u8; 8],
    /// `true` if the caller's span is sampled.
    pub is_sampled: bool,
}

impl Parent {
    /// Parses `00-TRACE-SPAN-FLAGS`; later versions may append fields. `None` if invalid.
    pub fn read(text: &[u8]) -> Option<Self> {
        let (head, rest) = text.split_first_chunk::<55>()?;
        let [version, trace, span, flags] =
            [head.get(..2)?, head.get(3..35)?, head.get(36..52)?, head.get(53..)?];
        let version = hex::<1>(version)?;
        let ends = match version {
            [0] => rest.is_empty(),
            [0xff] => false,
            [_] => rest.is_empty() || rest.starts_with(b"-"),
        };
        let is_separated = [2, 35, 52].iter().all(|at| head.get(*at) == Some(&b'-'));
        let [flags] = hex::<1>(flags)?;
        let trace = hex(trace)?;
        let span = hex(span)?;
        let is_whole = ends && is_separated && trace != [0; 16] && span != [0; 8];
        is_whole.then_some(Self { trace, span, is_sampled: flags & 1 == 1 })
    }
}

/// Decodes lowercase hexadecimal digits.
fn hex<const BYTES: usize>(text: &[u8]) -> Option<[u8; BYTES]> {
    let (pairs, rest) = text.as_chunks::<2>();
    let mut bytes = [0; BYTES];
    if pairs.len() != BYTES || !rest.is_empty() {
        return None;
    }
    for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
        *byte = hex_digit(*high)? << 4 | hex_digit(*low)?;
    }
    Some(bytes)
}

fn hex_digit(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const GOOD: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn the_standards_example_is_read() {
        let parent = Parent::read(GOOD.as_bytes()).unwrap();
        assert_eq!(
            (parent.trace[..2].to_vec(), parent.span[7], parent.is_sampled),
            (vec![0x0a, 0xf7], 0x31, true)
        );
        assert!(!Parent::read(GOOD.replace("-01", "-00").as_bytes()).unwrap().is_sampled);
        assert!(
            Parent::read(GOOD.replace("-01", "-03").as_bytes()).unwrap().is_sampled,
            "flags that are not known"
        );
        assert!(
            Parent::read(format!("{}-more", GOOD.replacen("00", "01", 1)).as_bytes()).is_some(),
            "a later version"
        );
    }

    #[test]
    fn a_missing_context_is_none() {
        let zeros = |text: &str, digits: usize| GOOD.replace(text, &"0".repeat(digits));
        for text in [
            String::new(),
            GOOD.to_uppercase(),
            GOOD.replacen("00", "ff", 1),
            format!("{GOOD}-more"),
            GOOD.replace('-', "_"),
            GOOD[..54].to_owned(),
            zeros("0af7651916cd43dd8448eb211c80319c", 32),
            zeros("b7ad6b7169203331", 16),
        ] {
            assert_eq!(Parent::read(text.as_bytes()), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes: Vec<u8>, at in 0usize..55, byte: u8) {
            let _ = Parent::read(&bytes);
            let mut broken = GOOD.as_bytes().to_vec();
            broken[at] = byte;
            let _ = Parent::read(&broken);
        }
    }
}
