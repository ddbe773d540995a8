//! Meaning of unquoted scalars in YAML 1.1, the version of envoyproxy/ratelimit's files.

/// Returns `true` for null, which counts as an absent word.
pub fn is_null(text: &str) -> bool {
    matches!(text, "" | "~" | "null" | "Null" | "NULL")
}

/// Parses a boolean in any of the spellings of YAML 1.1.
pub fn boolean(text: &str) -> Option<bool> {
    match text {
        "true" | "True" | "TRUE" | "yes" | "Yes" | "YES" | "on" | "On" | "ON" | "y" | "Y" => {
            Some(true)
        }
        "false" | "False" | "FALSE" | "no" | "No" | "NO" | "off" | "Off" | "OFF" | "n" | "N" => {
            Some(false)
        }
        _ => None,
    }
}

/// Parses a whole number: `100`, `+5`, `1_000`, `0x10`, `0b11`, and octal as `010` and `0o10`.
pub fn integer(text: &str) -> Option<i128> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let digits = digits.replace('_', "");
    let radixes = [("0x", 16), ("0b", 2), ("0o", 8)];
    let (digits, radix) = radixes
        .into_iter()
        .find_map(|(prefix, radix)| Some((digits.strip_prefix(prefix)?, radix)))
        .or_else(|| digits.strip_prefix('0').filter(|rest| !rest.is_empty()).map(|rest| (rest, 8)))
        .unwrap_or((&digits, 10));
    // Checked once the prefix is removed: `from_str_radix` would accept a second sign.
    if !digits.starts_with(|first: char| first.is_ascii_alphanumeric()) {
        return None;
    }
    let number = i128::from_str_radix(digits, radix).ok()?;
    Some(if negative { number.saturating_neg() } else { number })
}

/// Parses a number with a fraction or an exponent.
pub fn float(text: &str) -> Option<f64> {
    let looks = text.starts_with(|first: char| first.is_ascii_digit() || "+-.".contains(first));
    text.replace('_', "").parse().ok().filter(|number: &f64| looks && number.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_are_those_of_yaml_1_1() {
        let cases = [
            ("0x10", 16),
            ("010", 8),
            ("0o10", 8),
            ("0b11", 3),
            ("1_000", 1_000),
            ("+5", 5),
            ("-5", -5),
            ("0", 0),
        ];
        for (text, number) in cases {
            assert_eq!(integer(text), Some(number), "{text}");
        }
        for text in ["", "+", "0x", "08", "1e3", "1.0", "ten", "--5", "+-5", "0x+1", "_", "１"] {
            assert_eq!(integer(text), None, "{text}");
        }
    }

    #[test]
    fn truths_are_those_of_yaml_1_1() {
        assert_eq!(["yes", "On", "TRUE", "y"].map(boolean), [Some(true); 4]);
        assert_eq!(["no", "Off", "FALSE", "n"].map(boolean), [Some(false); 4]);
        assert_eq!(["1", "tRUE", ""].map(boolean), [None; 3]);
    }
}
