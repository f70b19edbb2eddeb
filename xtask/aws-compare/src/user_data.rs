//! User data as values that can be compared: an archive as its parts, YAML and TOML without their layout. Nothing of Kerf's own
//! reads it, or a mistake of the reader would hide one of the writer.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

pub(crate) fn read(base64: &str) -> Value {
    let Ok(bytes) = BASE64_STANDARD.decode(base64) else {
        return json!({"not base64": base64});
    };
    let text = String::from_utf8_lossy(&bytes);
    if text.starts_with("MIME-Version:") {
        return parts(&text);
    }
    match text.parse::<toml::Table>() {
        Ok(table) if table.contains_key("settings") => {
            serde_json::to_value(table).unwrap_or_default()
        }
        _ => lines(&text),
    }
}

fn parts(text: &str) -> Value {
    let boundary = text.split_once("boundary=\"").and_then(|(_, rest)| rest.split_once('"'));
    let Some((boundary, _)) = boundary else { return lines(text) };
    let delimiter = format!("--{boundary}");
    // Before the first part are the headers of the archive, after the last one is what closes it.
    let mut parts: Vec<String> = Vec::new();
    let mut opened = false;
    for line in text.lines() {
        if line.trim_end() == delimiter {
            parts.push(String::new());
            opened = true;
        } else if line.trim_end() == format!("{delimiter}--") {
            break;
        } else if let Some(part) = parts.last_mut().filter(|_| opened) {
            part.push_str(line);
            part.push('\n');
        }
    }
    Value::Array(parts.iter().map(|part| read_part(part)).collect())
}

fn read_part(part: &str) -> Value {
    let (headers, content) = part.split_once("\n\n").unwrap_or(("", part));
    let content = if headers.contains("application/node.eks.aws") {
        match serde_saphyr::from_multiple::<Value>(content) {
            Ok(documents) => Value::Array(documents),
            Err(_) => lines(content),
        }
    } else {
        lines(content)
    };
    let mut headers: Vec<_> = headers.lines().map(str::trim).collect();
    headers.sort_unstable();
    json!({"headers": headers, "content": content})
}

/// Each line that is not empty.
fn lines(text: &str) -> Value {
    let lines = text.lines().map(str::trim_end).filter(|line| !line.is_empty());
    lines.map(in_order).collect()
}

/// Lists in quotes (`--kube-reserved="cpu=1,memory=2Gi"`) in an order; upstream leaves it to chance.
fn in_order(line: &str) -> String {
    let parts = line.split('"').enumerate().map(|(index, part)| {
        let mut items: Vec<_> = part.split(',').collect();
        if index % 2 == 1 {
            items.sort_unstable();
        }
        items.join(",")
    });
    parts.collect::<Vec<_>>().join("\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layout_is_no_difference_and_content_is() {
        let archive = |yaml: &str| {
            let text = format!(
                "MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=\"//\"\n\n--//\n\
                 Content-Type: application/node.eks.aws\n\n{yaml}\n\n--//\n\
                 Content-Type: text/x-shellscript\n\necho a\n\n--//--\n"
            );
            read(&BASE64_STANDARD.encode(text))
        };
        assert_eq!(archive("a: 1\nb: {c: x}"), archive("\nb:\n  c: \"x\"\na: 1\n"));
        assert_ne!(archive("a: 1"), archive("a: 2"));
        assert_eq!(archive("a: 1")[0]["content"][0]["a"], 1);
        assert_eq!(archive("a: 1")[1]["content"], json!(["echo a"]));
        let toml = |text: &str| read(&BASE64_STANDARD.encode(text));
        assert_eq!(toml("[settings.a]\nb = 1"), toml("[settings]\n[settings.a]\nb=1"));
        assert_eq!(toml("#!/bin/sh\n\necho a "), json!(["#!/bin/sh", "echo a"]));
        let flags = "--x=b,a --kube-reserved=\"memory=2Gi,cpu=1\" --max-pods=2";
        let expect = "--x=b,a --kube-reserved=\"cpu=1,memory=2Gi\" --max-pods=2";
        assert_eq!(toml(flags), json!([expect]));
    }
}
