//! The functions of selectors: CEL's own, and of Kubernetes' those for quantities, versions, strings, lists and sets. What is not in
//! the table is refused when the expression is compiled: IP addresses, URLs, formats, encodings, times.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::ops::RangeInclusive;
use std::rc::Rc;

use regex::RegexBuilder;
use semver::Version;

use super::Failure;
use super::evaluate::Meter;
use super::value::{Value, list, no_overload, parse_version};
use crate::amount::Amount;

mod strings;

/// How a function may be called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Function,
    Method,
    Either,
}

impl Form {
    pub(super) fn allows(self, as_method: bool) -> bool {
        match self {
            Self::Either => true,
            Self::Method => as_method,
            Self::Function => !as_method,
        }
    }
}

#[derive(Debug)]
pub(super) struct Signature {
    pub(super) name: &'static str,
    pub(super) form: Form,
    /// How many arguments, with what a method is called on.
    pub(super) arguments: RangeInclusive<usize>,
    pub(super) function: Function,
}

macro_rules! functions {
    ($($form:ident $function:ident $name:literal $arguments:expr;)*) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum Function { $($function),* }

        pub(super) const FUNCTIONS: &[Signature] = &[$(Signature {
            name: $name,
            form: Form::$form,
            arguments: $arguments,
            function: Function::$function,
        }),*];
    };
}

functions! {
    Function Equal "_==_" 2..=2;
    Function Unequal "_!=_" 2..=2;
    Function Less "_<_" 2..=2;
    Function AtMost "_<=_" 2..=2;
    Function Greater "_>_" 2..=2;
    Function AtLeast "_>=_" 2..=2;
    Function In "@in" 2..=2;
    Function Index "_[_]" 2..=2;
    Function OptionalIndex "_[?_]" 2..=2;
    Function Not "!_" 1..=1;
    Function Negate "-_" 1..=1;
    Function Plus "_+_" 2..=2;
    Function Minus "_-_" 2..=2;
    Function Times "_*_" 2..=2;
    Function Divide "_/_" 2..=2;
    Function Modulo "_%_" 2..=2;
    Either Size "size" 1..=1;
    Function Dyn "dyn" 1..=1;
    Function ToInt "int" 1..=1;
    Function ToDouble "double" 1..=1;
    Function ToText "string" 1..=1;
    Function Quantity "quantity" 1..=1;
    Function IsQuantity "isQuantity" 1..=1;
    Function Semver "semver" 1..=2;
    Function IsSemver "isSemver" 1..=2;
    Method CompareTo "compareTo" 2..=2;
    Method IsGreaterThan "isGreaterThan" 2..=2;
    Method IsLessThan "isLessThan" 2..=2;
    Method Add "add" 2..=2;
    Method Sub "sub" 2..=2;
    Method Sign "sign" 1..=1;
    Method IsInteger "isInteger" 1..=1;
    Method AsInteger "asInteger" 1..=1;
    Method AsApproximateFloat "asApproximateFloat" 1..=1;
    Method Major "major" 1..=1;
    Method Minor "minor" 1..=1;
    Method Patch "patch" 1..=1;
    Method Includes "includes" 2..=2;
    Either Matches "matches" 2..=2;
    Method Find "find" 2..=2;
    Method FindAll "findAll" 2..=3;
    Method StartsWith "startsWith" 2..=2;
    Method EndsWith "endsWith" 2..=2;
    Method Contains "contains" 2..=2;
    Method LowerAscii "lowerAscii" 1..=1;
    Method UpperAscii "upperAscii" 1..=1;
    Method Trim "trim" 1..=1;
    Method CharAt "charAt" 2..=2;
    Method IndexOf "indexOf" 2..=3;
    Method LastIndexOf "lastIndexOf" 2..=2;
    Method Replace "replace" 3..=4;
    Method Split "split" 2..=3;
    Method Substring "substring" 2..=3;
    Method Join "join" 1..=2;
    Method IsSorted "isSorted" 1..=1;
    Method Sum "sum" 1..=1;
    Method Min "min" 1..=1;
    Method Max "max" 1..=1;
    Function SetsContains "sets.contains" 2..=2;
    Function SetsEquivalent "sets.equivalent" 2..=2;
    Function SetsIntersects "sets.intersects" 2..=2;
    Function OptionalOf "optional.of" 1..=1;
    Function OptionalNone "optional.none" 0..=0;
    Method HasValue "hasValue" 1..=1;
    Method OptionalValue "value" 1..=1;
    Method OrValue "orValue" 2..=2;
    Method OrOptional "or" 2..=2;
}

