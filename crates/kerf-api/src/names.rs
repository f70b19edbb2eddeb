//! What Kubernetes accepts as a label, and its messages for other values.

const NAME_RULE: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
    alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
    '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const VALUE_RULE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', \
    and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for \
    validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
const SUBDOMAIN_RULE: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or \
    '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
    '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";

const LONGEST_NAME: usize = 63;
const LONGEST_SUBDOMAIN: usize = 253;

/// What is wrong with a label key (also: a taint's key or value); nothing if it is valid.
pub fn qualified_name_problems(key: &str) -> Vec<String> {
    let mut problems = Vec::new();
    let name = match key.split('/').collect::<Vec<_>>()[..] {
        [name] => name,
        [prefix, name] => {
            if prefix.is_empty() {
                problems.push("prefix part must be non-empty".to_owned());
            } else {
                if prefix.len() > LONGEST_SUBDOMAIN {
                    problems.push(format!("prefix part {}", longer_than(LONGEST_SUBDOMAIN)));
                }
                if !is_subdomain(prefix) {
                    problems.push(format!("prefix part {SUBDOMAIN_RULE}"));
                }
            }
            name
        }
        _ => {
            return vec![format!(
                "a valid label key {NAME_RULE} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            )];
        }
    };
    if name.is_empty() {
        problems.push("name part must be non-empty".to_owned());
    } else if name.len() > LONGEST_NAME {
        problems.push(format!("name part {}", longer_than(LONGEST_NAME)));
    }
    if !is_name(name) {
        problems.push(format!("name part {NAME_RULE}"));
    }
    problems
}

/// What is wrong with a label value; nothing if it is valid.
pub fn label_value_problems(value: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if value.len() > LONGEST_NAME {
        problems.push(longer_than(LONGEST_NAME));
    }
    if !value.is_empty() && !is_name(value) {
        problems.push(VALUE_RULE.to_owned());
    }
    problems
}

fn longer_than(length: usize) -> String {
    format!("must be no more than {length} bytes")
}

fn is_name(text: &str) -> bool {
    let end = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    end(bytes.first())
        && end(bytes.last())
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte))
}

fn is_subdomain(text: &str) -> bool {
    let alphanumeric = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    text.split('.').all(|label| {
        let bytes = label.as_bytes();
        bytes.first().is_some_and(alphanumeric)
            && bytes.last().is_some_and(alphanumeric)
            && bytes.iter().all(|byte| alphanumeric(byte) || *byte == b'-')
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_label_keys() {
        for key in ["a", "A", "team", "example.com/team", "a.b-c.d/X_y.z-1", "0/0", &"a".repeat(63)]
        {
            assert_eq!(qualified_name_problems(key), Vec::<String>::new(), "{key}");
        }
    }

    #[test]
    fn says_what_is_wrong_with_a_label_key() {
        let check = |key: &str, starts: &[&str]| {
            let problems = qualified_name_problems(key);
            assert_eq!(problems.len(), starts.len(), "{key}: {problems:?}");
            for (problem, start) in problems.iter().zip(starts) {
                assert!(problem.starts_with(start), "{key}: {problem}");
            }
        };
        let (name, prefix) =
            ("name part must consist", "prefix part a lowercase RFC 1123 subdomain");
        check("", &["name part must be non-empty", name]);
        check("-a", &[name]);
        check("a_", &[name]);
        check("a b", &[name]);
        check("\u{e4}", &[name]);
        check(&"a".repeat(64), &["name part must be no more than 63 bytes"]);
        check("/a", &["prefix part must be non-empty"]);
        check("A/a", &[prefix]);
        check("a..b/a", &[prefix]);
        check("-a/-", &[prefix, name]);
        check(&format!("{}/a", "a".repeat(254)), &["prefix part must be no more than 253 bytes"]);
        check("a/b/c", &["a valid label key must consist"]);
    }

    #[test]
    fn uses_the_words_of_kubernetes() {
        assert_eq!(
            qualified_name_problems("a/b/c"),
            [
                "a valid label key must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            ]
        );
        assert_eq!(
            label_value_problems("-"),
            [
                "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
            ]
        );
        assert_eq!(
            qualified_name_problems("A/a"),
            [
                "prefix part a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
            ]
        );
    }

    #[test]
    fn says_what_is_wrong_with_a_label_value() {
        let check = |value: &str, problems: usize| {
            assert_eq!(label_value_problems(value).len(), problems, "{value}");
        };
        check("", 0);
        check("a", 0);
        check("a.b_c-D", 0);
        check("a/b", 1);
        check(".a", 1);
        check(&"a".repeat(63), 0);
        check(&"a".repeat(64), 1);
        check(&"-".repeat(64), 2);
    }
}
