//! The nodes as lines, by pool.

use ratatui_core::text::{Line, Span};

use crate::{
    cells,
    columns::{self, Column, GAP, MARK},
    model::{NodeRow, Sums, View},
    style::Palette,
    ui::Ui,
};

/// A table that fits into some width.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) header: Line<'static>,
    pub(crate) rows: Vec<Row>,
}

#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) line: Line<'static>,
    /// The node that it is about; none is a pool.
    pub(crate) node: Option<usize>,
}

impl Table {
    /// The nodes in this order, with a line for each pool if there are several or `headed` asks for it.
    pub(crate) fn new(
        view: &View,
        order: &[usize],
        width: usize,
        headed: bool,
        palette: Palette,
    ) -> Self {
        let columns = columns::fitting(view, Some(width));
        let mut rows = Vec::with_capacity(order.len());
        for (pool, nodes) in view.by_pool(order) {
            if headed {
                rows.push(Row { line: pool_line(view, pool, &nodes, width, palette), node: None });
            }
            rows.extend(nodes.into_iter().map(|index| Row {
                line: node_line(&view.nodes[index], &columns, view, palette),
                node: Some(index),
            }));
        }
        Self { header: header(&columns).style(palette.dim()), rows }
    }
}

fn header(columns: &[(Column, usize)]) -> Line<'static> {
    let mut text = " ".repeat(MARK);
    for (at, (column, width)) in columns.iter().enumerate() {
        if at > 0 {
            text.push_str(&" ".repeat(GAP));
        }
        let title = cells::cut(column.title(), *width);
        text.push_str(&cells::padded(&title, *column, *width));
    }
    Line::raw(text)
}

fn node_line(
    node: &NodeRow,
    columns: &[(Column, usize)],
    view: &View,
    palette: Palette,
) -> Line<'static> {
    let mut spans = vec![Span::raw(" ".repeat(MARK))];
    for (at, column) in columns.iter().enumerate() {
        if at > 0 {
            spans.push(Span::raw(" ".repeat(GAP)));
        }
        spans.extend(cells::cell(node, *column, view.now, palette));
    }
    Line::from(spans)
}

fn pool_line(
    view: &View,
    pool: Option<&str>,
    nodes: &[usize],
    width: usize,
    palette: Palette,
) -> Line<'static> {
    let sums = Sums::of(nodes.iter().map(|index| &view.nodes[*index]));
    let name = pool.map_or_else(|| "no NodePool".to_owned(), |pool| format!("NodePool {pool}"));
    let rest = format!("   {}", of_pool(&sums));
    let name = cells::shortened(&name, width);
    let rest = cells::cut(&rest, width.saturating_sub(name.chars().count()));
    Line::from(vec![Span::styled(name, Palette::BOLD), Span::styled(rest, palette.dim())])
}

fn of_pool(sums: &Sums) -> String {
    let nodes = counted(sums.nodes, "node");
    let fill = (cells::percent(sums.cpu.share()), cells::percent(sums.memory.share()));
    let (pods, price) = (counted(sums.pods, "pod"), price(sums));
    format!("{nodes}, {pods}, {price}, CPU {}, memory {}", fill.0, fill.1)
}

pub(crate) fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// What nodes cost together, as far as that is known.
pub(crate) fn price(sums: &Sums) -> String {
    match (sums.unpriced, sums.nodes) {
        (0, _) => sums.price.to_string(),
        (unknown, all) if unknown == all => "price unknown".to_owned(),
        (unknown, _) => format!("{} and {} of unknown price", sums.price, counted(unknown, "node")),
    }
}

/// The whole table as text, with all columns as wide as they need to be, for files and pipes.
pub fn plain(view: &View, ui: &Ui) -> String {
    let columns = columns::fitting(view, None);
    let palette = Palette { colours: false };
    let mut text = String::new();
    let mut push = |line: &Line<'_>| {
        let line: String = line.spans.iter().map(|span| span.content.as_ref()).collect();
        text.push_str(line.trim_end());
        text.push('\n');
    };
    push(&crate::top::totals(view, palette));
    push(&Line::raw(""));
    push(&header(&columns));
    for (pool, nodes) in view.by_pool(&ui.order(view)) {
        push(&pool_line(view, pool, &nodes, usize::MAX, palette));
        for index in nodes {
            push(&node_line(&view.nodes[index], &columns, view, palette));
        }
    }
    for note in &view.notes {
        push(&Line::raw(format!("Note: {note}")));
    }
    text
}