pub(super) fn call<'a>(
    function: Function,
    arguments: &[Value<'a>],
    meter: &mut Meter,
) -> Result<Value<'a>, Failure> {
    use Function as F;
    use Value as V;
    Ok(match (function, arguments) {
        (F::Equal, [left, right]) => V::Bool(left.equals(right, meter)?),
        (F::Unequal, [left, right]) => V::Bool(!left.equals(right, meter)?),
        (F::Less, [left, right]) => V::Bool(ordered(left, right, meter)? == Ordering::Less),
        (F::AtMost, [left, right]) => V::Bool(ordered(left, right, meter)? != Ordering::Greater),
        (F::Greater, [left, right]) => V::Bool(ordered(left, right, meter)? == Ordering::Greater),
        (F::AtLeast, [left, right]) => V::Bool(ordered(left, right, meter)? != Ordering::Less),
        (F::In, [item, of]) | (F::Includes, [of @ V::List(_), item]) => {
            V::Bool(of.contains(item, meter)?)
        }
        (F::Index, [of, key]) => of.index(key, meter)?,
        (F::OptionalIndex, [of, key]) => match of.index(key, meter) {
            Ok(value) => V::Optional(Some(Rc::new(value))),
            Err(Failure::NoSuchKey { .. } | Failure::OutOfRange { .. }) => V::Optional(None),
            Err(failure) => return Err(failure),
        },
        (F::Not, [V::Bool(value)]) => V::Bool(!value),
        (F::Negate, [V::Int(value)]) => V::Int(in_range("negation", value.checked_neg())?),
        (F::Negate, [V::Double(value)]) => V::Double(-value),
        (F::Plus | F::Minus | F::Times | F::Divide | F::Modulo, [left, right]) => {
            arithmetic(function, left, right, meter)?
        }
        (F::Size, [V::String(text)]) => {
            meter.spend_on_text(text.len())?;
            count(text.chars().count())?
        }
        (F::Size, [of]) => count(of.count()?)?,
        (F::Dyn, [value]) | (F::OrValue, [V::Optional(None), value]) => value.clone(),
        (F::ToInt, [value]) => to_int(value)?,
        (F::ToDouble, [V::Int(value)]) => V::Double(*value as f64),
        (F::ToDouble, [V::Uint(value)]) => V::Double(*value as f64),
        (F::ToDouble, [V::Double(value)]) => V::Double(*value),
        (F::ToText, [V::Int(value)]) => V::String(value.to_string().into()),
        (F::ToText, [V::Uint(value)]) => V::String(value.to_string().into()),
        (F::ToText, [V::Bool(value)]) => V::String(value.to_string().into()),
        (F::ToText, [V::String(value)]) => V::String(value.clone()),
        (F::Quantity, [V::String(text)]) => V::Quantity(parse_quantity(text)?),
        (F::IsQuantity, [V::String(text)]) => V::Bool(Amount::parse(text).is_ok()),
        (F::Semver, [V::String(text)]) => V::Version(parse_version(text)?),
        (F::Semver, [V::String(text), V::Bool(lenient)]) => {
            V::Version(parse_version(&normalized(text, *lenient))?)
        }
        (F::IsSemver, [V::String(text)]) => V::Bool(Version::parse(text).is_ok()),
        (F::IsSemver, [V::String(text), V::Bool(lenient)]) => {
            V::Bool(Version::parse(&normalized(text, *lenient)).is_ok())
        }
        (F::CompareTo, [left, right]) => V::Int(match order(left, right)? {
            Ordering::Less => -1,
            Ordering::Equal => 0,
            Ordering::Greater => 1,
        }),
        (F::IsGreaterThan, [left, right]) => V::Bool(order(left, right)? == Ordering::Greater),
        (F::IsLessThan, [left, right]) => V::Bool(order(left, right)? == Ordering::Less),
        (F::Add, [V::Quantity(left), right]) => V::Quantity(left.plus(addend(right)?)),
        (F::Sub, [V::Quantity(left), right]) => V::Quantity(left.minus(addend(right)?)),
        (F::Sign, [V::Quantity(amount)]) => V::Int(amount.signum()),
        (F::IsInteger, [V::Quantity(amount)]) => V::Bool(amount.as_whole().is_some()),
        (F::AsInteger, [V::Quantity(amount)]) => V::Int(in_range("asInteger", amount.as_whole())?),
        (F::AsApproximateFloat, [V::Quantity(amount)]) => V::Double(amount.approximately()),
        (F::Major, [V::Version(version)]) => V::Int(number(version.major)?),
        (F::Minor, [V::Version(version)]) => V::Int(number(version.minor)?),
        (F::Patch, [V::Version(version)]) => V::Int(number(version.patch)?),
        (F::Includes, [of, item]) => V::Bool(of.equals(item, meter)?),
        (F::IsSorted | F::Sum | F::Min | F::Max, [V::List(items)]) => {
            aggregate(function, items, meter)?
        }
        (F::SetsContains, [all, some]) => V::Bool(every(some, all, meter)?),
        (F::SetsEquivalent, [left, right]) => {
            V::Bool(every(left, right, meter)? && every(right, left, meter)?)
        }
        (F::SetsIntersects, [left, right]) => {
            let right = set(right)?;
            for one in set(left)? {
                if one.is_among(right, meter)? {
                    return Ok(V::Bool(true));
                }
            }
            V::Bool(false)
        }
        (F::OptionalOf, [value]) => V::Optional(Some(Rc::new(value.clone()))),
        (F::OptionalNone, []) => V::Optional(None),
        (F::HasValue, [V::Optional(value)]) => V::Bool(value.is_some()),
        (F::OptionalValue | F::OrValue, [V::Optional(Some(value)), ..]) => (**value).clone(),
        (F::OptionalValue, [V::Optional(None)]) => {
            return Err(Failure::NoSuchKey { key: "value of an empty optional".to_owned() });
        }
        (F::OrOptional, [V::Optional(None), other @ V::Optional(_)]) => other.clone(),
        (F::OrOptional, [some @ V::Optional(Some(_)), V::Optional(_)]) => some.clone(),
        _ => strings::call(function, arguments, meter)?,
    })
}

