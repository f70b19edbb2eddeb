//! The demo in a terminal. A picture is drawn over the last one, line by line, so that nothing flickers.

use std::{
    fmt::Write as _,
    io::{self, Write},
};

use kerf_simulation::{DecisionKind, Ledger, Node, Play, State, dollars};
use rustix::termios;

use super::lines;

/// The alternate screen of the terminal, until this is dropped.
#[derive(Debug)]
pub(super) struct Screen {
    stdout: io::Stdout,
    /// Without colours.
    plain: bool,
}

/// What does not change from picture to picture.
#[derive(Debug)]
pub(super) struct Setting {
    pub(super) speed: Option<u32>,
    pub(super) kubeconfig: Option<String>,
}

const ENTER: &str = "\x1b[?1049h\x1b[?25l";
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";
const HOME: &str = "\x1b[H";
const CLEAR_LINE: &str = "\x1b[K";
const CLEAR_BELOW: &str = "\x1b[J";

const BOLD: &str = "\x1b[1m";
const DIM: &str = "\x1b[2m";
const RED: &str = "\x1b[31m";
const GREEN: &str = "\x1b[32m";
const YELLOW: &str = "\x1b[33m";
const CYAN: &str = "\x1b[36m";
const PLAIN: &str = "\x1b[0m";

impl Screen {
    pub(super) fn open() -> io::Result<Self> {
        let mut stdout = io::stdout();
        stdout.write_all(ENTER.as_bytes())?;
        Ok(Self { stdout, plain: kerf_runtime::logging::wants_no_colour() })
    }

    pub(super) fn draw(&mut self, play: &Play, setting: &Setting) -> io::Result<()> {
        let (width, height) = size();
        let mut picture = String::from(HOME);
        for line in picture_of(play, setting, height) {
            let line = cut(&line, width);
            picture.push_str(&if self.plain { without_colours(&line) } else { line });
            picture.push_str(CLEAR_LINE);
            picture.push_str("\r\n");
        }
        picture.push_str(CLEAR_BELOW);
        self.stdout.write_all(picture.as_bytes())?;
        self.stdout.flush()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // A terminal that is gone needs no tidying up.
        let _ = self.stdout.write_all(LEAVE.as_bytes());
        let _ = self.stdout.flush();
    }
}

/// The line without what sets colours and weights.
fn without_colours(line: &str) -> String {
    let mut parts = line.split("\x1b[");
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        plain.push_str(part.split_once('m').map_or(part, |(_, rest)| rest));
    }
    plain
}

fn size() -> (usize, usize) {
    match termios::tcgetwinsize(io::stdout()) {
        Ok(size) if size.ws_col > 0 && size.ws_row > 0 => (size.ws_col.into(), size.ws_row.into()),
        _ => (100, 30),
    }
}

fn picture_of(play: &Play, setting: &Setting, height: usize) -> Vec<String> {
    let ledger = play.ledger();
    // The last line stays free, or the terminal would scroll.
    let room = height.saturating_sub(1);
    let mut picture = heading(play, setting);
    let decisions = (room / 3).max(5);
    let nodes = room.saturating_sub(picture.len() + 3 + decisions);
    picture.push(format!(
        "{DIM}  {:<14} {:<20} {:<10} {:<19} {:<19} {:>4} {:>9}{PLAIN}",
        "NODECLAIM", "TYPE", "CAPACITY", "CPU", "MEMORY", "PODS", "PER HOUR"
    ));
    let shown = ledger.nodes().iter().take(nodes);
    picture.extend(shown.map(|(name, node)| node_line(name, node)));
    if ledger.nodes().len() > nodes {
        picture.push(format!("{DIM}  and {} more{PLAIN}", ledger.nodes().len() - nodes));
    }
    picture.push(String::new());
    picture.push(format!("{DIM}  DECISIONS{PLAIN}"));
    picture.extend(decision_lines(ledger, room.saturating_sub(picture.len())));
    picture.truncate(room);
    picture
}

