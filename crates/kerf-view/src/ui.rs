//! What was asked of the view by keys.

use crate::model::{Fate, NodeRow, View};

#[derive(Clone, Debug, Default)]
pub struct Ui {
    pub sort: Sort,
    pub filter: String,
    /// The keys go into the filter.
    pub typing: bool,
    /// By name, because rows move.
    pub selected: Option<String>,
    pub paused: bool,
    pub overlay: Option<Overlay>,
}

/// What lies over the table.
#[derive(Clone, Debug)]
pub enum Overlay {
    Legend,
    Text { lines: Vec<String>, scroll: usize },
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sort {
    #[default]
    Name,
    /// Those that go or would go first.
    Why,
    Cpu,
    Memory,
    Price,
    Age,
    Pods,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    Char(char),
    Enter,
    Escape,
    Backspace,
    Up,
    Down,
    PageUp,
    PageDown,
    Home,
    End,
    /// Ctrl-C.
    Interrupt,
    /// The terminal has another size.
    Resize,
}

/// What the caller has to do about a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    Draw,
    Quit,
    /// Explain this node, and show the text.
    Explain(String),
}

/// How far a page goes.
const PAGE: usize = 10;

impl Sort {
    const ALL: [Self; 7] =
        [Self::Name, Self::Why, Self::Cpu, Self::Memory, Self::Price, Self::Age, Self::Pods];

    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Name => "name",
            Self::Why => "why",
            Self::Cpu => "CPU",
            Self::Memory => "memory",
            Self::Price => "price",
            Self::Age => "age",
            Self::Pods => "pods",
        }
    }

    fn next(self) -> Self {
        let at = Self::ALL.iter().position(|sort| *sort == self).unwrap_or_default();
        Self::ALL[(at + 1) % Self::ALL.len()]
    }

    /// Names upwards, the emptiest and the dearest first.
    fn compare(self, a: &NodeRow, b: &NodeRow) -> std::cmp::Ordering {
        let by = match self {
            Self::Name => std::cmp::Ordering::Equal,
            Self::Why => rank(&a.fate).cmp(&rank(&b.fate)),
            Self::Cpu => a.cpu.share().total_cmp(&b.cpu.share()),
            Self::Memory => a.memory.share().total_cmp(&b.memory.share()),
            Self::Price => b.price.cmp(&a.price),
            Self::Age => a.created.cmp(&b.created),
            Self::Pods => a.pods.cmp(&b.pods),
        };
        by.then_with(|| a.name.cmp(&b.name))
    }
}

fn rank(fate: &Fate) -> (u8, &str) {
    match fate {
        Fate::Leaving { reason } => (0, reason),
        Fate::WouldGo { reason, .. } => (1, reason),
        Fate::Starting => (2, ""),
        Fate::Stays { reason, .. } => (3, reason),
        Fate::Unknown => (4, ""),
    }
}

impl Ui {
    /// The places of the nodes that the filter lets through, in the order of the sort.
    pub(crate) fn order(&self, view: &View) -> Vec<usize> {
        let wanted = self.filter.to_lowercase();
        let mut order: Vec<usize> =
            (0..view.nodes.len()).filter(|at| matches(&view.nodes[*at], &wanted)).collect();
        order.sort_by(|a, b| self.sort.compare(&view.nodes[*a], &view.nodes[*b]));
        order
    }

    /// The nodes as they stand under each other, pool by pool.
    fn shown(&self, view: &View) -> Vec<usize> {
        view.by_pool(&self.order(view)).into_iter().flat_map(|(_, nodes)| nodes).collect()
    }

    pub fn press(&mut self, key: Key, view: &View) -> Action {
        match (key, &mut self.overlay) {
            (Key::Interrupt, _) => return Action::Quit,
            (Key::Resize, _) => return Action::Draw,
            (_, Some(overlay)) => {
                if overlay.press(key) {
                    self.overlay = None;
                }
                return Action::Draw;
            }
            (_, None) => {}
        }
        if self.typing {
            self.type_filter(key);
            return Action::Draw;
        }
        match key {
            Key::Char('q') => return Action::Quit,
            Key::Char('s') => self.sort = self.sort.next(),
            Key::Char('/') => self.typing = true,
            Key::Char('p') => self.paused = !self.paused,
            Key::Char('?') => self.overlay = Some(Overlay::Legend),
            Key::Escape => self.filter.clear(),
            Key::Up | Key::Char('k') => self.move_by(view, |at, _| at.saturating_sub(1)),
            Key::Down | Key::Char('j') => self.move_by(view, |at, last| (at + 1).min(last)),
            Key::PageUp => self.move_by(view, |at, _| at.saturating_sub(PAGE)),
            Key::PageDown => self.move_by(view, |at, last| (at + PAGE).min(last)),
            Key::Home => self.move_by(view, |_, _| 0),
            Key::End => self.move_by(view, |_, last| last),
            Key::Enter => {
                if let Some(at) = self.selected_in(view) {
                    return Action::Explain(view.nodes[at].name.clone());
                }
            }
            _ => {}
        }
        Action::Draw
    }

    fn type_filter(&mut self, key: Key) {
        match key {
            Key::Char(character) => self.filter.push(character),
            Key::Backspace => drop(self.filter.pop()),
            Key::Enter => self.typing = false,
            Key::Escape => {
                self.filter.clear();
                self.typing = false;
            }
            _ => {}
        }
    }

    fn move_by(&mut self, view: &View, to: impl Fn(usize, usize) -> usize) {
        let shown = self.shown(view);
        let Some(last) = shown.len().checked_sub(1) else { return };
        let at = self.selected_in(view);
        let at = at.and_then(|index| shown.iter().position(|shown| *shown == index));
        // The first key chooses the first node, whatever it is.
        let at = at.map_or(0, |at| to(at, last));
        self.selected = Some(view.nodes[shown[at]].name.clone());
    }

    /// The place of the chosen node, if it is there and shown.
    pub(crate) fn selected_in(&self, view: &View) -> Option<usize> {
        let name = self.selected.as_ref()?;
        let at = view.nodes.iter().position(|node| node.name == *name)?;
        matches(&view.nodes[at], &self.filter.to_lowercase()).then_some(at)
    }
}

impl Overlay {
    pub fn text(text: &str) -> Self {
        Self::Text { lines: text.lines().map(str::to_owned).collect(), scroll: 0 }
    }

    /// Whether it is to close.
    fn press(&mut self, key: Key) -> bool {
        let Self::Text { lines, scroll } = self else { return true };
        let last = lines.len().saturating_sub(1);
        *scroll = match key {
            Key::Up | Key::Char('k') => scroll.saturating_sub(1),
            Key::Down | Key::Char('j') => (*scroll + 1).min(last),
            Key::PageUp => scroll.saturating_sub(PAGE),
            Key::PageDown | Key::Char(' ') => (*scroll + PAGE).min(last),
            Key::Home => 0,
            Key::End => last,
            _ => return true,
        };
        false
    }
}

fn matches(node: &NodeRow, wanted: &str) -> bool {
    let texts = [&node.pool, &node.instance_type, &node.capacity_type, &node.zone];
    let has = |text: &str| text.to_lowercase().contains(wanted);
    wanted.is_empty()
        || has(&node.name)
        || texts.into_iter().flatten().any(|text| has(text))
        || has(&node.fate.short())
}
