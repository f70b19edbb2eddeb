//! The screen of `kerf demo`: one cluster, or two under the same load side by side.

use std::time::Duration;

use jiff::Timestamp;
use ratatui_core::{
    buffer::Buffer,
    layout::Rect,
    text::{Line, Span},
};

use crate::{
    cells,
    model::View,
    style::Palette,
    table::{Table, counted},
    top::Page,
    ui::{Sort, Ui},
};

#[derive(Clone, Debug)]
pub struct Stage {
    /// What is played, in a line.
    pub story: String,
    pub now: Timestamp,
    pub elapsed: Duration,
    pub length: Duration,
    /// How much faster than real time; `None`: as fast as possible.
    pub speed: Option<u32>,
    pub paused: bool,
    /// A line for whoever wants to look deeper.
    pub hint: Option<String>,
    pub sides: Vec<Side>,
    /// What it came to, at the end.
    pub verdict: Option<String>,
}

/// One cluster and what became of it so far.
#[derive(Clone, Debug)]
pub struct Side {
    pub name: String,
    pub view: View,
    pub launched: u64,
    pub evictions: u64,
    /// Dollars so far.
    pub cost: f64,
    /// The evictions so far, at equal steps of the whole time.
    pub history: Vec<u64>,
    /// The newest last.
    pub happenings: Vec<Happening>,
}

/// Something that was decided, or changed.
#[derive(Clone, Debug)]
pub struct Happening {
    pub at: Timestamp,
    pub kind: Kind,
    /// Of the first, if several are told of together.
    pub text: String,
    pub count: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Launch,
    Remove,
    Refuse,
    /// By the scenario, not by the operator.
    Change,
}

impl Kind {
    pub fn sign(self) -> char {
        match self {
            Self::Launch => '+',
            Self::Remove => '-',
            Self::Refuse => '!',
            Self::Change => '>',
        }
    }
}

/// Two clusters need this much room beside each other.
const ABREAST: u16 = 70;
const BETWEEN: u16 = 3;
/// Lines of the plot of evictions.
const PLOT: usize = 3;

impl Stage {
    pub fn draw(&self, area: Rect, buffer: &mut Buffer, palette: Palette) {
        let mut page = Page::new(area, buffer);
        page.line(self.title(palette));
        for line in cells::wrapped(&self.story, page.width()) {
            page.line(line);
        }
        if let Some(hint) = &self.hint {
            page.line(hint.as_str());
        }
        page.line("");
        let verdict = self.verdict.as_deref().unwrap_or_default();
        for line in cells::wrapped(verdict, page.width()).into_iter().rev() {
            page.bottom(Line::styled(line, Palette::BOLD));
        }
        if !verdict.is_empty() {
            page.bottom("");
        }
        let highest = self.sides.iter().flat_map(|side| &side.history).max().copied();
        let plotted = (self.sides.len() > 1).then(|| highest.unwrap_or_default().max(20));
        let (area, buffer) = page.rest();
        for (part, side) in parts(area, self.sides.len()).into_iter().zip(&self.sides) {
            side.draw(part, buffer, plotted, palette);
        }
        if self.sides.len() == 2 && area.width >= ABREAST {
            let x = area.x + (area.width - BETWEEN) / 2 + 1;
            for y in area.y..area.bottom() {
                buffer.set_string(x, y, "│", palette.dim());
            }
        }
    }

    fn title(&self, palette: Palette) -> Line<'static> {
        let speed = match (self.paused, self.speed) {
            (true, _) => "   paused".to_owned(),
            (false, Some(speed)) => format!("   {speed}x"),
            (false, None) => String::new(),
        };
        let minutes = |time: Duration| {
            let minutes = time.as_secs() / 60;
            format!("{}h{:02}m", minutes / 60, minutes % 60)
        };
        Line::from(vec![
            Span::styled("kerf demo", Palette::BOLD),
            Span::raw(format!(
                "   {}   {} of {}",
                self.now.strftime("%H:%M:%S"),
                minutes(self.elapsed),
                minutes(self.length)
            )),
            Span::styled(speed, palette.fair()),
            Span::styled("   q ends   p pauses   + - speed", palette.dim()),
        ])
    }
}

/// Beside each other, or one above the other where that is too narrow.
fn parts(area: Rect, count: usize) -> Vec<Rect> {
    if count < 2 {
        return vec![area];
    }
    if area.width >= ABREAST {
        // As wide as each other, so that they have the same columns.
        let each = (area.width - BETWEEN) / 2;
        return vec![
            Rect::new(area.x, area.y, each, area.height),
            Rect::new(area.x + each + BETWEEN, area.y, each, area.height),
        ];
    }
    let upper = area.height / 2;
    vec![
        Rect::new(area.x, area.y, area.width, upper),
        Rect::new(area.x, area.y + upper, area.width, area.height - upper),
    ]
}

