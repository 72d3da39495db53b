//! The samples as a page of small line charts.

use std::fmt::Write as _;

use super::sample::{SERIES, Sample, Series};

const WIDTH: f64 = 380.0;
const HEIGHT: f64 = 110.0;
/// Space for the title above a chart, and between charts.
const GAP: f64 = 34.0;
const COLUMNS: usize = 2;

/// An SVG image with one chart for each series, from zero to its maximum.
pub(super) fn svg(samples: &[Sample]) -> String {
    let rows = SERIES.len().div_ceil(COLUMNS);
    let (width, height) = (COLUMNS as f64 * (WIDTH + GAP) + GAP, rows as f64 * (HEIGHT + GAP) + GAP);
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n"
    );
    for (number, series) in SERIES.iter().enumerate() {
        let x = GAP + (number % COLUMNS) as f64 * (WIDTH + GAP);
        let y = GAP + (number / COLUMNS) as f64 * (HEIGHT + GAP);
        chart(&mut text, series, samples, x, y);
    }
    text.push_str("</svg>\n");
    text
}

fn chart(text: &mut String, series: &Series, samples: &[Sample], x: f64, y: f64) {
    let end = samples.last().map_or(1.0, |last| last.at.as_secs_f64()).max(1.0);
    let values: Vec<f64> = samples.iter().map(|sample| (series.value)(sample)).collect();
    let max = values.iter().copied().fold(1.0, f64::max);
    let points: Vec<String> = samples
        .iter()
        .zip(&values)
        .map(|(sample, value)| {
            let (across, up) = (sample.at.as_secs_f64() / end * WIDTH, value / max * HEIGHT);
            format!("{:.1},{:.1}", x + across, y + HEIGHT - up)
        })
        .collect();
    let unit = if series.unit.is_empty() { String::new() } else { format!(" {}", series.unit) };
    let _ = writeln!(
        text,
        "<text x=\"{x}\" y=\"{}\">{}: up to {max:.0}{unit}, {:.0} minutes</text>\n\
         <rect x=\"{x}\" y=\"{y}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"none\" stroke=\"#bbb\"/>\n\
         <polyline points=\"{}\" fill=\"none\" stroke=\"#1f6feb\" stroke-width=\"1.5\"/>",
        y - 6.0,
        series.name,
        end / 60.0,
        points.join(" ")
    );
}
