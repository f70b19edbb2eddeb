//! Tables for people.

use std::fmt::Write;

/// A title and a table under it, its columns as wide as they need to be.
pub(crate) fn section<const N: usize>(
    title: &str,
    header: &[&str; N],
    rows: impl Iterator<Item = [String; N]>,
) -> String {
    render(title, header, rows, |cell, _, width| format!("{cell:<width$}"))
}

/// The same for names with figures behind them, which are easier to compare when they end at the same place.
#[cfg(feature = "simulate")]
pub(crate) fn figures<const N: usize>(
    title: &str,
    header: &[&str; N],
    rows: impl Iterator<Item = [String; N]>,
) -> String {
    render(title, header, rows, |cell, column, width| match column {
        0 => format!("{cell:<width$}"),
        _ => format!("{cell:>width$}"),
    })
}

/// Lines of a name and what is known by it.
pub(crate) fn facts<'a>(lines: impl IntoIterator<Item = (&'a str, String)>) -> String {
    let lines: Vec<_> = lines.into_iter().collect();
    let width = lines.iter().map(|(name, _)| name.chars().count()).max().unwrap_or_default();
    let lines = lines.iter().map(|(name, value)| format!("  {name:<width$}   {value}\n"));
    lines.collect()
}

fn render<const N: usize>(
    title: &str,
    header: &[&str; N],
    rows: impl Iterator<Item = [String; N]>,
    aligned: impl Fn(&str, usize, usize) -> String,
) -> String {
    let rows: Vec<[String; N]> = std::iter::once(header.map(str::to_owned)).chain(rows).collect();
    let widths: [usize; N] = std::array::from_fn(|column| {
        rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default()
    });
    let mut text = format!("{title}\n");
    for row in rows {
        let cells = row.iter().zip(widths).enumerate();
        let cells = cells.map(|(column, (cell, width))| aligned(cell, column, width));
        let line = cells.collect::<Vec<_>>().join("   ");
        let _ = writeln!(text, "  {}", line.trim_end());
    }
    text
}
