//! Colours, and doing without.

use ratatui_core::style::{Color, Modifier, Style};

/// How things are set apart. Without colours (`NO_COLOR`) weight alone does it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Palette {
    pub colours: bool,
}

impl Palette {
    pub const COLOURED: Self = Self { colours: true };
    pub(crate) const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);
    pub(crate) const SELECTED: Style = Style::new().add_modifier(Modifier::REVERSED);

    fn colour(self, colour: Color) -> Style {
        if self.colours { Style::new().fg(colour) } else { Style::new() }
    }

    pub(crate) fn dim(self) -> Style {
        self.colour(Color::DarkGray)
    }

    pub(crate) fn good(self) -> Style {
        self.colour(Color::Green)
    }

    pub(crate) fn fair(self) -> Style {
        self.colour(Color::Yellow)
    }

    pub(crate) fn bad(self) -> Style {
        self.colour(Color::Red)
    }

    pub(crate) fn new_thing(self) -> Style {
        self.colour(Color::Cyan)
    }
}
