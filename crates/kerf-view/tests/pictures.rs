//! Pictures of the view at the widths that terminals have.
#![expect(clippy::unwrap_used, reason = "the helpers of a test may panic as the test itself does")]

use std::time::Duration;

use jiff::Timestamp;
use kerf_view::{
    Action, Fate, Fill, Happening, Key, Kind, NodeRow, Overlay, Palette, Side, Stage, Ui, View,
};
use ratatui_core::{backend::TestBackend, buffer::Buffer, layout::Rect, terminal::Terminal};

const PLAIN: Palette = Palette { colours: false };

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn node(
    name: &str,
    pool: Option<&str>,
    fill: (u32, u32),
    price: Option<&str>,
    fate: Fate,
) -> NodeRow {
    let of = |percent: u32, allocatable: &str, unit: &str| Fill {
        requested: format!("{percent}{unit}").parse().unwrap(),
        allocatable: allocatable.parse().unwrap(),
    };
    NodeRow {
        name: name.to_owned(),
        pool: pool.map(str::to_owned),
        instance_type: Some("m6a.2xlarge".to_owned()),
        capacity_type: pool.map(|_| "on-demand".to_owned()),
        zone: Some("eu-west-1a".to_owned()),
        price: price.map(|price| price.parse().unwrap()),
        // A hundred of each, so that a percent is a unit.
        cpu: of(fill.0 * 10, "1", "m"),
        memory: of(fill.1, "100Mi", "Mi"),
        pods: usize::try_from(fill.0 / 10).unwrap(),
        created: Some(at("2026-01-05T08:00:00Z")),
        fate,
    }
}

fn view() -> View {
    let stays = |reason, message: &str| Fate::Stays { reason, message: message.to_owned() };
    let (general, spot) = (Some("general"), Some("spot"));
    View {
        subject: "prod".to_owned(),
        now: at("2026-01-05T11:30:00Z"),
        nodes: vec![
            node(
                "ip-10-0-12-101.eu-west-1.compute.internal",
                general,
                (91, 64),
                Some("0.3456"),
                stays("utilization", "Utilization 0.7750 is above the threshold 0.75"),
            ),
            node(
                "ip-10-0-12-102.eu-west-1.compute.internal",
                general,
                (22, 18),
                Some("0.3456"),
                Fate::WouldGo {
                    decision: "replace",
                    reason: "Underutilized".to_owned(),
                    saves: Some("0.1728".parse().unwrap()),
                },
            ),
            node(
                "ip-10-0-12-103.eu-west-1.compute.internal",
                general,
                (55, 70),
                Some("0.3456"),
                stays("pdb", "PDB \"shop/api\" prevents pod evictions"),
            ),
            node(
                "ip-10-0-40-7.eu-west-1.compute.internal",
                spot,
                (35, 41),
                None,
                Fate::Leaving { reason: "Drifted".to_owned() },
            ),
            node("spot-x7k2p", spot, (0, 0), Some("0.1040"), Fate::Starting),
            node(
                "ip-10-0-1-1.eu-west-1.compute.internal",
                None,
                (12, 30),
                None,
                stays("not_ready", "Node isn't managed by Karpenter"),
            ),
        ],
        pods: 20,
        pending: 2,
        notes: vec!["NodePool spot: its instance types are unknown".to_owned()],
    }
}

/// What a terminal of this size shows.
fn drawn(width: u16, height: u16, draw: impl FnOnce(Rect, &mut Buffer)) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame.area(), frame.buffer_mut())).unwrap();
    let lines = terminal.backend().to_string();
    // The backend quotes its lines.
    let lines = lines.lines().map(|line| line.trim_matches('"').trim_end());
    lines.collect::<Vec<_>>().join("\n")
}

fn top(ui: &Ui, width: u16) -> String {
    drawn(width, 20, |area, buffer| ui.draw(&view(), area, buffer, PLAIN))
}

#[test]
fn top_at_80_columns() {
    insta::assert_snapshot!(top(&Ui::default(), 80));
}

#[test]
fn top_at_120_columns() {
    insta::assert_snapshot!(top(&Ui::default(), 120));
}

#[test]
fn top_at_240_columns() {
    insta::assert_snapshot!(top(&Ui::default(), 240));
}

#[test]
fn the_legend_at_120_columns() {
    let ui = Ui { overlay: Some(Overlay::Legend), ..Ui::default() };
    insta::assert_snapshot!(drawn(120, 30, |area, buffer| ui.draw(&view(), area, buffer, PLAIN)));
}

/// The columns that a header has, from 30 to 240.
#[test]
fn columns_go_in_the_stated_order_and_no_line_is_too_long() {
    let order = ["ZONE", "CAPACITY", "AGE", "TYPE", "MEMORY", "PODS", "WHY", "PER HOUR"];
    let mut before = order.len();
    for width in 30..=240 {
        let text = top(&Ui::default(), width);
        assert!(text.lines().all(|line| line.chars().count() <= width.into()), "{width}\n{text}");
        let header = text.lines().nth(4).unwrap();
        assert!(header.contains("NODE") && header.contains("CPU"), "{width}: {header}");
        let gone: Vec<_> = order.iter().filter(|title| !header.contains(**title)).collect();
        assert_eq!(gone, order.iter().take(gone.len()).collect::<Vec<_>>(), "{width}: {header}");
        assert!(gone.len() <= before, "a column comes back: {width}: {header}");
        before = gone.len();
    }
    assert_eq!(before, 0, "all columns fit into 240");
}

