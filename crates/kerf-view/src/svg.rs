//! Pictures as SVG, for documents: one, or several in turn. They need no font but a monospaced one, and load nothing.

use std::{collections::BTreeMap, fmt::Write, time::Duration};

use ratatui_core::{
    buffer::{Buffer, Cell},
    style::{Color, Modifier},
};

const WIDTH: f64 = 8.4;
const HEIGHT: f64 = 18.0;
const MARGIN: f64 = 12.0;

/// One picture.
pub fn still(picture: &Buffer) -> String {
    let mut svg = opening(picture);
    svg.extend(rows(picture));
    svg.push_str("</svg>\n");
    svg
}

/// All pictures in turn, again and again, each for as long as it says. Whoever asked for less motion sees the last.
pub fn moving(pictures: &[(Buffer, Duration)]) -> String {
    let Some((first, _)) = pictures.first() else { return String::new() };
    let all: f64 = pictures.iter().map(|(_, lasts)| lasts.as_secs_f64()).sum();
    let last = pictures.len() - 1;
    let (mut style, mut frames) = (String::from(".f{visibility:hidden}"), String::new());
    // Most rows are the same in several pictures, and are written once.
    let mut known: BTreeMap<String, usize> = BTreeMap::new();
    let mut defined = String::new();
    let mut begin = 0.0;
    for (at, (picture, lasts)) in pictures.iter().enumerate() {
        let (from, to) = (begin / all * 100.0, (begin + lasts.as_secs_f64()) / all * 100.0);
        begin += lasts.as_secs_f64();
        let before = if at == 0 { "" } else { "0%{visibility:hidden}" };
        let after =
            if at == last { String::new() } else { format!("{to:.2}%{{visibility:hidden}}") };
        let _ = write!(
            style,
            "@keyframes k{at}{{{before}{from:.2}%{{visibility:visible}}{after}}}\
             #k{at}{{animation:k{at} {all:.1}s step-end infinite}}"
        );
        let _ = write!(frames, "<g class=\"f\" id=\"k{at}\">");
        for row in rows(picture).filter(|row| !row.is_empty()) {
            let next = known.len();
            let id = *known.entry(row).or_insert_with_key(|row| {
                let _ = writeln!(defined, "<g id=\"r{next}\">{row}</g>");
                next
            });
            let _ = write!(frames, "<use href=\"#r{id}\"/>");
        }
        frames.push_str("</g>\n");
    }
    let opening = opening(first);
    format!(
        "{opening}<style>{style}@media(prefers-reduced-motion:reduce){{.f{{animation:none!important}}\
         #k{last}{{visibility:visible}}}}</style>\n<defs>\n{defined}</defs>\n{frames}</svg>\n"
    )
}

/// Browsers go by the style, others by the attribute, where spaces within a text are concerned.
fn opening(picture: &Buffer) -> String {
    let width = f64::from(picture.area.width) * WIDTH + 2.0 * MARGIN;
    let height = f64::from(picture.area.height) * HEIGHT + 2.0 * MARGIN;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" \
         font-family=\"ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace\" font-size=\"14\" \
         fill=\"{FOREGROUND}\" xml:space=\"preserve\">\n\
         <style>text{{white-space:pre}}</style>\n\
         <rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"{BACKGROUND}\"/>\n"
    )
}

const BACKGROUND: &str = "#1b1f27";
const FOREGROUND: &str = "#d7dce2";

fn colour(colour: Color) -> &'static str {
    match colour {
        Color::Red => "#f0776c",
        Color::Green => "#7ec77b",
        Color::Yellow => "#e5c07b",
        Color::Cyan => "#62c4d0",
        Color::DarkGray => "#8b94a1",
        _ => FOREGROUND,
    }
}