fn ordered<'a>(
    left: &Value<'a>,
    right: &Value<'a>,
    meter: &mut Meter,
) -> Result<Ordering, Failure> {
    if let (Value::String(left), Value::String(right)) = (left, right) {
        meter.spend_on_text(left.len().min(right.len()))?;
    }
    left.order(right)
}

fn arithmetic<'a>(
    function: Function,
    left: &Value<'a>,
    right: &Value<'a>,
    meter: &mut Meter,
) -> Result<Value<'a>, Failure> {
    use Function as F;
    use Value as V;
    let range = |value| in_range("arithmetic", value);
    Ok(match (function, left, right) {
        (F::Plus, V::Int(left), V::Int(right)) => V::Int(range(left.checked_add(*right))?),
        (F::Minus, V::Int(left), V::Int(right)) => V::Int(range(left.checked_sub(*right))?),
        (F::Times, V::Int(left), V::Int(right)) => V::Int(range(left.checked_mul(*right))?),
        (F::Divide, V::Int(left), V::Int(right)) => V::Int(range(left.checked_div(*right))?),
        (F::Modulo, V::Int(left), V::Int(right)) => V::Int(range(left.checked_rem(*right))?),
        (F::Plus, V::Uint(left), V::Uint(right)) => {
            V::Uint(in_range("arithmetic", left.checked_add(*right))?)
        }
        (F::Minus, V::Uint(left), V::Uint(right)) => {
            V::Uint(in_range("arithmetic", left.checked_sub(*right))?)
        }
        (F::Times, V::Uint(left), V::Uint(right)) => {
            V::Uint(in_range("arithmetic", left.checked_mul(*right))?)
        }
        (F::Divide, V::Uint(left), V::Uint(right)) => {
            V::Uint(in_range("arithmetic", left.checked_div(*right))?)
        }
        (F::Modulo, V::Uint(left), V::Uint(right)) => {
            V::Uint(in_range("arithmetic", left.checked_rem(*right))?)
        }
        (F::Plus, V::Double(left), V::Double(right)) => V::Double(left + right),
        (F::Minus, V::Double(left), V::Double(right)) => V::Double(left - right),
        (F::Times, V::Double(left), V::Double(right)) => V::Double(left * right),
        (F::Divide, V::Double(left), V::Double(right)) => V::Double(left / right),
        (F::Plus, V::String(left), V::String(right)) => {
            meter.spend_on_text(left.len() + right.len())?;
            V::String(format!("{}{}", &**left, &**right).into())
        }
        (F::Plus, V::List(left), V::List(right)) => {
            meter.spend(left.len() + right.len())?;
            list(left.iter().chain(right.iter()).cloned())
        }
        _ => return Err(no_overload("arithmetic", [left, right])),
    })
}

