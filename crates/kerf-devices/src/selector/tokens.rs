//! The words of an expression.

use std::sync::Arc;

use super::Invalid;

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token {
    Name(String),
    Int(u64),
    Uint(u64),
    Double(f64),
    String(Arc<str>),
    /// An operator or a bracket.
    Sign(&'static str),
}

/// The longer ones first.
const SIGNS: [&str; 26] = [
    "==", "!=", "<=", ">=", "&&", "||", ".?", "[?", "(", ")", "[", "]", "{", "}", "<", ">", "!",
    "?", ":", ".", ",", "+", "-", "*", "/", "%",
];

pub(super) fn tokens(source: &str) -> Result<Vec<Token>, Invalid> {
    let mut tokens = Vec::new();
    let mut rest = source;
    while let Some(first) = rest.chars().next() {
        if first.is_whitespace() {
            rest = &rest[first.len_utf8()..];
        } else if rest.starts_with("//") {
            rest = rest.find('\n').map_or("", |end| &rest[end..]);
        } else if let Some((token, after)) = string(rest)? {
            tokens.push(token);
            rest = after;
        } else if first.is_ascii_alphabetic() || first == '_' {
            let (name, after) =
                split_while(rest, |byte| byte.is_ascii_alphanumeric() || byte == b'_');
            tokens.push(Token::Name(name.to_owned()));
            rest = after;
        } else if first.is_ascii_digit()
            || first == '.' && rest[1..].starts_with(|next: char| next.is_ascii_digit())
        {
            let (token, after) = number(rest)?;
            tokens.push(token);
            rest = after;
        } else if let Some(sign) = SIGNS.into_iter().find(|sign| rest.starts_with(*sign)) {
            tokens.push(Token::Sign(sign));
            rest = &rest[sign.len()..];
        } else {
            return Err(syntax(format!("{first:?} is not expected")));
        }
    }
    Ok(tokens)
}

fn syntax(message: impl Into<String>) -> Invalid {
    Invalid::Syntax { message: message.into() }
}

fn split_while(text: &str, wanted: impl Fn(u8) -> bool) -> (&str, &str) {
    text.split_at(text.bytes().position(|byte| !wanted(byte)).unwrap_or(text.len()))
}

fn number(text: &str) -> Result<(Token, &str), Invalid> {
    let malformed = |digits: &str| syntax(format!("{digits} is not a number that fits"));
    if let Some(hex) = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        let (digits, rest) = split_while(hex, |byte| byte.is_ascii_hexdigit());
        let value = u64::from_str_radix(digits, 16).map_err(|_| malformed(digits))?;
        return Ok(integer(value, rest));
    }
    let (_, after) = split_while(text, |byte| byte.is_ascii_digit());
    let mut rest = after;
    if let Some(fraction) = after.strip_prefix('.')
        && fraction.starts_with(|next: char| next.is_ascii_digit())
    {
        (_, rest) = split_while(fraction, |byte| byte.is_ascii_digit());
    }
    if let Some(exponent) = rest.strip_prefix(['e', 'E']) {
        let unsigned = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
        if unsigned.starts_with(|next: char| next.is_ascii_digit()) {
            (_, rest) = split_while(unsigned, |byte| byte.is_ascii_digit());
        }
    }
    let digits = &text[..text.len() - rest.len()];
    if rest.len() == after.len() {
        let value = digits.parse().map_err(|_| malformed(digits))?;
        return Ok(integer(value, rest));
    }
    Ok((Token::Double(digits.parse().map_err(|_| malformed(digits))?), rest))
}

fn integer(value: u64, rest: &str) -> (Token, &str) {
    match rest.strip_prefix(['u', 'U']) {
        Some(rest) => (Token::Uint(value), rest),
        None => (Token::Int(value), rest),
    }
}

/// A string, if the text starts with one: plain or raw, in one or three quotes.
fn string(text: &str) -> Result<Option<(Token, &str)>, Invalid> {
    let prefix = text.bytes().take_while(|byte| b"rRbB".contains(byte)).take(2).count();
    let (prefix, body) = text.split_at(prefix);
    let Some(quote) = body.chars().next().filter(|first| matches!(first, '"' | '\'')) else {
        return Ok(None);
    };
    if prefix.contains(['b', 'B']) {
        return Err(Invalid::Unsupported { what: "bytes" });
    }
    let raw = !prefix.is_empty();
    let triple = quote.to_string().repeat(3);
    let end = if body.starts_with(&triple) { triple.as_str() } else { &triple[..1] };
    let mut rest = &body[end.len()..];
    let mut value = String::new();
    loop {
        if let Some(after) = rest.strip_prefix(end) {
            return Ok(Some((Token::String(value.into()), after)));
        }
        let Some(next) = rest.chars().next() else {
            return Err(syntax("a string does not end"));
        };
        rest = &rest[next.len_utf8()..];
        match next {
            '\n' | '\r' if end.len() == 1 => return Err(syntax("a string does not end")),
            '\\' if !raw => {
                let (character, after) = escape(rest)?;
                value.push(character);
                rest = after;
            }
            _ => value.push(next),
        }
    }
}

/// What follows a backslash.
fn escape(text: &str) -> Result<(char, &str), Invalid> {
    let malformed = || syntax("a string has an escape that is not known");
    let first = text.chars().next().ok_or_else(malformed)?;
    let rest = &text[first.len_utf8()..];
    let (from, digits, radix) = match first {
        'a' => return Ok(('\u{7}', rest)),
        'b' => return Ok(('\u{8}', rest)),
        'f' => return Ok(('\u{c}', rest)),
        'n' => return Ok(('\n', rest)),
        'r' => return Ok(('\r', rest)),
        't' => return Ok(('\t', rest)),
        'v' => return Ok(('\u{b}', rest)),
        '\\' | '\'' | '"' | '`' | '?' => return Ok((first, rest)),
        'x' | 'X' => (rest, 2, 16),
        'u' => (rest, 4, 16),
        'U' => (rest, 8, 16),
        '0'..='3' => (text, 3, 8),
        _ => return Err(malformed()),
    };
    let number = from.get(..digits).filter(|number| !number.starts_with('+'));
    let number = number.ok_or_else(malformed)?;
    let code = u32::from_str_radix(number, radix).map_err(|_| malformed())?;
    Ok((char::from_u32(code).ok_or_else(malformed)?, &from[digits..]))
}
