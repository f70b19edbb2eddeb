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

const WIDTH: f64 = 1000.0;
const HEIGHT: f64 = 320.0;
const LEFT: f64 = 60.0;
const BOTTOM: f64 = 40.0;
const TOP: f64 = 12.0;
const RIGHT: f64 = 12.0;

pub(super) fn lines(series: &[Series], x: &str, y: &str) -> String {
    let all = || series.iter().flat_map(|one| one.points.iter().copied());
    let frame = Frame::around(all());
    let mut svg = frame.open(x, y);
    for one in series {
        let mut path = String::new();
        for (index, (x, y)) in one.points.iter().enumerate() {
            let command = if index == 0 { 'M' } else { 'L' };
            let _ = write!(path, "{command}{:.1} {:.1}", frame.x(*x), frame.y(*y));
        }
        let _ = writeln!(
            svg,
            "<path d=\"{path}\" fill=\"none\" stroke=\"{}\" stroke-width=\"1.6\"><title>{}</title></path>",
            one.colour,
            escaped(&one.name)
        );
    }
    svg.push_str("</svg>\n");
    svg
}

pub(super) fn scatter(points: &[Point], x: &str, y: &str) -> String {
    let frame = Frame::around(points.iter().map(|point| (point.x, point.y)));
    let mut svg = frame.open(x, y);
    for point in points {
        let (x, y, colour, name) =
            (frame.x(point.x), frame.y(point.y), point.colour, escaped(&point.name));
        // Names at the right edge are written to the left of their dot.
        let (at, anchor) = if x > WIDTH - 200.0 { (x - 10.0, "end") } else { (x + 10.0, "start") };
        let _ = writeln!(
            svg,
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"5\" fill=\"{colour}\"/>\
             <text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\">{name}</text>",
            y + 4.0
        );
    }
    svg.push_str("</svg>\n");
    svg
}

/// Where values lie on the paper.
struct Frame {
    x: (f64, f64),
    y: (f64, f64),
}

impl Frame {
    /// Zero is always in it: a plot that cuts it off shows what is not there.
    fn around(points: impl Iterator<Item = (f64, f64)>) -> Self {
        let mut frame = Self { x: (0.0, 0.0), y: (0.0, 0.0) };
        for (x, y) in points {
            frame.x = (frame.x.0.min(x), frame.x.1.max(x));
            frame.y = (frame.y.0.min(y), frame.y.1.max(y));
        }
        for (low, high) in [&mut frame.x, &mut frame.y] {
            if *high - *low <= 0.0 {
                *high = *low + 1.0;
            }
        }
        frame
    }

    fn x(&self, value: f64) -> f64 {
        LEFT + (value - self.x.0) / (self.x.1 - self.x.0) * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, value: f64) -> f64 {
        HEIGHT - BOTTOM - (value - self.y.0) / (self.y.1 - self.y.0) * (HEIGHT - BOTTOM - TOP)
    }

    fn open(&self, x: &str, y: &str) -> String {
        let mut svg = format!("<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\">\n");
        for value in ticks(self.y) {
            let _ = writeln!(
                svg,
                "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{}\" y1=\"{1:.1}\" y2=\"{1:.1}\"/>\
                 <text x=\"{2}\" y=\"{3:.1}\" text-anchor=\"end\">{4}</text>",
                WIDTH - RIGHT,
                self.y(value),
                LEFT - 6.0,
                self.y(value) + 4.0,
                label(value)
            );
        }
        for value in ticks(self.x) {
            let _ = writeln!(
                svg,
                "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
                self.x(value),
                HEIGHT - BOTTOM + 16.0,
                label(value)
            );
        }
        let _ = writeln!(
            svg,
            "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{x}</text>\
             <text x=\"{LEFT}\" y=\"{TOP}\" dx=\"6\">{y}</text>",
            WIDTH - RIGHT,
            HEIGHT - 6.0
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
