//! A page that shows what the operator sees and does: nodes filled by their pods, the price over time, decisions and refusals
//! with their reasons. It reads and never writes.
//!
//! | file | holds |
//! |---|---|
//! | `view` | what the page shows, as a value computed from a look at the operator |
//! | `history` | the price over time |
//! | `board` | the newest view, renewed while someone looks |
//! | `service` | the page and its data over HTTP |
//! | `page/` | the page itself: HTML, CSS and JavaScript as they are, without a build step |

mod board;
mod history;
mod service;
mod view;

pub use board::{Board, Explain};
pub use service::{Place, routes};
pub use view::{About, View};