impl Side {
    /// `plotted` is the highest number of evictions of any side, where they are compared.
    fn draw(&self, area: Rect, buffer: &mut Buffer, plotted: Option<u64>, palette: Palette) {
        let mut page = Page::new(area, buffer);
        if !self.name.is_empty() {
            page.line(Line::styled(cells::cut(&self.name, page.width()), Palette::BOLD));
        }
        for line in self.counters(palette) {
            page.line(line);
        }
        if let Some(highest) = plotted {
            for line in plot(&self.history, highest, page.width()) {
                page.line(Line::styled(line, palette.bad()));
            }
        }
        page.line("");
        let happenings = (page.room() / 3).max(3);
        let nodes = page.room().saturating_sub(happenings + 2);
        self.nodes(&mut page, nodes, palette);
        page.line("");
        let shown = &self.happenings[self.happenings.len().saturating_sub(page.room())..];
        for happening in shown {
            page.line(happening.line(page.width(), palette));
        }
    }

    fn counters(&self, palette: Palette) -> [Line<'static>; 2] {
        let sums = self.view.sums();
        let pending = if self.view.pending > 0 { palette.fair() } else { palette.dim() };
        let evicted = if self.evictions > 0 { palette.bad() } else { palette.dim() };
        [
            Line::from(vec![
                Span::styled(counted(sums.nodes, "node"), Palette::BOLD),
                Span::raw(format!("  {}", counted(self.view.pods, "pod"))),
                Span::styled(format!(", {} pending", self.view.pending), pending),
                Span::raw(format!("  ${:.2}/h", sums.price.as_f64())),
            ]),
            Line::from(vec![
                Span::styled(format!("{} evicted", self.evictions), Palette::BOLD.patch(evicted)),
                Span::raw(format!("  {} launched  ", self.launched)),
                Span::styled(format!("${:.2} spent", self.cost), Palette::BOLD),
            ]),
        ]
    }

    fn nodes(&self, page: &mut Page<'_>, room: usize, palette: Palette) {
        // The oldest first: those that come and go do so at the end.
        let order = Ui { sort: Sort::Age, ..Ui::default() }.order(&self.view);
        let table = Table::new(&self.view, &order, page.width(), false, palette);
        page.line(table.header);
        let all = table.rows.len();
        let room = if all > room { room.saturating_sub(1) } else { room };
        // The newest are what there is to see.
        for row in table.rows.into_iter().skip(all.saturating_sub(room)) {
            page.line(row.line);
        }
        if all > room {
            let text = format!("  and {} that are older", all - room);
            page.line(Line::styled(text, palette.dim()));
        }
    }
}

impl Happening {
    fn line(&self, width: usize, palette: Palette) -> Line<'static> {
        let style = match self.kind {
            Kind::Launch => palette.good(),
            Kind::Remove => palette.bad(),
            Kind::Refuse => palette.fair(),
            Kind::Change => palette.dim(),
        };
        let at = self.at.strftime("%H:%M:%S").to_string();
        let more = match self.count {
            0 | 1 => String::new(),
            count => format!("{count} stay, such as "),
        };
        let text = format!(" {} {more}{}", self.kind.sign(), self.text);
        let text = cells::cut(&text, width.saturating_sub(at.len()));
        Line::from(vec![Span::styled(at, palette.dim()), Span::styled(text, style)])
    }
}

/// Bars that grow from the lowest line, each a part of the whole time.
fn plot(history: &[u64], highest: u64, width: usize) -> [String; PLOT] {
    const EIGHTHS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let levels = PLOT * 8;
    let level = |column: usize| -> usize {
        // The steps are of the whole time, and those to come are missing at the end.
        let evictions = history.get(column * STEPS / width.max(1)).copied().unwrap_or_default();
        let scaled = evictions * levels as u64 / highest.max(1);
        usize::try_from(scaled).unwrap_or(levels).max(usize::from(evictions > 0)).min(levels)
    };
    std::array::from_fn(|line| {
        let below = (PLOT - 1 - line) * 8;
        let eighth = |column| EIGHTHS[level(column).saturating_sub(below).min(8)];
        (0..width).map(eighth).collect()
    })
}

/// The parts of the whole time that a history has.
const STEPS: usize = 240;

impl Side {
    /// Adds the evictions at this time to the history.
    pub fn remember(&mut self, elapsed: Duration, length: Duration) {
        let part = elapsed.as_secs_f64() / length.as_secs_f64().max(1.0) * STEPS as f64;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "clamped to the number of steps"
        )]
        let steps = part.round().clamp(0.0, STEPS as f64) as usize;
        let before = self.history.len();
        self.history.resize(steps.max(before), self.evictions);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plot_grows_with_the_evictions_and_ends_where_time_does() {
        let history: Vec<u64> = (0..STEPS as u64 / 2).map(|step| step / 30 * 8).collect();
        assert_eq!(
            plot(&history, 24, 8),
            ["   █    ", "  ██    ", " ███    "],
            "half of the time has passed"
        );
        assert_eq!(plot(&[1], 1000, 4)[2], "▁   ", "one is not none");
        assert_eq!(plot(&[], 0, 3), ["   ", "   ", "   "]);
    }
}
