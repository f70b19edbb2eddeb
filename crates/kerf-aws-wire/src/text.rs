//! Percent encoding.

use std::fmt::Write as _;

use crate::error::{DecodeError, Problem};

/// What a form writes for a text: letters, digits and `-_.~` stay, a space becomes a plus.
pub(crate) fn encode_form(text: &str, into: &mut String) {
    encode(text, into, true);
}

/// What a segment of a path writes.
pub(crate) fn encode_segment(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    encode(text, &mut encoded, false);
    encoded
}

fn encode(text: &str, into: &mut String, form: bool) {
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                into.push(byte.into());
            }
            b' ' if form => into.push('+'),
            // Writing to a String does not fail.
            _ => drop(write!(into, "%{byte:02X}")),
        }
    }
}

pub(crate) fn decode_form(text: &str) -> Result<String, DecodeError> {
    decode(&text.replace('+', " "))
}

pub(crate) fn decode(text: &str) -> Result<String, DecodeError> {
    let bad = || DecodeError::new(Problem::Form(text.to_owned()));
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        if first == b'%' {
            let digits = tail.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
            let digits =
                digits.filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()));
            bytes.push(
                digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()).ok_or_else(bad)?,
            );
            rest = &tail[2..];
        } else {
            bytes.push(first);
            rest = tail;
        }
    }
    String::from_utf8(bytes).map_err(|_| bad())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percent_encoding_goes_there_and_back() {
        let cases = [
            ("", ""),
            ("m5.large", "m5.large"),
            ("a b+c", "a+b%2Bc"),
            ("tag:Name=*", "tag%3AName%3D%2A"),
            ("/dev/xvda", "%2Fdev%2Fxvda"),
            ("Zürich~", "Z%C3%BCrich~"),
            ("a\r\nb", "a%0D%0Ab"),
        ];
        for (text, expect) in cases {
            let mut encoded = String::new();
            encode_form(text, &mut encoded);
            assert_eq!(encoded, expect);
            assert_eq!(decode_form(&encoded).as_deref(), Ok(text));
        }
        assert_eq!(encode_segment("arn:aws:eks:x/y z"), "arn%3Aaws%3Aeks%3Ax%2Fy%20z");
    }

    #[test]
    fn half_a_percent_sign_is_no_form() {
        for text in ["%", "%4", "%zz", "%+1", "%ff"] {
            assert!(decode_form(text).is_err(), "{text}");
        }
    }
}