fn heading(play: &Play, setting: &Setting) -> Vec<String> {
    let ledger = play.ledger();
    let speed = setting.speed.map_or_else(String::new, |speed| format!("{speed}x   "));
    let (cost, evictions) = (ledger.totals().cost(), ledger.totals().evictions);
    let pending = match ledger.pending_pods() {
        0 => "0 pending".to_owned(),
        count => format!("{YELLOW}{count} pending{PLAIN}"),
    };
    let mut lines = vec![
        format!(
            "{BOLD}  kerf demo{PLAIN}   {}   {speed}policy {}   {DIM}Ctrl-C ends{PLAIN}",
            ledger.now().strftime("%H:%M:%S"),
            ledger.policy()
        ),
        format!(
            "  {BOLD}{}{PLAIN} nodes   {BOLD}{}{PLAIN} pods running, {pending}   {BOLD}{}{PLAIN} per hour   \
             ${cost:.2} spent   {evictions} evicted",
            ledger.nodes().len(),
            ledger.running_pods(),
            dollars(ledger.price_per_hour()),
        ),
    ];
    if let Some(path) = &setting.kubeconfig {
        lines.push(format!("  kubectl --kubeconfig {path} get nodes"));
    }
    lines.push(String::new());
    lines
}

fn node_line(name: &str, node: &Node) -> String {
    let (colour, state) = match node.state {
        State::Starting => (CYAN, "starting".to_owned()),
        State::Ready if node.reason.is_none() => ("", String::new()),
        _ => (RED, node.reason.clone().unwrap_or_else(|| "leaving".to_owned())),
    };
    format!(
        "  {colour}{:<14}{PLAIN} {:<20} {:<10} {} {} {:>4} {:>9} {colour}{state}{PLAIN}",
        name,
        node.instance_type(),
        node.capacity_type(),
        bar(node.fill("cpu")),
        bar(node.fill("memory")),
        node.pods,
        dollars(node.price),
    )
}

/// Fourteen columns of fill and its percentage.
fn bar(fill: f64) -> String {
    const WIDTH: usize = 14;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "clamped to the width of the bar"
    )]
    let filled = (fill * WIDTH as f64).round().clamp(0.0, WIDTH as f64) as usize;
    let colour = if fill > 0.75 {
        GREEN
    } else if fill > 0.4 {
        YELLOW
    } else {
        RED
    };
    let mut text = String::from(colour);
    text.extend(std::iter::repeat_n('█', filled));
    text.push_str(PLAIN);
    text.push_str(DIM);
    text.extend(std::iter::repeat_n('·', WIDTH - filled));
    let _ = write!(text, "{PLAIN} {:>3.0}%", fill * 100.0);
    text
}

/// The newest last.
fn decision_lines(ledger: &Ledger, room: usize) -> Vec<String> {
    let decisions = ledger.decisions();
    let shown = &decisions[decisions.len().saturating_sub(room)..];
    let line = |decision: &kerf_simulation::Decision| {
        let colour = match decision.kind {
            DecisionKind::Launch => GREEN,
            DecisionKind::Remove => RED,
            DecisionKind::Refuse => YELLOW,
            DecisionKind::Change => DIM,
        };
        let (at, sign) = (decision.at.strftime("%H:%M:%S"), lines::sign(decision.kind));
        format!("  {DIM}{at}{PLAIN} {colour}{sign} {}{PLAIN}", decision.text)
    };
    shown.iter().map(line).collect()
}

/// The first `width` columns of a line; what colours it takes none.
fn cut(line: &str, width: usize) -> String {
    let (mut kept, mut columns, mut escaping) = (String::with_capacity(line.len()), 0, false);
    for character in line.chars() {
        if character == '\x1b' {
            escaping = true;
        }
        if escaping {
            kept.push(character);
            escaping = !character.is_ascii_alphabetic();
        } else if columns < width {
            kept.push(character);
            columns += 1;
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_cut_by_what_can_be_seen() {
        for (line, width, expected) in [
            ("plain", 3, "pla"),
            ("plain", 9, "plain"),
            ("\x1b[31mred\x1b[0m", 2, "\x1b[31mre\x1b[0m"),
            ("██··", 3, "██·"),
        ] {
            assert_eq!(cut(line, width), expected);
        }
    }

    #[test]
    fn bars_are_as_long_as_the_node_is_full() {
        for (fill, full, text) in
            [(0.0, 0, "  0%"), (0.5, 7, " 50%"), (1.0, 14, "100%"), (1.3, 14, "130%")]
        {
            let drawn = bar(fill);
            assert_eq!(drawn.matches('█').count(), full);
            assert_eq!(drawn.matches('·').count(), 14 - full);
            assert!(drawn.ends_with(text), "{drawn}");
        }
    }
}
