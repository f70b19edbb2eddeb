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

const WIDTH: f64 = 1000.0;
const HEIGHT: f64 = 330.0;
const LEFT: f64 = 56.0;
const BOTTOM: f64 = 42.0;
const TOP: f64 = 26.0;
/// Names stand beside the ends of their lines.
const RIGHT: f64 = 215.0;
/// Names closer than this could not be read.
const LEADING: f64 = 15.0;

pub(super) fn lines(series: &[Series], axes: &Axes) -> String {
    let frame = Frame::around(series.iter().flat_map(|one| one.points.iter().copied()), 0.0);
    let mut svg = frame.open(axes);
    for one in series {
        let mut path = String::new();
        for (index, (x, y)) in one.points.iter().enumerate() {
            let command = if index == 0 { 'M' } else { 'L' };
            let _ = write!(path, "{command}{:.1} {:.1}", frame.x(*x), frame.y(*y));
        }
        let _ = writeln!(
            svg,
            "<path class=\"run\" d=\"{path}\" stroke=\"{}\"><title>{}</title></path>",
            one.colour,
            escaped(&one.name)
        );
    }
    let ends: Vec<_> = series.iter().filter_map(|one| one.points.last()).collect();
    let ends: Vec<f64> = ends.into_iter().map(|(_, y)| frame.y(*y)).collect();
    let from = WIDTH - RIGHT;
    for ((one, end), at) in series.iter().zip(&ends).zip(spread(&ends)) {
        let _ = writeln!(
            svg,
            "<path class=\"lead\" d=\"M{:.1} {end:.1}L{:.1} {at:.1}\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" style=\"fill:{}\">{}</text>",
            from + 2.0,
            from + 18.0,
            from + 22.0,
            at + 4.0,
            one.colour,
            escaped(&one.name)
        );
    }
    svg.push_str("</svg>\n");
    svg
}

pub(super) fn scatter(points: &[Point], axes: &Axes) -> String {
    let frame = Frame::around(points.iter().map(|point| (point.x, point.y)), 0.06);
    let mut svg = frame.open(axes);
    let heights: Vec<f64> = points.iter().map(|point| frame.y(point.y)).collect();
    for (point, at) in points.iter().zip(spread(&heights)) {
        let (x, y) = (frame.x(point.x), frame.y(point.y));
        let _ = writeln!(
            svg,
            "<path class=\"lead\" d=\"M{x:.1} {y:.1}L{:.1} {at:.1}\"/>\
             <circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"5.5\" fill=\"{}\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" style=\"fill:{}\">{}</text>",
            x + 14.0,
            point.colour,
            x + 17.0,
            at + 4.0,
            point.colour,
            escaped(&point.name)
        );
    }
    svg.push_str("</svg>\n");
    svg
}

/// Moves heights apart until each has room for a name, as little as that takes, and keeps their order.
fn spread(heights: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..heights.len()).collect();
    order.sort_by(|a, b| heights[*a].total_cmp(&heights[*b]).then(a.cmp(b)));
    let mut placed = heights.to_vec();
    let mut last = f64::NEG_INFINITY;
    for index in &order {
        placed[*index] = placed[*index].max(last + LEADING);
        last = placed[*index];
    }
    // What was pushed out at the bottom is pushed back up.
    let mut next = HEIGHT - BOTTOM + LEADING;
    for index in order.iter().rev() {
        placed[*index] = placed[*index].min(next - LEADING);
        next = placed[*index];
    }
    placed
}

/// Where values lie on the paper.
struct Frame {
    x: (f64, f64),
    y: (f64, f64),
}

impl Frame {
    /// Zero is always in it: a plot that cuts it off shows what is not there. `margin` is a share of the whole that is left
    /// free above.
    fn around(points: impl Iterator<Item = (f64, f64)>, margin: f64) -> Self {
        let mut frame = Self { x: (0.0, 0.0), y: (0.0, 0.0) };
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
        LEFT + (value - self.x.0) / (self.x.1 - self.x.0) * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, value: f64) -> f64 {
        HEIGHT - BOTTOM - (value - self.y.0) / (self.y.1 - self.y.0) * (HEIGHT - BOTTOM - TOP)
    }

    fn open(&self, Axes { x, y }: &Axes) -> String {
        let mut svg = format!(
            "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{y} by {x}\">\n"
        );
        for value in ticks(self.y) {
            let _ = writeln!(
                svg,
                "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{}\" y1=\"{1:.1}\" y2=\"{1:.1}\"/>\
                 <text class=\"tick\" x=\"{2}\" y=\"{3:.1}\" text-anchor=\"end\">{4}</text>",
                WIDTH - RIGHT,
                self.y(value),
                LEFT - 8.0,
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
                HEIGHT - BOTTOM,
                HEIGHT - BOTTOM + 5.0,
                HEIGHT - BOTTOM + 19.0,
                label(value)
            );
        }
        let _ = writeln!(
            svg,
            "<text class=\"tick\" x=\"{}\" y=\"{}\" text-anchor=\"end\">{x}</text>\
             <text class=\"tick\" x=\"{}\" y=\"{}\">{y}</text>",
            WIDTH - RIGHT,
            HEIGHT - 6.0,
            LEFT - 40.0,
            TOP - 12.0
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
            (vec![100.0, 50.0, 52.0], vec![100.0, 50.0, 65.0]),
            (vec![288.0, 288.0, 288.0], vec![258.0, 273.0, 288.0]),
            (vec![280.0, 40.0, 288.0], vec![273.0, 40.0, 288.0]),
        ] {
            assert_eq!(spread(&heights), expected, "{heights:?}");
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
