//! The terminal: pictures go there, keys come from there.

use std::{
    env, io,
    io::{IsTerminal, Stdout},
    time::Duration,
};

use ratatui_core::{buffer::Buffer, layout::Rect, terminal::Terminal};
use ratatui_crossterm::{
    CrosstermBackend,
    crossterm::{
        cursor, event,
        event::{Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers},
        execute, terminal,
    },
};

use crate::{style::Palette, ui::Key};

/// Whether pictures can be drawn and keys be read.
pub fn is_there() -> bool {
    let is_dumb = env::var_os("TERM").is_none_or(|term| term == "dumb" || term.is_empty());
    io::stdout().is_terminal() && io::stdin().is_terminal() && !is_dumb
}

/// Colours, unless `NO_COLOR` says otherwise.
pub fn palette() -> Palette {
    Palette { colours: env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()) }
}

/// The alternate screen of the terminal, until this is dropped.
#[derive(Debug)]
pub struct Screen {
    terminal: Terminal<CrosstermBackend<Stdout>>,
    palette: Palette,
}

impl Screen {
    pub fn open() -> io::Result<Self> {
        terminal::enable_raw_mode()?;
        let opened = || {
            execute!(io::stdout(), terminal::EnterAlternateScreen, cursor::Hide)?;
            Terminal::new(CrosstermBackend::new(io::stdout()))
        };
        match opened() {
            Ok(terminal) => Ok(Self { terminal, palette: palette() }),
            Err(error) => {
                leave();
                Err(error)
            }
        }
    }

    pub fn draw(&mut self, draw: impl FnOnce(Rect, &mut Buffer, Palette)) -> io::Result<()> {
        let palette = self.palette;
        self.terminal.draw(|frame| draw(frame.area(), frame.buffer_mut(), palette)).map(drop)
    }

    /// The next key, if one comes within this time.
    pub fn key(&self, within: Duration) -> io::Result<Option<Key>> {
        if !event::poll(within)? {
            return Ok(None);
        }
        Ok(match event::read()? {
            Event::Key(KeyEvent { kind: KeyEventKind::Release, .. }) => None,
            Event::Key(KeyEvent { code, modifiers, .. }) => key(code, modifiers),
            Event::Resize(..) => Some(Key::Resize),
            _ => None,
        })
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        leave();
    }
}

/// A terminal that is gone needs no tidying up.
fn leave() {
    let _ = execute!(io::stdout(), cursor::Show, terminal::LeaveAlternateScreen);
    let _ = terminal::disable_raw_mode();
}

fn key(code: KeyCode, modifiers: KeyModifiers) -> Option<Key> {
    Some(match code {
        KeyCode::Char('c') if modifiers.contains(KeyModifiers::CONTROL) => Key::Interrupt,
        KeyCode::Char(character) => Key::Char(character),
        KeyCode::Enter => Key::Enter,
        KeyCode::Esc => Key::Escape,
        KeyCode::Backspace => Key::Backspace,
        KeyCode::Up => Key::Up,
        KeyCode::Down => Key::Down,
        KeyCode::PageUp => Key::PageUp,
        KeyCode::PageDown => Key::PageDown,
        KeyCode::Home => Key::Home,
        KeyCode::End => Key::End,
        _ => return None,
    })
}
