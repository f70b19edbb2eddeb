//! Filters of `Describe…` calls: all must hold, each by one of its values. Values may have `*` and `?`.

use std::collections::BTreeMap;

use kerf_aws_wire::ec2;

use crate::refused::Refused;

/// EC2 takes no more values in one request.
const MOST_VALUES: usize = 200;

pub(crate) type Tags = BTreeMap<String, String>;

/// What a filter looks at: the texts that a thing has for a filter's name. `None`: there is no such filter.
pub(crate) type Texts = Option<Vec<String>>;

/// Keeps what all filters let through. `of` gives the texts of a thing; filters of tags are answered here.
pub(crate) fn select<'a, T: 'a>(
    things: impl IntoIterator<Item = &'a T>,
    filters: &[ec2::Filter],
    tags: impl Fn(&T) -> &Tags,
    of: impl Fn(&T, &str) -> Texts,
) -> Result<Vec<&'a T>, Refused> {
    let values: usize = filters.iter().map(|filter| filter.values.len()).sum();
    if values > MOST_VALUES {
        let message = format!("The maximum number of filter values is {MOST_VALUES}, not {values}");
        return Err(Refused::new("FilterLimitExceeded", message));
    }
    let mut kept = Vec::new();
    'things: for thing in things {
        for filter in filters {
            let name = filter.name.as_deref().unwrap_or_default();
            let texts = of_tags(tags(thing), name).or_else(|| of(thing, name));
            let texts = texts
                .ok_or_else(|| Refused::invalid_value(format!("The filter '{name}' is invalid")))?;
            let holds =
                texts.iter().any(|text| filter.values.iter().any(|pattern| matches(pattern, text)));
            if !holds {
                continue 'things;
            }
        }
        kept.push(thing);
    }
    Ok(kept)
}

fn of_tags(tags: &Tags, name: &str) -> Texts {
    match name {
        "tag-key" => Some(tags.keys().cloned().collect()),
        "tag-value" => Some(tags.values().cloned().collect()),
        _ => name.strip_prefix("tag:").map(|key| tags.get(key).cloned().into_iter().collect()),
    }
}

/// The tags of things that cannot have any.
pub(crate) fn untagged() -> &'static Tags {
    static NONE: Tags = Tags::new();
    &NONE
}

/// The text of one filter, for things that have one value.
#[expect(clippy::unnecessary_wraps, reason = "what a filter looks at is a `Texts`")]
pub(crate) fn one(text: impl Into<String>) -> Texts {
    Some(vec![text.into()])
}

/// `*` stands for any text, `?` for any character.
pub(crate) fn matches(pattern: &str, text: &str) -> bool {
    if !pattern.contains(['*', '?']) {
        return pattern == text;
    }
    let (pattern, text): (Vec<char>, Vec<char>) =
        (pattern.chars().collect(), text.chars().collect());
    let (mut at, mut of) = (0, 0);
    let mut star = None;
    while of < text.len() {
        match pattern.get(at) {
            Some('*') => {
                star = Some((at, of));
                at += 1;
            }
            Some(character) if *character == '?' || *character == text[of] => {
                at += 1;
                of += 1;
            }
            _ => match star {
                // The last star takes one character more.
                Some((place, taken)) => {
                    star = Some((place, taken + 1));
                    at = place + 1;
                    of = taken + 1;
                }
                None => return false,
            },
        }
    }
    pattern[at..].iter().all(|character| *character == '*')
}

pub(crate) fn tags_of(list: &[ec2::Tag]) -> Tags {
    list.iter()
        .map(|tag| (tag.key.clone().unwrap_or_default(), tag.value.clone().unwrap_or_default()))
        .collect()
}

pub(crate) fn tag_list(tags: &Tags) -> Vec<ec2::Tag> {
    tags.iter()
        .map(|(key, value)| ec2::Tag { key: Some(key.clone()), value: Some(value.clone()) })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_those_of_ec2() {
        for (pattern, text, expect) in [
            ("m5.large", "m5.large", true),
            ("m5.*", "m5.large", true),
            ("m5.*", "m5a.large", false),
            ("*", "", true),
            ("?", "", false),
            ("m?.*e", "m5.2xlarge", true),
            ("a*b*c", "aXbYbZc", true),
            ("a*b*c", "aXbYbZ", false),
            ("**x", "yx", true),
            ("", "", true),
        ] {
            assert_eq!(matches(pattern, text), expect, "{pattern} {text}");
        }
    }

    #[test]
    fn all_filters_hold_and_one_value_of_each() {
        let things: Vec<Tags> = [("a", "1"), ("a", "2"), ("b", "1")]
            .map(|(key, value)| [(key.to_owned(), value.to_owned())].into())
            .into();
        let check = |filters: &[(&str, &[&str])], expect: Result<&[usize], &str>| {
            let filters: Vec<_> = filters
                .iter()
                .map(|(name, values)| ec2::Filter {
                    name: Some((*name).to_owned()),
                    values: values.iter().map(|value| (*value).to_owned()).collect(),
                })
                .collect();
            let kept = select(
                &things,
                &filters,
                |thing| thing,
                |thing, name| match name {
                    "first" => one(thing.keys().next()?.clone()),
                    _ => None,
                },
            );
            let kept = kept.map(|kept| {
                let place = |one: &&Tags| things.iter().position(|thing| std::ptr::eq(thing, *one));
                kept.iter().filter_map(place).collect::<Vec<_>>()
            });
            let code = kept.as_ref().map(Vec::as_slice).map_err(|refused| refused.code.as_str());
            assert_eq!(code, expect, "{filters:?}");
        };
        check(&[], Ok(&[0, 1, 2]));
        check(&[("tag:a", &["1", "2"])], Ok(&[0, 1]));
        check(&[("tag:a", &["*"]), ("tag-value", &["2"])], Ok(&[1]));
        check(&[("tag-key", &["b"])], Ok(&[2]));
        check(&[("first", &["b", "c"])], Ok(&[2]));
        check(&[("second", &["b"])], Err("InvalidParameterValue"));
        check(&[("tag:a", &["1"; 201])], Err("FilterLimitExceeded"));
    }
}
