//! The screen of `kerf top`.

use ratatui_core::{
    buffer::Buffer,
    layout::Rect,
    style::Style,
    text::{Line, Span},
};

use crate::{
    cells, legend,
    model::{Sums, View},
    style::Palette,
    table::{Table, counted, price},
    ui::{Overlay, Ui},
};

/// At most this many lines of notes, so that there is room for nodes; `--once` prints all.
const NOTES: usize = 3;

impl Ui {
    pub fn draw(&self, view: &View, area: Rect, buffer: &mut Buffer, palette: Palette) {
        let mut page = Page::new(area, buffer);
        page.line(self.title(view, palette));
        page.bottom(self.keys(palette));
        match &self.overlay {
            None => self.nodes(view, &mut page, palette),
            Some(Overlay::Legend) => {
                page.line("");
                for line in legend::lines(palette) {
                    page.line(line);
                }
            }
            Some(Overlay::Text { lines, scroll }) => {
                page.line("");
                for line in lines.iter().skip(*scroll) {
                    page.line(line.as_str());
                }
            }
        }
    }

    fn title(&self, view: &View, palette: Palette) -> Line<'static> {
        let mut spans = vec![
            Span::styled("kerf top", Palette::BOLD),
            Span::raw(format!("   {}   ", view.subject)),
            Span::styled(view.now.strftime("%H:%M:%S UTC").to_string(), palette.dim()),
        ];
        if self.paused {
            spans.push(Span::styled("   paused", palette.fair()));
        }
        Line::from(spans)
    }

    fn keys(&self, palette: Palette) -> Line<'static> {
        if self.typing {
            return Line::raw(format!("filter: {}▏  Enter keeps it, Esc ends it", self.filter));
        }
        let keys = match &self.overlay {
            Some(Overlay::Text { .. }) => "↑↓ scroll   any other key goes back".to_owned(),
            Some(Overlay::Legend) => "any key goes back".to_owned(),
            None => {
                let pause = if self.paused { "go on" } else { "pause" };
                let filter = match self.filter.as_str() {
                    "" => "/ filter".to_owned(),
                    filter => format!("/ filter: {filter}"),
                };
                let sort = self.sort.title();
                format!(
                    "q quit   s sort: {sort}   {filter}   ↑↓ Enter explain   p {pause}   ? legend"
                )
            }
        };
        Line::styled(keys, palette.dim())
    }

    fn nodes(&self, view: &View, page: &mut Page<'_>, palette: Palette) {
        page.line(totals(view, palette));
        page.line(fates(&view.sums(), palette));
        page.line("");
        let notes = view.notes.iter().flat_map(|note| cells::wrapped(note, page.width()));
        let notes: Vec<_> = notes.take(NOTES).collect();
        for note in notes.into_iter().rev() {
            page.bottom(Line::styled(note, palette.fair()));
        }
        let order = self.order(view);
        if order.is_empty() {
            let text = match view.nodes.len() {
                0 => "There are no nodes.".to_owned(),
                all => format!("None of {all} nodes matches the filter."),
            };
            return page.line(Line::styled(text, palette.dim()));
        }
        let table = Table::new(view, &order, page.width(), true, palette);
        page.line(table.header);
        let chosen = self.selected_in(view);
        let at = chosen.and_then(|node| table.rows.iter().position(|row| row.node == Some(node)));
        let room = page.room();
        let all = table.rows.len();
        // The chosen row is always on the page; the last line says how much is not.
        let room = if all > room { room.saturating_sub(1) } else { room };
        let first = at.map_or(0, |at| (at + 1).saturating_sub(room));
        for (index, row) in table.rows.into_iter().enumerate().skip(first).take(room) {
            if Some(index) == at {
                page.marked(row.line);
            } else {
                page.line(row.line);
            }
        }
        let hidden = all - room.min(all);
        if hidden > 0 {
            let text = format!("  and {} more, ↑↓", counted(hidden, "line"));
            page.line(Line::styled(text, palette.dim()));
        }
    }
}

/// All that there is, in a line.
pub(crate) fn totals(view: &View, palette: Palette) -> Line<'static> {
    let sums = view.sums();
    let bold = Palette::BOLD;
    let pending = if view.pending > 0 { palette.fair() } else { Style::new() };
    Line::from(vec![
        Span::styled(counted(sums.nodes, "node"), bold),
        Span::raw("   "),
        Span::styled(counted(view.pods, "pod"), bold),
        Span::styled(format!(", {} pending   ", view.pending), pending),
        Span::styled(price(&sums), bold),
        Span::raw(format!(
            "   CPU {}   memory {}",
            cells::percent(sums.cpu.share()),
            cells::percent(sums.memory.share())
        )),
    ])
}

fn fates(sums: &Sums, palette: Palette) -> Line<'static> {
    let would_go = match sums.would_go {
        0 => "none would go".to_owned(),
        1 => format!("1 would go, saving {}", sums.saves),
        // Two may count on the same room.
        count => format!("{count} would go by themselves, saving up to {}", sums.saves),
    };
    let style = if sums.would_go > 0 { palette.fair() } else { palette.dim() };
    let mut spans = vec![Span::styled(would_go, style)];
    for (count, what, style) in
        [(sums.leaving, "leaving", palette.bad()), (sums.starting, "starting", palette.new_thing())]
    {
        if count > 0 {
            spans.push(Span::styled(format!("   {count} {what}"), style));
        }
    }
    Line::from(spans)
}

/// A rectangle that is filled from the top and from the bottom.
pub(crate) struct Page<'b> {
    area: Rect,
    buffer: &'b mut Buffer,
    used: u16,
    /// Lines at the bottom that are taken.
    held: u16,
}

impl<'b> Page<'b> {
    pub(crate) fn new(area: Rect, buffer: &'b mut Buffer) -> Self {
        Self { area, buffer, used: 0, held: 0 }
    }

    pub(crate) fn width(&self) -> usize {
        self.area.width.into()
    }

    pub(crate) fn room(&self) -> usize {
        self.area.height.saturating_sub(self.used + self.held).into()
    }

    /// What does not fit is left out.
    pub(crate) fn line<'l>(&mut self, line: impl Into<Line<'l>>) {
        if self.room() > 0 {
            let (x, y) = (self.area.x, self.area.y + self.used);
            self.buffer.set_line(x, y, &line.into(), self.area.width);
            self.used += 1;
        }
    }

    fn marked(&mut self, line: Line<'_>) {
        if self.room() > 0 {
            let (x, y) = (self.area.x, self.area.y + self.used);
            self.line(line);
            self.buffer.set_string(x, y, "▸", Style::new());
            self.buffer.set_style(Rect::new(x, y, self.area.width, 1), Palette::SELECTED);
        }
    }

    /// Above what was put there before.
    pub(crate) fn bottom<'l>(&mut self, line: impl Into<Line<'l>>) {
        if self.room() > 0 {
            self.held += 1;
            let y = self.area.y + self.area.height - self.held;
            self.buffer.set_line(self.area.x, y, &line.into(), self.area.width);
        }
    }

    /// The rectangle that is left.
    pub(crate) fn rest(&mut self) -> (Rect, &mut Buffer) {
        let height = u16::try_from(self.room()).unwrap_or(u16::MAX);
        let area = Rect::new(self.area.x, self.area.y + self.used, self.area.width, height);
        (area, self.buffer)
    }
}
