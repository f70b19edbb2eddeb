//! MIME archives: taken apart and put together.

use super::{MimeError, quoted};

/// The boundary that Karpenter's archives have. It gets longer when a part has such a line in it.
const BOUNDARY: &str = "//";

pub(super) const SHELL_SCRIPT: &str = r#"text/x-shellscript; charset="us-ascii""#;
const CONTENT_TYPE: &str = "Content-Type";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Part {
    /// By name, in the order of their names.
    headers: Vec<(String, String)>,
    pub(super) content: String,
}

impl Part {
    pub(super) fn new(content_type: &str, content: impl Into<String>) -> Self {
        let headers = vec![(CONTENT_TYPE.to_owned(), content_type.to_owned())];
        Self { headers, content: content.into() }
    }

    /// Without its parameters.
    pub(super) fn media_type(&self) -> &str {
        media_type(header(&self.headers, CONTENT_TYPE).unwrap_or_default())
    }
}

/// Whether the text presents itself as an archive.
pub(super) fn is_archive(text: &str) -> bool {
    let text = text.trim_start();
    text.starts_with("MIME-Version:") || text.starts_with("Content-Type:")
}

/// The parts of an archive. Carriage returns are left out.
pub(super) fn read(text: &str) -> Result<Vec<Part>, MimeError> {
    let text = text.replace('\r', "");
    let mut lines = text.trim_start().split_inclusive('\n');
    let headers = read_headers(&mut lines)?;
    let content_type = header(&headers, CONTENT_TYPE).ok_or(MimeError::NoContentType)?;
    if !media_type(content_type).starts_with("multipart/") {
        return Err(MimeError::NotMultipart(quoted(media_type(content_type))));
    }
    let boundary = boundary(content_type).ok_or(MimeError::NoBoundary)?;
    let mut parts = Vec::new();
    let mut part: Option<String> = None;
    for line in lines {
        let Some(end) = delimiter(line, &boundary) else {
            if let Some(part) = &mut part {
                part.push_str(line);
            }
            continue;
        };
        if let Some(text) = part.take() {
            parts.push(read_part(&text)?);
        }
        if end {
            return Ok(parts);
        }
        part = Some(String::new());
    }
    // The closing delimiter is often an opening one, after which nothing comes.
    match part {
        Some(rest) if rest.trim().is_empty() => Ok(parts),
        _ => Err(MimeError::Unterminated),
    }
}

pub(super) fn write(parts: &[Part]) -> String {
    let mut boundary = BOUNDARY.to_owned();
    let lines = || parts.iter().flat_map(|part| part.content.lines());
    while lines().any(|line| delimiter(line, &boundary).is_some()) {
        boundary.push('/');
    }
    let written = parts.iter().map(|Part { headers, content }| {
        let headers: Vec<_> =
            headers.iter().map(|(name, value)| format!("{name}: {value}\n")).collect();
        format!("--{boundary}\n{}\n{content}\n", headers.concat())
    });
    let head =
        format!("MIME-Version: 1.0\n{CONTENT_TYPE}: multipart/mixed; boundary=\"{boundary}\"\n\n");
    let text: String = [head].into_iter().chain(written).collect();
    format!("{text}--{boundary}--\n").replace('\r', "")
}

/// `Some(true)` for the delimiter that closes the archive.
fn delimiter(line: &str, boundary: &str) -> Option<bool> {
    match line.strip_prefix("--")?.strip_prefix(boundary)?.trim_end() {
        "" => Some(false),
        "--" => Some(true),
        _ => None,
    }
}

fn read_part(text: &str) -> Result<Part, MimeError> {
    let mut lines = text.split_inclusive('\n');
    let mut headers = read_headers(&mut lines)?;
    headers.sort();
    let content: String = lines.collect();
    // The line break before the delimiter belongs to the delimiter.
    let content = content.strip_suffix('\n').unwrap_or(&content).to_owned();
    Ok(Part { headers, content })
}

/// Reads up to the empty line.
fn read_headers<'a>(
    lines: &mut impl Iterator<Item = &'a str>,
) -> Result<Vec<(String, String)>, MimeError> {
    let mut headers: Vec<(String, String)> = Vec::new();
    for line in lines {
        let text = line.trim_end();
        if text.is_empty() {
            break;
        }
        // A header may go on in the next line, if that one is indented.
        if let (Some((_, value)), true) = (headers.last_mut(), text.starts_with([' ', '\t'])) {
            value.push(' ');
            value.push_str(text.trim_start());
            continue;
        }
        let (name, value) = text.split_once(':').ok_or_else(|| MimeError::Header(quoted(text)))?;
        headers.push((name.trim().to_owned(), value.trim().to_owned()));
    }
    Ok(headers)
}

