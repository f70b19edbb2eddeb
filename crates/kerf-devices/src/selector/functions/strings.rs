//! Functions of strings, and of lists that share their names.

use super::{Function, count, pattern};
use crate::selector::Failure;
use crate::selector::evaluate::Meter;
use crate::selector::value::{Value, list, no_overload};

pub(super) fn call<'a>(
    function: Function,
    arguments: &[Value<'a>],
    meter: &mut Meter,
) -> Result<Value<'a>, Failure> {
    use Function as F;
    use Value as V;
    for argument in arguments {
        if let V::String(text) = argument {
            meter.spend_on_text(text.len())?;
        }
    }
    Ok(match (function, arguments) {
        (F::Matches, [V::String(text), V::String(wanted)]) => {
            V::Bool(pattern(wanted, meter)?.is_match(text))
        }
        (F::Find, [V::String(text), V::String(wanted)]) => {
            let found = pattern(wanted, meter)?.find(text).map_or("", |found| found.as_str());
            V::String(found.to_owned().into())
        }
        (F::FindAll, [V::String(text), V::String(wanted), rest @ ..]) => {
            let pattern = pattern(wanted, meter)?;
            let found = pattern.find_iter(text).map(|found| owned(found.as_str()));
            list(found.take(limit(rest.first(), "findAll")?))
        }
        (F::StartsWith, [V::String(text), V::String(part)]) => V::Bool(text.starts_with(&**part)),
        (F::EndsWith, [V::String(text), V::String(part)]) => V::Bool(text.ends_with(&**part)),
        (F::Contains, [V::String(text), V::String(part)]) => V::Bool(text.contains(&**part)),
        (F::LowerAscii, [V::String(text)]) => V::String(text.to_ascii_lowercase().into()),
        (F::UpperAscii, [V::String(text)]) => V::String(text.to_ascii_uppercase().into()),
        (F::Trim, [V::String(text)]) => owned(text.trim()),
        (F::CharAt, [V::String(text), V::Int(place)]) => {
            let place = place_in(text, *place, "charAt")?;
            owned(&text.chars().skip(place).take(1).collect::<String>())
        }
        (F::IndexOf, [V::String(text), V::String(part), rest @ ..]) => {
            let from = match rest {
                [V::Int(from)] => byte_of(text, *from, "indexOf")?,
                _ => 0,
            };
            let found = text[from..].find(&**part).map(|found| from + found);
            found.map_or(Ok(V::Int(-1)), |found| count(text[..found].chars().count()))?
        }
        (F::LastIndexOf, [V::String(text), V::String(part)]) => {
            let found = text.rfind(&**part);
            found.map_or(Ok(V::Int(-1)), |found| count(text[..found].chars().count()))?
        }
        (F::IndexOf, [V::List(items), item]) => place_of(items.iter().enumerate(), item, meter)?,
        (F::LastIndexOf, [V::List(items), item]) => {
            place_of(items.iter().enumerate().rev(), item, meter)?
        }
        (F::Replace, [V::String(text), V::String(from), V::String(to), rest @ ..]) => {
            let times = limit(rest.first(), "replace")?;
            // Nothing is found once more than there are characters.
            let most = text.matches(&**from).take(times).count();
            meter.spend_on_text(text.len().saturating_add(most.saturating_mul(to.len())))?;
            V::String(text.replacen(&**from, to, times).into())
        }
        (F::Split, [V::String(text), V::String(by), rest @ ..]) => {
            meter.spend(text.len())?;
            match limit(rest.first(), "split")? {
                0 => list([]),
                most => list(pieces(text, by, most)),
            }
        }
        (F::Substring, [V::String(text), V::Int(from)]) => {
            owned(&text[byte_of(text, *from, "substring")?..])
        }
        (F::Substring, [V::String(text), V::Int(from), V::Int(to)]) => {
            let from = byte_of(text, *from, "substring")?;
            let to = byte_of(text, *to, "substring")?;
            owned(text.get(from..to).ok_or(Failure::OutOfRange { operation: "substring" })?)
        }
        (F::Join, [V::List(items), rest @ ..]) => {
            let by = match rest {
                [V::String(by)] => &**by,
                _ => "",
            };
            let mut joined = String::new();
            for (place, item) in items.iter().enumerate() {
                let V::String(text) = item else { return Err(no_overload("join", [item])) };
                meter.spend_on_text(text.len() + by.len())?;
                if place > 0 {
                    joined.push_str(by);
                }
                joined.push_str(text);
            }
            V::String(joined.into())
        }
        _ => return Err(no_overload("a function", arguments)),
    })
}

fn owned<'a>(text: &str) -> Value<'a> {
    Value::String(text.to_owned().into())
}

/// The place of an item in a list, or -1.
fn place_of<'v, 'a: 'v>(
    items: impl Iterator<Item = (usize, &'v Value<'a>)>,
    item: &Value<'a>,
    meter: &mut Meter,
) -> Result<Value<'a>, Failure> {
    for (place, one) in items {
        if one.equals(item, meter)? {
            return count(place);
        }
    }
    Ok(Value::Int(-1))
}

/// Splitting by nothing gives the characters.
fn pieces<'a>(text: &str, by: &str, most: usize) -> Vec<Value<'a>> {
    if !by.is_empty() {
        return text.splitn(most, by).map(owned).collect();
    }
    let mut ends: Vec<_> = text.char_indices().map(|(place, _)| place).skip(1).collect();
    ends.truncate(most - 1);
    ends.push(text.len());
    let mut start = 0;
    let mut all = Vec::with_capacity(ends.len());
    for end in ends {
        all.push(owned(&text[start..end]));
        start = end;
    }
    all
}

/// How many times at most; a negative number stands for no limit.
fn limit(times: Option<&Value<'_>>, operation: &'static str) -> Result<usize, Failure> {
    match times {
        None => Ok(usize::MAX),
        Some(Value::Int(times)) => Ok(usize::try_from(*times).unwrap_or(usize::MAX)),
        Some(other) => Err(no_overload(operation, [other])),
    }
}

/// A place in a text, counted in characters. The end is one.
fn place_in(text: &str, place: i64, operation: &'static str) -> Result<usize, Failure> {
    let place = usize::try_from(place).ok().filter(|place| *place <= text.chars().count());
    place.ok_or(Failure::OutOfRange { operation })
}

fn byte_of(text: &str, place: i64, operation: &'static str) -> Result<usize, Failure> {
    let place = place_in(text, place, operation)?;
    Ok(text.char_indices().nth(place).map_or(text.len(), |(byte, _)| byte))
}
