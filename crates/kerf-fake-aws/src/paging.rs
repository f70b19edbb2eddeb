//! Pages of an answer. A token is the key of the last thing that was given, so that what comes and goes between two pages makes
//! no page skip anything else.

use std::ops::RangeInclusive;

use crate::refused::Refused;

/// How many things a page of a call may have.
#[derive(Clone, Debug)]
pub(crate) struct PageSize {
    pub(crate) allowed: RangeInclusive<usize>,
    /// Where the request does not say.
    pub(crate) default: usize,
}

impl PageSize {
    pub(crate) const fn new(least: usize, most: usize, default: usize) -> Self {
        Self { allowed: least..=most, default }
    }
}

/// A page of things that are sorted by their key, and the token of the next one.
pub(crate) fn page<T>(
    sorted: Vec<T>,
    key: impl Fn(&T) -> String,
    size: &PageSize,
    wanted: Option<i32>,
    token: Option<&str>,
) -> Result<(Vec<T>, Option<String>), Refused> {
    let size = match wanted.map(usize::try_from) {
        None => size.default,
        Some(Ok(wanted)) if size.allowed.contains(&wanted) => wanted,
        Some(_) => {
            let (least, most) = (size.allowed.start(), size.allowed.end());
            let message = format!("MaxResults must be between {least} and {most}");
            return Err(Refused::invalid_value(message));
        }
    };
    let after = match token.filter(|token| !token.is_empty()) {
        None => None,
        Some(token) => match token.strip_prefix(TOKEN) {
            Some(key) => Some(key),
            None => return Err(Refused::new("InvalidNextToken", "The token is not valid")),
        },
    };
    let mut rest =
        sorted.into_iter().filter(|thing| after.is_none_or(|after| *key(thing) > *after));
    let page: Vec<T> = rest.by_ref().take(size).collect();
    let token = match (page.last(), rest.next()) {
        (Some(last), Some(_)) => Some(format!("{TOKEN}{}", key(last))),
        _ => None,
    };
    Ok((page, token))
}

const TOKEN: &str = "after:";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_follow_one_another() {
        let size = PageSize::new(2, 5, 3);
        let all = || ["a", "b", "c", "d", "e"].map(str::to_owned).to_vec();
        let check = |wanted, token: Option<&str>, expect: Result<(&str, Option<&str>), &str>| {
            let page = page(all(), Clone::clone, &size, wanted, token);
            let page = page.map(|(page, token)| (page.concat(), token));
            let page = page.as_ref().map(|(page, token)| (page.as_str(), token.as_deref()));
            assert_eq!(
                page.map_err(|refused| refused.code.as_str()),
                expect,
                "{wanted:?} {token:?}"
            );
        };
        check(None, None, Ok(("abc", Some("after:c"))));
        check(None, Some("after:c"), Ok(("de", None)));
        check(Some(2), Some("after:c"), Ok(("de", None)));
        check(Some(2), Some("after:b"), Ok(("cd", Some("after:d"))));
        check(Some(2), Some("after:bb"), Ok(("cd", Some("after:d"))));
        check(Some(5), Some(""), Ok(("abcde", None)));
        check(Some(1), None, Err("InvalidParameterValue"));
        check(Some(6), None, Err("InvalidParameterValue"));
        check(Some(-1), None, Err("InvalidParameterValue"));
        check(None, Some("7"), Err("InvalidNextToken"));
    }
}
