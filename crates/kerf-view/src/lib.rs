//! A cluster in a terminal: its nodes with their fill, price and age, and why each stays or would go.
//!
//! Drawing is a pure function of values: a [`View`] says what there is, a [`Ui`] what was asked of the view, and a buffer comes
//! of the two. `kerf top` and `kerf demo` fill in the values; [`screen`] is the one place that knows a terminal.

mod cells;
mod columns;
mod legend;
mod model;
pub mod screen;
mod stage;
mod style;
pub mod svg;
mod table;
mod top;
mod ui;

pub use model::{Fate, Fill, NodeRow, View};
pub use ratatui_core::{buffer::Buffer, layout::Rect};
pub use stage::{Happening, Kind, Side, Stage};
pub use style::Palette;
pub use table::plain;
pub use ui::{Action, Key, Overlay, Sort, Ui};

/// A picture of this size.
pub fn picture(width: u16, height: u16, draw: impl FnOnce(Rect, &mut Buffer)) -> Buffer {
    let area = Rect::new(0, 0, width, height);
    let mut buffer = Buffer::empty(area);
    draw(area, &mut buffer);
    buffer
}
