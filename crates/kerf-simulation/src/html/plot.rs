//! Plots as SVG.

use std::fmt::Write;

use super::escaped;

/// A line.
pub(super) struct Series {
    pub(super) name: String,
    pub(super) colour: &'static str,
    pub(super) points: Vec<(f64, f64)>,
}

/// A dot with a name.
pub(super) struct Point {
    pub(super) name: String,
    pub(super) colour: &'static str,
    pub(super) x: f64,
    pub(super) y: f64,
}

pub(super) struct Axes {
    pub(super) x: &'static str,
    pub(super) y: &'static str,
}

/// How large a plot is, and what is left free around it for ticks and names. Drawn for 22 rem, so that text is readable on a
/// telephone.
#[derive(Clone, Copy)]
struct Paper {
    height: f64,
    left: f64,
    top: f64,
    right: f64,
}

const WIDTH: f64 = 352.0;
const BOTTOM: f64 = 32.0;
const SMALL: Paper = Paper { height: 170.0, left: 36.0, top: 18.0, right: 6.0 };
const LARGE: Paper = Paper { height: 290.0, left: 36.0, top: 18.0, right: 12.0 };
/// Names closer than this could not be read.
const LEADING: f64 = 13.0;

/// A plot for each of them, with the others behind it, all on the same axes. Lines are drawn once, by names that begin with `id`, and
/// used by the other plots: a page with nine policies would otherwise have each of them nine times.
pub(super) fn multiples(id: &str, series: &[Series], axes: &Axes) -> Vec<String> {
    let all = series.iter().flat_map(|one| one.points.iter().copied());
    let frame = Frame::around(SMALL, all, 0.04);
    let own = series.iter().enumerate().map(|(at, one)| {
        let mut svg = frame.open(axes, &one.name);
        if at == 0 {
            let paths = series.iter().enumerate();
            let paths = paths.map(|(number, one)| {
                format!("<path id=\"{id}-{number}\" d=\"{}\"/>", frame.path(&one.points))
            });
            let _ = writeln!(svg, "<defs>{}</defs>", paths.collect::<String>());
        }
        for other in (0..series.len()).filter(|other| *other != at) {
            let name = escaped(&series[other].name);
            let _ = writeln!(
                svg,
                "<use class=\"other\" href=\"#{id}-{other}\"><title>{name}</title></use>"
            );
        }
        let _ = writeln!(
            svg,
            "<use class=\"run\" href=\"#{id}-{at}\" style=\"--of:{}\"><title>{}</title></use>\n</svg>",
            one.colour,
            escaped(&one.name)
        );
        svg
    });
    own.collect()
}

/// Names stand on the side where there is room for them.
pub(super) fn scatter(points: &[Point], axes: &Axes) -> String {
    let frame = Frame::around(LARGE, points.iter().map(|point| (point.x, point.y)), 0.06);
    let mut svg = frame.open(axes, "all policies");
    // All together: a name on the left may reach as far as one on the right.
    let heights: Vec<f64> = points.iter().map(|point| frame.y(point.y)).collect();
    for (point, at) in points.iter().zip(spread(&heights, LARGE.height - BOTTOM)) {
        let (x, y) = (frame.x(point.x), frame.y(point.y));
        let (anchor, offset) = if x > WIDTH * 0.55 { ("end", -1.0) } else { ("start", 1.0) };
        let _ = writeln!(
            svg,
            "<path class=\"lead\" d=\"M{x:.1} {y:.1}L{:.1} {at:.1}\"/>\
             <circle class=\"dot\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"5\" style=\"--of:{}\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\">{}</text>",
            x + offset * 10.0,
            point.colour,
            x + offset * 12.0,
            at + 4.0,
            escaped(&point.name)
        );
    }
    svg.push_str("</svg>\n");
    svg
}

/// Moves heights apart until each has room for a name, as little as that takes, and keeps their order.
fn spread(heights: &[f64], lowest: f64) -> Vec<f64> {
    let mut order: Vec<usize> = (0..heights.len()).collect();
    order.sort_by(|a, b| heights[*a].total_cmp(&heights[*b]).then(a.cmp(b)));
    let mut placed = heights.to_vec();
    let mut last = f64::NEG_INFINITY;
    for index in &order {
        placed[*index] = placed[*index].max(last + LEADING);
        last = placed[*index];
    }
    // What was pushed out at the bottom is pushed back up.
    let mut next = lowest + LEADING;
    for index in order.iter().rev() {
        placed[*index] = placed[*index].min(next - LEADING);
        next = placed[*index];
    }
    placed
}

/// Where values lie on the paper.
struct Frame {
    paper: Paper,
    x: (f64, f64),
    y: (f64, f64),
}