fn header<'a>(headers: &'a [(String, String)], name: &str) -> Option<&'a str> {
    let found = headers.iter().find(|(other, _)| other.eq_ignore_ascii_case(name));
    found.map(|(_, value)| value.as_str())
}

fn media_type(content_type: &str) -> &str {
    content_type.split(';').next().unwrap_or_default().trim()
}

fn boundary(content_type: &str) -> Option<String> {
    let mut parameters = content_type.split(';').skip(1);
    let value = parameters.find_map(|parameter| {
        let (name, value) = parameter.split_once('=')?;
        name.trim().eq_ignore_ascii_case("boundary").then(|| value.trim().trim_matches('"'))
    })?;
    (!value.is_empty()).then(|| value.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=\"//\"\n\n";

    #[test]
    fn an_archive_is_taken_apart() {
        let shell = |content: &str| Part::new(SHELL_SCRIPT, content);
        let check = |text: &str, expected: &[Part]| {
            assert_eq!(read(text).as_deref(), Ok(expected), "{text}");
        };
        let one = format!("{HEAD}--//\nContent-Type: {SHELL_SCRIPT}\n\necho 1\n\n--//--\n");
        check(&one, &[shell("echo 1\n")]);
        check(&one.replace('\n', "\r\n"), &[shell("echo 1\n")]);
        check(&format!("\n{one}"), &[shell("echo 1\n")]);
        check(&one.replace("--//--", "--//"), &[shell("echo 1\n")]);
        check(&one.replace("--//--\n", "--//"), &[shell("echo 1\n")]);
        check(&one.replace("--//--\n", "--//--\nafterwards"), &[shell("echo 1\n")]);
        check(&one.replacen("--//\n", "a preamble\n--//\n", 1), &[shell("echo 1\n")]);
        check(&format!("{HEAD}--//--\n"), &[]);
        let folded = "Content-Type: multipart/mixed;\n boundary=x\n\n--x\n\na\n--x\n\nb\n--x--";
        let bare = |content: &str| Part { headers: vec![], content: content.to_owned() };
        check(folded, &[bare("a"), bare("b")]);
    }

    #[test]
    fn what_cannot_be_taken_apart_says_why() {
        for (text, expected) in [
            ("MIME-Version: 1.0\n\n--//--\n".to_owned(), MimeError::NoContentType),
            (
                "Content-Type: text/plain\n\n".to_owned(),
                MimeError::NotMultipart("text/plain".into()),
            ),
            ("Content-Type: multipart/mixed\n\n".to_owned(), MimeError::NoBoundary),
            ("Content-Type: a\nno header\n\n".to_owned(), MimeError::Header("no header".into())),
            // The error stands in a condition of the class, which has room for so much and no more.
            (
                format!("Content-Type: a\n{}\n\n", "ä".repeat(40_000)),
                MimeError::Header(format!("{}…", "ä".repeat(200))),
            ),
            (format!("{HEAD}--//\nContent-Type: text/plain\n\na"), MimeError::Unterminated),
            (format!("{HEAD}nothing"), MimeError::Unterminated),
        ] {
            assert_eq!(read(&text), Err(expected), "{text}");
        }
    }

    #[test]
    fn what_is_put_together_is_taken_apart() {
        for content in ["", "a", "a\n", "\n\na", "--//", "x\n--//--\ny", "--///\n--//", "--//x"] {
            let parts = [Part::new(SHELL_SCRIPT, content), Part::new("text/plain", "b")];
            assert_eq!(read(&write(&parts)).as_deref(), Ok(&parts[..]), "{content:?}");
        }
        assert!(write(&[Part::new("text/plain", "a")]).starts_with(HEAD));
    }

    #[test]
    fn headers_of_a_part_are_kept() {
        let part = "Content-Transfer-Encoding: base64\nContent-Type: text/plain\n\nZWNobw==";
        let text = format!("{HEAD}--//\n{part}\n--//--\n");
        assert_eq!(write(&read(&text).unwrap()), text);
    }
}