fn to_int<'a>(value: &Value<'a>) -> Result<Value<'a>, Failure> {
    Ok(Value::Int(match value {
        Value::Int(value) => *value,
        Value::Uint(value) => number(*value)?,
        Value::Double(value) => {
            // The greatest double below 2^63; beyond, the conversion would be clamped.
            let fits = value.is_finite() && value.abs() < 9_223_372_036_854_775_000.0;
            #[allow(clippy::cast_possible_truncation, reason = "int() truncates, within range")]
            in_range("int", fits.then_some(*value as i64))?
        }
        Value::String(text) => {
            let not_an_int = |_| Failure::NotA { what: "an int", text: text.to_string() };
            text.parse().map_err(not_an_int)?
        }
        _ => return Err(no_overload("int", [value])),
    }))
}

fn order(left: &Value<'_>, right: &Value<'_>) -> Result<Ordering, Failure> {
    match (left, right) {
        (Value::Quantity(left), Value::Quantity(right)) => Ok(left.cmp(right)),
        (Value::Version(left), Value::Version(right)) => Ok(left.cmp_precedence(right)),
        _ => Err(no_overload("a comparison", [left, right])),
    }
}

fn addend(value: &Value<'_>) -> Result<Amount, Failure> {
    match value {
        Value::Quantity(amount) => Ok(*amount),
        Value::Int(units) => Ok(Amount::whole(*units)),
        _ => Err(no_overload("a sum of quantities", [value])),
    }
}

fn aggregate<'a>(
    function: Function,
    items: &[Value<'a>],
    meter: &mut Meter,
) -> Result<Value<'a>, Failure> {
    meter.spend(items.len())?;
    match function {
        Function::IsSorted => {
            for pair in items.windows(2) {
                if ordered(&pair[0], &pair[1], meter)? == Ordering::Greater {
                    return Ok(Value::Bool(false));
                }
            }
            Ok(Value::Bool(true))
        }
        Function::Sum => {
            let mut sum = items.first().cloned().unwrap_or(Value::Int(0));
            for item in items.iter().skip(1) {
                sum = arithmetic(Function::Plus, &sum, item, meter)?;
            }
            Ok(sum)
        }
        _ => {
            let wanted = if function == Function::Min { Ordering::Less } else { Ordering::Greater };
            let mut best = items.first().ok_or(Failure::OutOfRange { operation: "min or max" })?;
            for item in items {
                if ordered(item, best, meter)? == wanted {
                    best = item;
                }
            }
            Ok(best.clone())
        }
    }
}

fn set<'v, 'a>(value: &'v Value<'a>) -> Result<&'v [Value<'a>], Failure> {
    match value {
        Value::List(items) => Ok(items),
        _ => Err(no_overload("a set", [value])),
    }
}

fn every<'a>(some: &Value<'a>, of: &Value<'a>, meter: &mut Meter) -> Result<bool, Failure> {
    let of = set(of)?;
    for one in set(some)? {
        if !one.is_among(of, meter)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// A pattern, with a bound on what it compiles to.
fn pattern(text: &str, meter: &mut Meter) -> Result<regex::Regex, Failure> {
    // Compiling a pattern that reaches the limit takes as long as some thousand steps.
    meter.spend(5_000 + text.len())?;
    let not_a_pattern = |_| Failure::NotA { what: "a regular expression", text: text.to_owned() };
    RegexBuilder::new(text).size_limit(1 << 18).build().map_err(not_a_pattern)
}

fn parse_quantity(text: &str) -> Result<Amount, Failure> {
    Amount::parse(text).map_err(|_| Failure::NotA { what: "a quantity", text: text.to_owned() })
}

/// A version with what people leave out: no `v`, three numbers, none of them with leading zeros.
fn normalized(text: &str, lenient: bool) -> Cow<'_, str> {
    if !lenient {
        return Cow::Borrowed(text);
    }
    let text = text.strip_prefix(['v', 'V']).unwrap_or(text);
    let end = text.find(['-', '+']).unwrap_or(text.len());
    let (numbers, rest) = text.split_at(end);
    let mut parts: Vec<_> = numbers
        .split('.')
        .map(|part| match part.trim_start_matches('0') {
            "" if !part.is_empty() => "0",
            part => part,
        })
        .collect();
    while parts.len() < 3 {
        parts.push("0");
    }
    Cow::Owned(format!("{}{rest}", parts.join(".")))
}

fn in_range<T>(operation: &'static str, value: Option<T>) -> Result<T, Failure> {
    value.ok_or(Failure::OutOfRange { operation })
}

fn number(value: u64) -> Result<i64, Failure> {
    in_range("a conversion to int", i64::try_from(value).ok())
}

fn count<'a>(count: usize) -> Result<Value<'a>, Failure> {
    Ok(Value::Int(in_range("a size", i64::try_from(count).ok())?))
}
