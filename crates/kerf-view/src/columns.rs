//! Which columns a table has at a given width, and how wide each is.

use crate::{cells, model::View};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Column {
    Name,
    Type,
    Capacity,
    Zone,
    Cpu,
    Memory,
    Pods,
    Price,
    Age,
    Why,
}

/// In the order in which they stand.
const ALL: [Column; 10] = [
    Column::Name,
    Column::Type,
    Column::Capacity,
    Column::Zone,
    Column::Cpu,
    Column::Memory,
    Column::Pods,
    Column::Price,
    Column::Age,
    Column::Why,
];

/// In the order in which they go when there is not enough room. The name and the CPU always stay.
pub(crate) const DROPPED: [Column; 8] = [
    Column::Zone,
    Column::Capacity,
    Column::Age,
    Column::Type,
    Column::Memory,
    Column::Pods,
    Column::Why,
    Column::Price,
];

pub(crate) const GAP: usize = 2;
/// The room of the mark of the chosen node.
pub(crate) const MARK: usize = 2;

/// Four columns of bar at least, ten at most, and the percentage behind it.
const BAR: (usize, usize) = (9, 15);

/// Most names of reasons are no longer.
const READABLE: usize = 26;

impl Column {
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Name => "NODE",
            Self::Type => "TYPE",
            Self::Capacity => "CAPACITY",
            Self::Zone => "ZONE",
            Self::Cpu => "CPU",
            Self::Memory => "MEMORY",
            Self::Pods => "PODS",
            Self::Price => "PER HOUR",
            Self::Age => "AGE",
            Self::Why => "WHY",
        }
    }

    /// Figures end at the same place.
    pub(crate) fn is_figure(self) -> bool {
        matches!(self, Self::Pods | Self::Price | Self::Age)
    }

    /// The least and the most room that it takes, by the longest text in it.
    fn room(self, longest: usize) -> (usize, usize) {
        match self {
            Self::Name => (longest.min(18), longest.min(48)),
            Self::Type => (longest.min(14), longest.min(24)),
            Self::Cpu | Self::Memory => BAR,
            Self::Why => (16, longest.max(16)),
            Self::Capacity | Self::Zone | Self::Pods | Self::Price | Self::Age => {
                (longest, longest)
            }
        }
    }
}

/// The columns that fit, each with its width. `None` is all the room that they want.
pub(crate) fn fitting(view: &View, room: Option<usize>) -> Vec<(Column, usize)> {
    let longest = |column: Column| {
        let texts = view.nodes.iter().map(|node| cells::text(node, column, view.now));
        let lengths = texts.map(|text| text.chars().count());
        lengths.max().unwrap_or_default().max(column.title().chars().count())
    };
    let mut columns: Vec<(Column, usize, usize)> = ALL
        .into_iter()
        .map(|column| {
            let (least, most) = column.room(longest(column));
            (column, least, most)
        })
        .collect();
    let Some(room) = room else {
        let wanted = |(column, _, _)| (column, longest(column).max(column.room(0).0));
        return columns.into_iter().map(wanted).collect();
    };
    let taken = |columns: &[(Column, usize, usize)]| {
        let widths: usize = columns.iter().map(|(_, least, _)| least).sum();
        MARK + widths + GAP * columns.len().saturating_sub(1)
    };
    for dropped in DROPPED {
        if taken(&columns) <= room {
            break;
        }
        columns.retain(|(column, ..)| *column != dropped);
    }
    let mut spare = room.saturating_sub(taken(&columns));
    let mut widths: Vec<_> = columns.iter().map(|(column, least, _)| (*column, *least)).collect();
    // A reason that can be read, then what nodes are told apart by; all that is left goes to the reasons.
    let wishes = [
        (Column::Why, READABLE),
        (Column::Name, usize::MAX),
        (Column::Type, usize::MAX),
        (Column::Cpu, usize::MAX),
        (Column::Memory, usize::MAX),
        (Column::Why, usize::MAX),
    ];
    for (column, wish) in wishes {
        let Some(at) = columns.iter().position(|(other, ..)| *other == column) else { continue };
        let more = spare.min(columns[at].2.min(wish).saturating_sub(widths[at].1));
        widths[at].1 += more;
        spare -= more;
    }
    widths
}