#[test]
fn every_size_can_be_drawn() {
    for (width, height) in [(1, 1), (5, 3), (20, 2), (80, 5), (300, 100)] {
        for overlay in [None, Some(Overlay::Legend), Some(Overlay::text("a\nb"))] {
            let ui = Ui { overlay, selected: Some("spot-x7k2p".to_owned()), ..Ui::default() };
            drawn(width, height, |area, buffer| ui.draw(&view(), area, buffer, PLAIN));
        }
        drawn(width, height, |area, buffer| stage(2).draw(area, buffer, PLAIN));
        drawn(width, height, |area, buffer| stage(1).draw(area, buffer, PLAIN));
    }
}

/// Keys, and the first cell of the lines of nodes.
#[test]
fn keys_sort_filter_and_choose() {
    let view = view();
    let shown = |ui: &Ui| -> Vec<String> {
        let text = drawn(120, 20, |area, buffer| ui.draw(&view, area, buffer, PLAIN));
        let lines = text.lines().filter(|line| line.contains('%') && line.contains("m6a"));
        let lines = lines.map(|line| line.trim_start_matches('▸').trim_start());
        lines.map(|line| line.split_whitespace().next().unwrap().to_owned()).collect()
    };
    let mut ui = Ui::default();
    assert_eq!(shown(&ui).len(), 6);
    for key in "/general".chars().map(Key::Char).chain([Key::Enter]) {
        assert_eq!(ui.press(key, &view), Action::Draw);
    }
    assert_eq!(shown(&ui).len(), 3, "only nodes of the pool");
    ui.press(Key::Char('s'), &view);
    let first = shown(&ui)[0].clone();
    assert!(first.starts_with("ip-10-0-12-102"), "the one that would go comes first: {first}");
    assert_eq!(ui.press(Key::Enter, &view), Action::Draw, "nothing is chosen yet");
    ui.press(Key::Down, &view);
    let chosen = "ip-10-0-12-102.eu-west-1.compute.internal".to_owned();
    assert_eq!(ui.press(Key::Enter, &view), Action::Explain(chosen));
    ui.press(Key::End, &view);
    ui.press(Key::Up, &view);
    let marked = drawn(120, 20, |area, buffer| ui.draw(&view, area, buffer, PLAIN));
    assert!(marked.contains("▸ ip-10-0-12-103"), "{marked}");
    ui.press(Key::Escape, &view);
    assert_eq!(shown(&ui).len(), 6, "the filter is gone");
    assert_eq!(ui.press(Key::Char('q'), &view), Action::Quit);
}

#[test]
fn a_page_of_a_long_list_has_the_chosen_node_on_it() {
    let mut view = view();
    let many = (0..60).map(|number| {
        node(&format!("node-{number:02}"), Some("general"), (50, 50), None, Fate::Unknown)
    });
    view.nodes = many.collect();
    let mut ui = Ui::default();
    for _ in 0..45 {
        ui.press(Key::Down, &view);
    }
    let text = drawn(100, 20, |area, buffer| ui.draw(&view, area, buffer, PLAIN));
    assert!(text.contains("▸ node-44"), "{text}");
    assert!(text.contains("more, ↑↓"), "{text}");
}

#[test]
fn a_table_for_pipes_has_every_column_in_full() {
    let text = kerf_view::plain(&view(), &Ui::default());
    insta::assert_snapshot!(text);
}

fn stage(sides: usize) -> Stage {
    let happening = |minute: u32, kind, text: &str| Happening {
        at: at(&format!("2026-01-05T17:{minute}:00Z")),
        kind,
        text: text.to_owned(),
        count: if kind == Kind::Refuse { 3 } else { 1 },
    };
    let side = |name: &str, evictions: u64| {
        let mut side = Side {
            name: name.to_owned(),
            view: view(),
            launched: evictions / 3,
            evictions,
            cost: 1.2345,
            history: (0..120).map(|step| step * evictions / 120).collect(),
            happenings: vec![
                happening(10, Kind::Change, "web goes from 36 to 8 replicas within 12m"),
                happening(
                    11,
                    Kind::Launch,
                    "workload-abcde: c6a.large on-demand for $0.0765 per hour",
                ),
                happening(
                    12,
                    Kind::Remove,
                    "workload-fghij (m6a.large, 4 pods) goes: Underutilized",
                ),
                happening(13, Kind::Refuse, "workload-klmno: Utilization 0.7598 is above 0.75"),
            ],
        };
        side.remember(Duration::from_mins(30), Duration::from_hours(1));
        side
    };
    let both = [side("Karpenter's policy", 118), side("Kerf's defaults", 21)];
    Stage {
        story: "The same load for both.".to_owned(),
        now: at("2026-01-05T17:30:00Z"),
        elapsed: Duration::from_mins(30),
        length: Duration::from_hours(1),
        speed: Some(80),
        paused: false,
        hint: None,
        sides: both.into_iter().take(sides).collect(),
        verdict: Some("Karpenter's policy evicted 118 pods and Kerf's defaults 21.".to_owned()),
    }
}

#[test]
fn two_sides_at_80_columns() {
    insta::assert_snapshot!(drawn(80, 26, |area, buffer| stage(2).draw(area, buffer, PLAIN)));
}

#[test]
fn two_sides_at_120_columns() {
    insta::assert_snapshot!(drawn(120, 26, |area, buffer| stage(2).draw(area, buffer, PLAIN)));
}

#[test]
fn two_sides_at_240_columns() {
    insta::assert_snapshot!(drawn(240, 26, |area, buffer| stage(2).draw(area, buffer, PLAIN)));
}

#[test]
fn one_side_at_120_columns() {
    insta::assert_snapshot!(drawn(120, 26, |area, buffer| stage(1).draw(area, buffer, PLAIN)));
}
