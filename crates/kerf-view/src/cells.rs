//! What stands in a cell.

use jiff::Timestamp;
use ratatui_core::{style::Style, text::Span};

use crate::{
    columns::Column,
    model::{Fate, NodeRow},
    style::Palette,
};

/// A cell as text; a bar as its percentage.
pub(crate) fn text(node: &NodeRow, column: Column, now: Timestamp) -> String {
    let or_none = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
    match column {
        Column::Name => node.name.clone(),
        Column::Type => or_none(&node.instance_type),
        Column::Capacity => or_none(&node.capacity_type),
        Column::Zone => or_none(&node.zone),
        Column::Cpu => percent(node.cpu.share()),
        Column::Memory => percent(node.memory.share()),
        Column::Pods => node.pods.to_string(),
        // The unit is in the title.
        Column::Price => node.price.map_or_else(
            || "unknown".to_owned(),
            |price| price.to_string().trim_end_matches("/h").to_owned(),
        ),
        Column::Age => node.created.map_or_else(|| "-".to_owned(), |since| age(since, now)),
        Column::Why => node.fate.long(),
    }
}

/// A cell of exactly this width.
pub(crate) fn cell(
    node: &NodeRow,
    (column, width): (Column, usize),
    now: Timestamp,
    palette: Palette,
) -> Vec<Span<'static>> {
    let style = match column {
        Column::Cpu => return bar(node.cpu.share(), width, palette),
        Column::Memory => return bar(node.memory.share(), width, palette),
        Column::Name | Column::Why => of_fate(&node.fate, column, palette),
        Column::Price if node.price.is_none() => palette.dim(),
        _ => Style::new(),
    };
    let shown = if column == Column::Why {
        let texts = [node.fate.long(), node.fate.short(), node.fate.tiny()];
        let fitting = texts.iter().find(|text| text.chars().count() <= width);
        cut(fitting.unwrap_or(&texts[2]), width)
    } else {
        let whole = text(node, column, now);
        // The names of a cloud differ before the first dot; behind it is the domain that they share.
        let host = whole.split('.').next().filter(|_| column == Column::Name);
        let fits = whole.chars().count() <= width;
        shortened(host.filter(|_| !fits).unwrap_or(&whole), width)
    };
    vec![Span::styled(padded(&shown, column, width), style)]
}

pub(crate) fn padded(text: &str, column: Column, width: usize) -> String {
    if column.is_figure() { format!("{text:>width$}") } else { format!("{text:<width$}") }
}

fn of_fate(fate: &Fate, column: Column, palette: Palette) -> Style {
    match fate {
        Fate::Starting => palette.new_thing(),
        Fate::Leaving { .. } => palette.bad(),
        Fate::WouldGo { .. } => palette.fair(),
        Fate::Stays { .. } if column == Column::Why => palette.dim(),
        Fate::Stays { .. } | Fate::Unknown => Style::new(),
    }
}

/// A bar with its percentage, of exactly this width.
pub(crate) fn bar(share: f64, width: usize, palette: Palette) -> Vec<Span<'static>> {
    let length = width.saturating_sub(5);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "clamped to the length of the bar"
    )]
    let filled = (share * length as f64).round().clamp(0.0, length as f64) as usize;
    let style = if share > 0.75 {
        palette.good()
    } else if share > 0.4 {
        palette.fair()
    } else {
        palette.bad()
    };
    vec![
        // Not the full block: bars of neighbouring lines are told apart.
        Span::styled("▇".repeat(filled), style),
        Span::styled("·".repeat(length - filled), palette.dim()),
        Span::raw(format!("{:>5}", percent(share))),
    ]
}

pub(crate) fn percent(share: f64) -> String {
    format!("{:.0}%", share * 100.0)
}

/// As kubectl has it, but with one unit always.
pub(crate) fn age(since: Timestamp, now: Timestamp) -> String {
    let seconds = now.duration_since(since).as_secs().max(0);
    match seconds {
        0..=119 => format!("{seconds}s"),
        120..=7_199 => format!("{}m", seconds / 60),
        7_200..=172_799 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// The beginning of a text.
pub(crate) fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let kept: String = text.chars().take(width.saturating_sub(1)).collect();
    kept + "…"
}

/// The beginning and the end of a name, because names differ at either.
pub(crate) fn shortened(text: &str, width: usize) -> String {
    let length = text.chars().count();
    if length <= width {
        return text.to_owned();
    }
    let (head, tail) = (width / 2, width.saturating_sub(width / 2 + 1));
    let head: String = text.chars().take(head).collect();
    let tail: String = text.chars().skip(length - tail).collect();
    format!("{head}…{tail}")
}

/// Whole words, as many to a line as fit.
pub(crate) fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_as_long_as_the_node_is_full() {
        for (share, full, shown) in
            [(0.0, 0, "0%"), (0.5, 7, "50%"), (1.0, 14, "100%"), (1.3, 14, "130%")]
        {
            let drawn: String = bar(share, 19, Palette::COLOURED)
                .iter()
                .map(|span| span.content.as_ref())
                .collect();
            assert_eq!(drawn.matches('▇').count(), full);
            assert_eq!(drawn.matches('·').count(), 14 - full);
            assert!(drawn.ends_with(shown) && drawn.chars().count() == 19, "{drawn}");
        }
    }

    #[test]
    fn ages_have_one_unit() {
        let at = |seconds| Timestamp::from_second(seconds).unwrap();
        for (seconds, shown) in [
            (-5, "0s"),
            (119, "119s"),
            (120, "2m"),
            (7_199, "119m"),
            (7_200, "2h"),
            (172_800, "2d"),
        ] {
            assert_eq!(age(at(0), at(seconds)), shown);
        }
    }

    #[test]
    fn names_keep_both_ends_and_sentences_their_beginning() {
        for (text, width, name, sentence) in [
            ("ip-10-0-1-2", 11, "ip-10-0-1-2", "ip-10-0-1-2"),
            ("ip-10-0-1-2", 8, "ip-1…1-2", "ip-10-0…"),
            ("абвгд", 3, "а…д", "аб…"),
            ("abc", 1, "…", "…"),
        ] {
            assert_eq!(shortened(text, width), name);
            assert_eq!(cut(text, width), sentence);
        }
    }

    #[test]
    fn sentences_are_broken_between_words() {
        assert_eq!(wrapped("one two three", 8), ["one two", "three"]);
        assert_eq!(wrapped("incomprehensible", 4), ["incomprehensible"]);
        assert!(wrapped("", 4).is_empty());
    }
}
