//! From the `OpenMetrics` text that prometheus-client writes to the Prometheus text format 0.0.4, line by line.
//!
//! The two differ where it hurts: `OpenMetrics` names a counter's family without `_total`, so that a scraper of the older
//! format would see `x_total` as a metric without type and help.

use std::fmt::{self, Write};

/// Enough for a packet or two, and little beside what the text as a whole would take.
const PIECE: usize = 64 * 1024;

/// Takes one format in and hands the other on, in pieces.
pub(super) struct PrometheusText<S> {
    send: S,
    piece: String,
    /// The line that is not complete yet.
    line: String,
    /// The help of a family whose type has not come yet.
    help: Option<String>,
}

impl<S: FnMut(String) -> fmt::Result> PrometheusText<S> {
    pub(super) fn new(send: S) -> Self {
        Self { send, piece: String::new(), line: String::new(), help: None }
    }

    /// Hands on what is left.
    pub(super) fn finish(mut self) -> fmt::Result {
        if self.piece.is_empty() { Ok(()) } else { (self.send)(self.piece) }
    }

    fn end_line(&mut self) -> fmt::Result {
        if let Some(help) = self.line.strip_prefix("# HELP ") {
            self.help = Some(help.to_owned());
        } else if let Some(family) = self.line.strip_prefix("# TYPE ") {
            let (name, kind) = family.rsplit_once(' ').unwrap_or((family, ""));
            let suffix = if kind == "counter" { "_total" } else { "" };
            if let Some(help) = self.help.take() {
                let (name, text) = help.split_once(' ').unwrap_or((&help, ""));
                writeln!(self.piece, "# HELP {name}{suffix} {text}")?;
            }
            writeln!(self.piece, "# TYPE {name}{suffix} {kind}")?;
        } else if !self.line.starts_with("# UNIT ") && self.line != "# EOF" {
            self.piece.push_str(&self.line);
            self.piece.push('\n');
        }
        self.line.clear();
        if self.piece.len() >= PIECE {
            (self.send)(std::mem::take(&mut self.piece))?;
        }
        Ok(())
    }
}

impl<S: FnMut(String) -> fmt::Result> Write for PrometheusText<S> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut rest = text;
        while let Some((end, next)) = rest.split_once('\n') {
            self.line.push_str(end);
            self.end_line()?;
            rest = next;
        }
        self.line.push_str(rest);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_texts_come_in_pieces_and_none_is_lost() {
        let mut pieces = Vec::new();
        let mut text = PrometheusText::new(|piece| {
            pieces.push(piece);
            Ok(())
        });
        for number in 0..20_000 {
            // However it is cut up.
            write!(text, "x{{n=\"{number}\"").unwrap();
            writeln!(text, "}} {number}").unwrap();
        }
        text.finish().unwrap();
        assert!(pieces.len() > 3, "{}", pieces.len());
        assert!(pieces.iter().all(|piece| piece.len() < PIECE + 100));
        assert_eq!(pieces.concat().lines().count(), 20_000);
    }

    #[test]
    fn who_no_longer_listens_ends_it() {
        let mut text = PrometheusText::new(|_| Err(fmt::Error));
        let line = "x 1\n".repeat(PIECE);
        assert!(text.write_str(&line).is_err());
    }
}
