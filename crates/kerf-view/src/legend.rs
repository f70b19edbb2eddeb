//! What the signs of the view mean.

use ratatui_core::text::{Line, Span};

use crate::{
    cells,
    columns::{Column, DROPPED},
    style::Palette,
};

pub(crate) fn lines(palette: Palette) -> Vec<Line<'static>> {
    let bar = |share: f64, text: &'static str| {
        let mut spans = vec![Span::raw("  ")];
        spans.extend(cells::bar(share, 15, palette));
        spans.push(Span::raw(format!("   {text}")));
        Line::from(spans)
    };
    let entry = |name: &'static str, style, text: &'static str| {
        Line::from(vec![Span::styled(format!("  {name:<15}   "), style), Span::raw(text)])
    };
    let plain = Palette::BOLD;
    let dropped = DROPPED.map(Column::title).join(", ");
    vec![
        Line::styled("Fill: what pods request, of what the node has for them", Palette::BOLD),
        bar(0.9, "more than 75%"),
        bar(0.6, "more than 40%"),
        bar(0.2, "40% or less"),
        Line::raw(""),
        Line::styled("Why", Palette::BOLD),
        entry(
            "stays: reason",
            palette.dim(),
            "Kerf would leave it alone; wide columns say why in full",
        ),
        entry(
            "would go",
            palette.fair(),
            "Kerf would remove or replace it, if it were the only one",
        ),
        entry("goes", palette.bad(), "whoever runs this cluster has decided so"),
        entry("starting", palette.new_thing(), "its NodeClaim is there, its Node is not ready yet"),
        Line::raw(""),
        Line::styled("Keys", Palette::BOLD),
        entry("↑ ↓ PgUp PgDn", plain, "choose a node"),
        entry("Enter", plain, "every check of that node, as kerf explain prints it"),
        entry("s", plain, "sort within the pools: name, why, CPU, memory, price, age, pods"),
        entry(
            "/",
            plain,
            "show only nodes with a text in name, pool, type, zone or reason; Esc ends it",
        ),
        entry("p", plain, "pause: the picture stays, the cluster goes on"),
        entry("q, Ctrl-C", plain, "quit"),
        Line::raw(""),
        Line::raw(format!("Columns that go first where there is no room: {dropped}")),
        Line::raw("Nothing here writes to the cluster."),
    ]
}