/// The rows of a picture: cells of one look that stand beside each other are one text.
fn rows(picture: &Buffer) -> impl Iterator<Item = String> {
    let area = picture.area;
    (area.top()..area.bottom()).map(move |y| {
        let (mut row, mut x) = (String::new(), area.left());
        while x < area.right() {
            let first = &picture[(x, y)];
            let start = x;
            let mut text = String::new();
            while x < area.right() && is_like(first, &picture[(x, y)]) {
                text.push_str(picture[(x, y)].symbol());
                x += 1;
            }
            run(first, (start, y), x - start, &text, &mut row);
        }
        row
    })
}

fn is_like(a: &Cell, b: &Cell) -> bool {
    a.fg == b.fg && a.modifier == b.modifier && is_block(a) == is_block(b)
}

/// Blocks are drawn, not written: fonts leave gaps between them. How many eighths of the height they fill.
fn is_block(cell: &Cell) -> Option<u8> {
    const EIGHTHS: [&str; 8] = ["▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"];
    let at = EIGHTHS.iter().position(|symbol| *symbol == cell.symbol())?;
    u8::try_from(at + 1).ok()
}

fn run(look: &Cell, (x, y): (u16, u16), length: u16, text: &str, to: &mut String) {
    let (left, top) = (MARGIN + f64::from(x) * WIDTH, MARGIN + f64::from(y) * HEIGHT);
    let width = f64::from(length) * WIDTH;
    let is_reversed = look.modifier.contains(Modifier::REVERSED);
    let fill = if is_reversed { BACKGROUND } else { colour(look.fg) };
    if is_reversed {
        let _ = write!(
            to,
            "<rect x=\"{left:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{HEIGHT}\" fill=\"{}\"/>",
            colour(look.fg)
        );
    }
    let fill = if fill == FOREGROUND { String::new() } else { format!(" fill=\"{fill}\"") };
    if let Some(eighths) = is_block(look) {
        let height = HEIGHT * f64::from(eighths) / 8.0;
        let _ = write!(
            to,
            "<rect x=\"{left:.1}\" y=\"{:.1}\" width=\"{width:.1}\" height=\"{height:.1}\"{fill}/>",
            top + HEIGHT - height
        );
        return;
    }
    let shown = text.trim_end();
    if shown.is_empty() {
        return;
    }
    let leading = shown.len() - shown.trim_start().len();
    let (left, shown) = (left + leading as f64 * WIDTH, shown.trim_start());
    let width = shown.chars().count() as f64 * WIDTH;
    let weight = if look.modifier.contains(Modifier::BOLD) { " font-weight=\"700\"" } else { "" };
    let escaped = shown.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let _ = write!(
        to,
        "<text x=\"{left:.1}\" y=\"{:.1}\" textLength=\"{width:.1}\"{fill}{weight}>{escaped}</text>",
        top + HEIGHT * 0.75
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui_core::{layout::Rect, style::Style};

    fn picture(text: &str) -> Buffer {
        let mut buffer = Buffer::empty(Rect::new(0, 0, 12, 1));
        buffer.set_string(0, 0, text, Style::new());
        buffer
    }

    #[test]
    fn texts_are_escaped_and_blocks_are_drawn() {
        let svg = still(&picture("a<b & ██ c"));
        assert!(svg.contains(">a&lt;b &amp;</text>"), "{svg}");
        assert!(svg.contains("width=\"16.8\" height=\"18.0\""), "{svg}");
        assert!(!svg.contains('█'), "{svg}");
    }

    #[test]
    fn every_picture_has_its_time() {
        let second = Duration::from_secs(1);
        let svg = moving(&[
            (picture("one"), second),
            (picture("two"), 2 * second),
            (picture("one"), second),
        ]);
        assert!(svg.contains("@keyframes k0{0.00%{visibility:visible}25.00%{visibility:hidden}}"));
        assert!(svg.contains("@keyframes k2{0%{visibility:hidden}75.00%{visibility:visible}}"));
        assert_eq!(svg.matches(">one</text>").count(), 1, "a row that comes back is written once");
        assert!(svg.contains("animation:k2 4.0s"), "{svg}");
        assert_eq!(moving(&[]), "");
    }
}
