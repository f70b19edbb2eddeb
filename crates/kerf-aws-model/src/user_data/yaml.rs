//! YAML as Kubernetes' tools write it: keys in order, lists not indented, texts plain where they can be.

use std::fmt::Write;

use serde_json::Value;

pub(super) fn write(value: &Value) -> String {
    let mut text = String::new();
    write_block(value, 0, &mut text);
    text
}

/// A map or list that is not empty begins on a line of its own.
fn write_block(value: &Value, indent: usize, text: &mut String) {
    match value {
        Value::Object(map) if !map.is_empty() => {
            for (key, value) in map {
                let _ = write!(text, "{:indent$}{}:", "", scalar(key));
                match value {
                    Value::Object(inner) if !inner.is_empty() => {
                        text.push('\n');
                        write_block(value, indent + 2, text);
                    }
                    Value::Array(inner) if !inner.is_empty() => {
                        text.push('\n');
                        write_block(value, indent, text);
                    }
                    _ => write_inline(value, text),
                }
            }
        }
        Value::Array(list) if !list.is_empty() => {
            for value in list {
                let mut item = String::new();
                write_block(value, indent + 2, &mut item);
                // The first line of an item stands beside its dash.
                let _ =
                    writeln!(text, "{:indent$}- {}", "", item.trim_start().trim_end_matches('\n'));
            }
        }
        _ => write_inline(value, text),
    }
}

fn write_inline(value: &Value, text: &mut String) {
    let _ = match value {
        Value::String(value) => writeln!(text, " {}", scalar(value)),
        Value::Object(_) => writeln!(text, " {{}}"),
        Value::Array(_) => writeln!(text, " []"),
        Value::Null | Value::Bool(_) | Value::Number(_) => writeln!(text, " {value}"),
    };
}

fn scalar(text: &str) -> String {
    if text.chars().any(char::is_control) || text.is_empty() || is_of_another_type(text) {
        // A JSON text is a YAML text.
        Value::from(text).to_string()
    } else if is_plain(text) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', "''"))
    }
}

/// Whether it would be read as a number, a truth, a date or nothing.
fn is_of_another_type(text: &str) -> bool {
    const WORDS: [&str; 10] = ["null", "~", "true", "false", "yes", "no", "on", "off", "y", "n"];
    let number = text.replace('_', "");
    let unsigned = number.trim_start_matches(['+', '-']);
    let is_date = text.len() >= 8
        && text.as_bytes()[..4].iter().all(u8::is_ascii_digit)
        && text.as_bytes()[4] == b'-';
    let in_base_60 =
        text.contains(':') && text.chars().all(|c| c.is_ascii_digit() || ":.".contains(c));
    WORDS.iter().any(|word| text.eq_ignore_ascii_case(word))
        || number.parse::<f64>().is_ok()
        || ["0x", "0b", "0o"].iter().any(|prefix| unsigned.starts_with(prefix))
        || [".inf", ".nan"].iter().any(|word| unsigned.eq_ignore_ascii_case(word))
        || text == "<<"
        || is_date
        || in_base_60
}

fn is_plain(text: &str) -> bool {
    let first_is_special = text.starts_with([
        ' ', '!', '&', '*', '%', '@', '`', '#', '{', '}', '[', ']', ',', '|', '>', '"', '\'', '=',
    ]);
    let is_indicator = ["- ", "? ", ": ", "---", "..."].iter().any(|mark| text.starts_with(mark))
        || ["-", "?", ":"].contains(&text);
    // A flag begins with two dashes, which is no indicator; three would begin a document.
    !first_is_special
        && !is_indicator
        && !text.contains(": ")
        && !text.contains(" #")
        && !text.ends_with([' ', ':'])
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn looks_like_what_kubernetes_tools_write() {
        let value = json!({
            "kind": "NodeConfig",
            "metadata": {},
            "spec": {
                "flags": ["--node-labels=\"a=b,c=d\""],
                "list": [{"effect": "NoExecute", "key": "a", "more": {"x": [1, 2]}}, {"key": "b"}],
                "none": [],
                "number": 110,
                "yes": true,
            },
        });
        let expected = r#"kind: NodeConfig
metadata: {}
spec:
  flags:
  - --node-labels="a=b,c=d"
  list:
  - effect: NoExecute
    key: a
    more:
      x:
      - 1
      - 2
  - key: b
  none: []
  number: 110
  "yes": true
"#;
        assert_eq!(write(&value), expected);
    }

    #[test]
    fn a_text_is_read_as_the_same_text() {
        for (text, expected) in [
            ("10.0.100.10", "10.0.100.10"),
            ("10.100.0.0/16", "10.100.0.0/16"),
            ("fd4b:121b:812b::a", "fd4b:121b:812b::a"),
            ("https://cluster.example", "https://cluster.example"),
            ("Y2EtYnVuZGxlCg==", "Y2EtYnVuZGxlCg=="),
            ("100m", "100m"),
            ("5%", "5%"),
            ("2m0s", "2m0s"),
            ("memory.available", "memory.available"),
            ("1", "\"1\""),
            ("0.5", "\"0.5\""),
            ("1e3", "\"1e3\""),
            ("1_000", "\"1_000\""),
            ("0x1f", "\"0x1f\""),
            ("true", "\"true\""),
            ("No", "\"No\""),
            ("", "\"\""),
            ("2026-11-16", "\"2026-11-16\""),
            ("12:30", "\"12:30\""),
            ("a: b", "'a: b'"),
            ("a #b", "'a #b'"),
            ("it's: so", "'it''s: so'"),
            ("%a", "'%a'"),
            ("fd00::", "'fd00::'"),
            ("a\nb", "\"a\\nb\""),
        ] {
            let written = write(&json!({ "key": text }));
            assert_eq!(written, format!("key: {expected}\n"));
            let read: Value = serde_saphyr::from_str(&written).unwrap();
            assert_eq!(read, json!({ "key": text }), "{written}");
        }
    }
}