impl Frame {
    /// Zero is always in it: a plot that cuts it off shows what is not there. `margin` is a share of the whole that is left
    /// free above.
    fn around(paper: Paper, points: impl Iterator<Item = (f64, f64)>, margin: f64) -> Self {
        let mut frame = Self { paper, x: (0.0, 0.0), y: (0.0, 0.0) };
        for (x, y) in points {
            frame.x = (frame.x.0.min(x), frame.x.1.max(x));
            frame.y = (frame.y.0.min(y), frame.y.1.max(y));
        }
        for (low, high) in [&mut frame.x, &mut frame.y] {
            if *high - *low <= 0.0 {
                *high = *low + 1.0;
            }
            *high += (*high - *low) * margin;
        }
        frame
    }

    fn x(&self, value: f64) -> f64 {
        let Paper { left, right, .. } = self.paper;
        left + (value - self.x.0) / (self.x.1 - self.x.0) * (WIDTH - left - right)
    }

    fn y(&self, value: f64) -> f64 {
        let Paper { height, top, .. } = self.paper;
        height - BOTTOM - (value - self.y.0) / (self.y.1 - self.y.0) * (height - BOTTOM - top)
    }

    fn path(&self, points: &[(f64, f64)]) -> String {
        let mut path = String::new();
        for (index, (x, y)) in points.iter().enumerate() {
            let command = if index == 0 { 'M' } else { 'L' };
            let _ = write!(path, "{command}{:.1} {:.1}", self.x(*x), self.y(*y));
        }
        path
    }

    fn open(&self, Axes { x, y }: &Axes, of: &str) -> String {
        let Paper { height, left, top, right } = self.paper;
        let of = escaped(of);
        let mut svg = format!(
            "<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{y} by {x}, {of}\">\n"
        );
        for value in ticks(self.y) {
            let _ = writeln!(
                svg,
                "<line class=\"grid\" x1=\"{left}\" x2=\"{}\" y1=\"{1:.1}\" y2=\"{1:.1}\"/>\
                 <text class=\"tick\" x=\"{2}\" y=\"{3:.1}\" text-anchor=\"end\">{4}</text>",
                WIDTH - right,
                self.y(value),
                left - 5.0,
                self.y(value) + 4.0,
                label(value)
            );
        }
        for value in ticks(self.x) {
            let _ = writeln!(
                svg,
                "<line class=\"grid\" x1=\"{0:.1}\" x2=\"{0:.1}\" y1=\"{1}\" y2=\"{2}\"/>\
                 <text class=\"tick\" x=\"{0:.1}\" y=\"{3}\" text-anchor=\"middle\">{4}</text>",
                self.x(value),
                height - BOTTOM,
                height - BOTTOM + 4.0,
                height - BOTTOM + 15.0,
                label(value)
            );
        }
        let _ = writeln!(
            svg,
            "<text class=\"tick\" x=\"{}\" y=\"{}\" text-anchor=\"end\">{x}</text>\
             <text class=\"tick\" x=\"2\" y=\"{}\">{y}</text>",
            WIDTH - right,
            height - 4.0,
            top - 8.0
        );
        svg
    }
}

/// Four to ten round values.
fn ticks((low, high): (f64, f64)) -> Vec<f64> {
    let rough = (high - low) / 5.0;
    let scale = 10_f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * scale);
    let step = step.into_iter().find(|step| *step >= rough).unwrap_or(rough);
    let first = (low / step).ceil();
    (0..12).map(|index| (first + f64::from(index)) * step).take_while(|v| *v <= high).collect()
}

fn label(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_moved_apart_and_keep_their_order() {
        for (heights, expected) in [
            (vec![50.0, 100.0], vec![50.0, 100.0]),
            (vec![100.0, 50.0, 52.0], vec![100.0, 50.0, 63.0]),
            (vec![288.0, 288.0, 288.0], vec![262.0, 275.0, 288.0]),
            (vec![280.0, 40.0, 288.0], vec![275.0, 40.0, 288.0]),
        ] {
            assert_eq!(spread(&heights, 288.0), expected, "{heights:?}");
        }
    }

    #[test]
    fn ticks_are_round_and_few() {
        for (range, expected) in [
            ((0.0, 24.0), vec!["0", "5", "10", "15", "20"]),
            ((0.0, 1.0), vec!["0", "0.2", "0.4", "0.6", "0.8", "1"]),
            ((-3.0, 7.0), vec!["-2", "0", "2", "4", "6"]),
        ] {
            let labels: Vec<_> = ticks(range).into_iter().map(label).collect();
            assert_eq!(labels, expected);
        }
    }
}
