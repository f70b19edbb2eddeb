//! Tables for people, no wider than their terminal.

use std::fmt::Write;

use crate::output;

/// Between two columns.
const GAP: usize = 3;
const INDENT: usize = 2;
/// Text in less than this cannot be read.
const LEAST_TEXT: usize = 24;

/// A title and a table under it, its columns as wide as they need to be. Where that is too wide the last one is wrapped.
pub(crate) fn section<const N: usize>(
    title: &str,
    header: &[&str; N],
    rows: impl Iterator<Item = [String; N]>,
) -> String {
    section_within(output::width(), title, &with_header(header, rows))
}

/// The first of the rows is the header.
fn section_within<const N: usize>(
    width: Option<usize>,
    title: &str,
    rows: &[[String; N]],
) -> String {
    let widths = widths(rows);
    let before: usize = widths[..N - 1].iter().map(|width| width + GAP).sum::<usize>() + INDENT;
    let left = width.and_then(|width| width.checked_sub(before)).filter(|it| *it >= LEAST_TEXT);
    let mut text = format!("{title}\n");
    for row in rows {
        let mut line = " ".repeat(INDENT);
        for (cell, width) in row.iter().zip(widths).take(N - 1) {
            let _ = write!(line, "{cell:<0$}", width + GAP);
        }
        let mut last = wrapped(&row[N - 1], left).into_iter();
        line.push_str(&last.next().unwrap_or_default());
        let _ = writeln!(text, "{}", line.trim_end());
        for more in last {
            let _ = writeln!(text, "{}{more}", " ".repeat(before));
        }
    }
    text
}

/// The same for names with figures behind them, which are easier to compare when they end at the same place. Where that is too
/// wide the table goes on below, with the names again.
#[cfg(feature = "simulate")]
pub(crate) fn figures<const N: usize>(
    title: &str,
    header: &[&str; N],
    rows: impl Iterator<Item = [String; N]>,
) -> String {
    figures_within(output::width(), title, &with_header(header, rows))
}

#[cfg(feature = "simulate")]
fn figures_within<const N: usize>(
    width: Option<usize>,
    title: &str,
    rows: &[[String; N]],
) -> String {
    let widths = widths(rows);
    let mut parts: Vec<Vec<usize>> = Vec::new();
    let mut used = usize::MAX;
    for column in 1..N {
        let needed = GAP + widths[column];
        if parts.is_empty() || width.is_some_and(|width| used.saturating_add(needed) > width) {
            parts.push(Vec::new());
            used = INDENT + widths[0];
        }
        used += needed;
        if let Some(part) = parts.last_mut() {
            part.push(column);
        }
    }
    let mut text = format!("{title}\n");
    for (number, part) in parts.iter().enumerate() {
        if number > 0 {
            text.push('\n');
        }
        for row in rows {
            let mut line = format!("{:INDENT$}{:<2$}", "", row[0], widths[0]);
            for column in part {
                let _ = write!(line, "{:>1$}", row[*column], GAP + widths[*column]);
            }
            let _ = writeln!(text, "{}", line.trim_end());
        }
    }
    text
}

/// Lines of a name and what is known by it, which is wrapped where it is too wide.
pub(crate) fn facts<'a>(lines: impl IntoIterator<Item = (&'a str, String)>) -> String {
    let lines: Vec<_> = lines.into_iter().collect();
    let name_width = lines.iter().map(|(name, _)| name.chars().count()).max().unwrap_or_default();
    let before = INDENT + name_width + GAP;
    let left = output::width().and_then(|width| width.checked_sub(before));
    let left = left.filter(|left| *left >= LEAST_TEXT);
    let mut text = String::new();
    for (name, value) in lines {
        for (number, part) in wrapped(&value, left).into_iter().enumerate() {
            let name = if number == 0 { name } else { "" };
            let line = format!("{:INDENT$}{name:<name_width$}{:GAP$}{part}", "", "");
            let _ = writeln!(text, "{}", line.trim_end());
        }
    }
    text
}

fn with_header<const N: usize>(
    header: &[&str; N],
    rows: impl Iterator<Item = [String; N]>,
) -> Vec<[String; N]> {
    std::iter::once(header.map(str::to_owned)).chain(rows).collect()
}

fn widths<const N: usize>(rows: &[[String; N]]) -> [usize; N] {
    std::array::from_fn(|column| {
        rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default()
    })
}

/// The text in lines of at most this many characters, at least one. A word that is longer stays whole.
fn wrapped(text: &str, width: Option<usize>) -> Vec<String> {
    let Some(width) = width else { return vec![text.to_owned()] };
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.len() - 1;
        let used = lines[line].chars().count();
        if used > 0 && used + 1 + word.chars().count() > width {
            lines.push(word.to_owned());
        } else {
            if used > 0 {
                lines[line].push(' ');
            }
            lines[line].push_str(word);
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_column_is_wrapped_where_the_table_is_too_wide() {
        let table = |width| {
            let rows =
                [["quiet".to_owned(), "a pod would have to move and has no place".to_owned()]];
            section_within(width, "Nodes", &with_header(&["NODE", "BECAUSE"], rows.into_iter()))
        };
        let wide =
            "Nodes\n  NODE    BECAUSE\n  quiet   a pod would have to move and has no place\n";
        assert_eq!(table(None), wide);
        assert_eq!(table(Some(51)), wide);
        assert_eq!(
            table(Some(40)),
            "Nodes\n  NODE    BECAUSE\n  quiet   a pod would have to move and\n          has no place\n"
        );
        assert_eq!(table(Some(20)), wide, "what could not be read is not wrapped");
    }

    #[cfg(feature = "simulate")]
    #[test]
    fn figures_go_on_below_where_the_table_is_too_wide() {
        let table = |width| {
            let rows = [["parity", "12.50", "322"], ["kerf", "9.00", "65"]];
            let rows = rows.map(|row| row.map(str::to_owned)).into_iter();
            figures_within(width, "Policies", &with_header(&["POLICY", "COST", "EVICTED"], rows))
        };
        let wide = "Policies\n  POLICY    COST   EVICTED\n  parity   12.50       322\n  kerf      9.00        65\n";
        assert_eq!(table(None), wide);
        assert_eq!(table(Some(26)), wide);
        assert_eq!(
            table(Some(25)),
            "Policies\n  POLICY    COST\n  parity   12.50\n  kerf      9.00\n\n  \
             POLICY   EVICTED\n  parity       322\n  kerf          65\n"
        );
    }
}
