//! The parts that all charts share: the caption with its legend, the labels, the grid, and the columns with tooltips.

use std::fmt::Write;

use super::axis::{Tick, TimeAxis, ValueAxis};
use super::canvas::{Num, WIDTH};
use super::series::{Hue, Series};
use crate::components::{Escaped, Markup, Unit};

/// The default height of a plot, in pixels.
pub(super) const HEIGHT: f64 = 160.0;

/// Space above the plot for the upper half of its highest label.
const HEAD: f64 = 8.0;
/// Space below the plot for the labels of the lower axis.
const FOOT: f64 = 22.0;
/// The width of the labels at the left.
const LEFT: u32 = 58;

/// The most columns with tooltips.
const MAX_COLUMNS: usize = 120;

/// The most rows of the table of values, and the most values in it. If there are more columns, some are left out at equal
/// distances.
const MAX_TABLE_ROWS: usize = 24;
const MAX_TABLE_VALUES: usize = 96;

/// A chart without its marks.
#[derive(Debug)]
pub(super) struct Frame {
    pub(super) title: String,
    /// The text alternative.
    pub(super) summary: String,
    pub(super) height: f64,
    pub(super) left: Left,
    /// Labels below, from the left.
    pub(super) below: Vec<Tick>,
    /// Names that are shown in the plot.
    pub(super) notes: Vec<Note>,
    pub(super) legend: Vec<Key>,
    /// What the columns show, and what the table of values calls their labels.
    pub(super) columns: (&'static str, Vec<Column>),
    /// The text of an empty chart.
    pub(super) nothing: Option<&'static str>,
}

/// Labels at the left, from below.
#[derive(Debug)]
pub(super) enum Left {
    /// Values, each with a line across the plot.
    Scale(Vec<Tick>),
    /// Names of rows.
    Rows(Vec<Tick>),
}

/// A name next to the item that it belongs to.
#[derive(Debug)]
pub(super) struct Note {
    /// The position from the left, 0 to 1. A name at the right edge ends there.
    pub(super) x: f64,
    /// Pixels from above.
    pub(super) y: f64,
    pub(super) text: String,
}

/// A name in the legend.
#[derive(Debug)]
pub(super) struct Key {
    pub(super) name: String,
    pub(super) class: String,
    /// The latest value or the total, if there is one.
    pub(super) value: Option<String>,
}

/// A part of the plot with a tooltip.
#[derive(Debug, PartialEq)]
pub(super) struct Column {
    pub(super) from: f64,
    pub(super) to: f64,
    /// The time, or the range of values.
    pub(super) label: String,
    /// Names and values.
    pub(super) values: Vec<(String, String)>,
}

impl Column {
    /// The tooltip.
    fn text(&self) -> String {
        let mut text = self.label.clone();
        for (name, value) in &self.values {
            let space = if name.is_empty() || value.is_empty() { "" } else { "  " };
            let _ = write!(text, "\n{name}{space}{value}");
        }
        text
    }
}

impl Frame {
    /// The complete chart around its marks, which are already SVG.
    pub(super) fn render(&self, marks: &str) -> Markup {
        let mut html = String::with_capacity(marks.len() + 4096);
        // Writing into a string cannot fail.
        let _ = self.write(&mut html, marks);
        Markup::trusted(html)
    }

    fn write(&self, html: &mut String, marks: &str) -> std::fmt::Result {
        let (height, whole) = (Num(self.height), Num(HEAD + self.height + FOOT));
        write!(html, r#"<figure class="chart">"#)?;
        self.caption(html)?;
        write!(
            html,
            r#"<div class="chart-body"><svg class="chart-left" width="{LEFT}" height="{whole}" aria-hidden="true">"#
        )?;
        let (Left::Scale(labels) | Left::Rows(labels)) = &self.left;
        for tick in labels {
            let y = Num(HEAD + self.height * (1.0 - tick.at) + 4.0);
            write!(html, r#"<text class="tick" x="{}" y="{y}">{}</text>"#, LEFT - 8, Escaped(&tick.label))?;
        }
        write!(
            html,
            r#"</svg><svg class="chart-plot" width="100%" height="{whole}" tabindex="0" role="img" aria-label="{}">"#,
            Escaped(&self.summary)
        )?;
        self.lines(html)?;
        write!(
            html,
            r#"<svg x="0" y="{HEAD}" width="100%" height="{height}" viewBox="0 0 {WIDTH} {height}" preserveAspectRatio="none">{marks}</svg>"#
        )?;
        self.labels_below(html)?;
        self.names(html)?;
        write!(html, "</svg></div>")?;
        self.table(html)?;
        write!(html, "</figure>")
    }

    /// The values as a table, for screen readers and without scripts.
    fn table(&self, html: &mut String) -> std::fmt::Result {
        let (label, columns) = &self.columns;
        let shown = columns.iter().filter(|column| !column.values.is_empty());
        let shown: Vec<&Column> = shown.collect();
        if shown.is_empty() {
            return Ok(());
        }
        let mut names: Vec<&str> = Vec::new();
        for (name, _) in shown.iter().flat_map(|column| &column.values) {
            if !names.contains(&name.as_str()) {
                names.push(name);
            }
        }
        let most = (MAX_TABLE_VALUES / names.len().max(1)).clamp(4, MAX_TABLE_ROWS);
        let every = shown.len().div_ceil(most);
        // The last one is always shown.
        let rows: Vec<&Column> = shown.iter().rev().step_by(every).rev().copied().collect();
        write!(
            html,
            r#"<details class="chart-data"><summary>Values</summary><div class="table"><table><thead><tr><th>{label}</th>"#
        )?;
        for name in &names {
            let name = if name.is_empty() { "Value" } else { name };
            write!(html, "<th>{}</th>", Escaped(name))?;
        }
        write!(html, "</tr></thead><tbody>")?;
        for column in rows {
            write!(html, r#"<tr><th scope="row">{}</th>"#, Escaped(&column.label))?;
            for name in &names {
                let value = column.values.iter().find(|(of, _)| of == name).map_or("–", |(_, value)| value);
                write!(html, "<td>{}</td>", Escaped(value))?;
            }
            write!(html, "</tr>")?;
        }
        write!(html, "</tbody></table></div></details>")
    }

    /// The grid. Zero is its lowest line.
    fn lines(&self, html: &mut String) -> std::fmt::Result {
        let Left::Scale(ticks) = &self.left else { return Ok(()) };
        for tick in ticks {
            let y = Num(HEAD + self.height * (1.0 - tick.at));
            let class = if tick.label == "0" { "rule zero" } else { "rule" };
            write!(html, r#"<line class="{class}" x1="0" x2="100%" y1="{y}" y2="{y}"/>"#)?;
        }
        Ok(())
    }

    fn names(&self, html: &mut String) -> std::fmt::Result {
        for Note { x, y, text } in &self.notes {
            let (class, dx) = if *x > 0.85 { ("note last", -5) } else { ("note", 5) };
            let (x, y, text) = (Num(x * 100.0), Num(HEAD + y), Escaped(text));
            write!(html, r#"<text class="{class}" x="{x}%" dx="{dx}" y="{y}">{text}</text>"#)?;
        }
        if let Some(nothing) = self.nothing {
            let y = Num(HEAD + self.height / 2.0);
            write!(html, r#"<text class="nothing" x="50%" y="{y}">{nothing}</text>"#)?;
        }
        Ok(())
    }

    fn caption(&self, html: &mut String) -> std::fmt::Result {
        if self.title.is_empty() && self.legend.is_empty() {
            return Ok(());
        }
        write!(html, "<figcaption>")?;
        if !self.title.is_empty() {
            write!(html, r#"<span class="chart-title">{}</span>"#, Escaped(&self.title))?;
        }
        if !self.legend.is_empty() {
            write!(html, r#"<ul class="legend">"#)?;
            for key in &self.legend {
                write!(
                    html,
                    r#"<li><svg class="{}" width="14" height="10" aria-hidden="true"><path class="line" d="M2 5h10"/></svg>{}"#,
                    key.class,
                    Escaped(&key.name)
                )?;
                if let Some(value) = &key.value {
                    write!(html, " <b>{}</b>", Escaped(value))?;
                }
                write!(html, "</li>")?;
            }
            write!(html, "</ul>")?;
        }
        write!(html, "</figcaption>")
    }

    /// Every second label can be omitted on narrow screens.
    fn labels_below(&self, html: &mut String) -> std::fmt::Result {
        let y = Num(HEAD + self.height + FOOT - 6.0);
        for (index, tick) in self.below.iter().enumerate() {
            let edge = match tick.at {
                at if at < 0.03 => " first",
                at if at > 0.97 => " last",
                _ => "",
            };
            let odd = if index % 2 == 1 { " odd" } else { "" };
            let (x, label) = (Num(tick.at * 100.0), Escaped(&tick.label));
            write!(html, r#"<text class="tick below{edge}{odd}" x="{x}%" y="{y}">{label}</text>"#)?;
        }
        Ok(())
    }
}

/// The columns of several series over time. There is one column for every time at which any series has a point; if
/// there are too many, the columns have equal width.
pub(super) fn columns(series: &[Series], axis: &TimeAxis, unit: Unit) -> Vec<Column> {
    let mut moments: Vec<u64> =
        series.iter().flat_map(|series| series.points_in(axis).map(|point| point.at_ms)).collect();
    moments.sort_unstable();
    moments.dedup();
    if moments.len() > MAX_COLUMNS {
        let column = |at_ms: u64| (axis.x(at_ms) / WIDTH * MAX_COLUMNS as f64) as usize;
        moments = moments
            .chunk_by(|a, b| column(*a) == column(*b))
            .filter_map(|crowd| crowd.last().copied())
            .collect();
    }
    let xs: Vec<f64> = moments.iter().map(|at_ms| axis.x(*at_ms)).collect();
    let mut readers: Vec<_> =
        series.iter().map(|series| (series, series.points_in(axis).peekable())).collect();
    let mut columns = Vec::with_capacity(moments.len());
    for (index, at_ms) in moments.iter().enumerate() {
        let from = if index == 0 { 0.0 } else { xs[index - 1].midpoint(xs[index]) };
        let to = xs.get(index + 1).map_or(WIDTH, |next| xs[index].midpoint(*next));
        let (label, mut values) = (axis.moment(*at_ms), Vec::new());
        for (series, reader) in &mut readers {
            let mut latest = None;
            while let Some(point) = reader.next_if(|point| point.at_ms <= *at_ms) {
                latest = Some(point);
            }
            if let Some(point) = latest {
                let value = unit.of(point.value.unwrap_or(f64::NAN));
                values.push((series.name.clone(), value.to_string()));
            }
        }
        columns.push(Column { from, to, label, values });
    }
    columns
}

/// The columns as SVG. A column is visible only while the pointer is over it.
pub(super) fn draw_columns(svg: &mut String, columns: &[Column], height: f64) {
    for column in columns {
        let (x, width) = (Num(column.from), Num(column.to - column.from));
        let text = Escaped(column.text());
        let _ = write!(
            svg,
            r#"<rect class="hit" x="{x}" width="{width}" height="{}"><title>{text}</title></rect>"#,
            Num(height)
        );
    }
}

/// `p99: latest 34 ms, between 12 ms and 80 ms` for each series.
pub(super) fn summary(title: &str, series: &[Series], axis: &TimeAxis, unit: Unit) -> String {
    let mut text = format!("{}{}{}.", title, if title.is_empty() { "" } else { ", " }, axis.words());
    for series in series {
        let (mut least, mut most, mut latest) = (f64::INFINITY, f64::NEG_INFINITY, None);
        for value in series.values_in(axis) {
            (least, most, latest) = (least.min(value), most.max(value), Some(value));
        }
        let _ = match latest {
            None => write!(text, " {}: no data.", series.name),
            Some(latest) => write!(
                text,
                " {}: latest {}, between {} and {}.",
                series.name,
                unit.of(latest),
                unit.of(least),
                unit.of(most)
            ),
        };
    }
    text
}

/// The legend of the series, each with its latest value. A single series without a name has no legend.
pub(super) fn legend(series: &[Series], axis: &TimeAxis, unit: Unit) -> Vec<Key> {
    let named = series.iter().filter(|series| !series.name.is_empty());
    let key = |series: &Series| Key {
        name: series.name.clone(),
        class: series.hue.class(),
        value: series
            .points_in(axis)
            .last()
            .map(|point| unit.of(point.value.unwrap_or(f64::NAN)).to_string()),
    };
    named.map(key).collect()
}

/// A horizontal limit.
#[derive(Clone, Debug)]
pub(super) struct Limit {
    pub(super) name: String,
    pub(super) value: f64,
}

/// The hue of a chart's next series: what has the same name has the same colour in every chart.
pub(super) fn hue_of(name: &str, series: &[Series]) -> Hue {
    let is_free = |hue: &Hue| !series.iter().any(|series| series.hue == *hue);
    let fixed = Hue::of_name(name).filter(is_free);
    fixed.or_else(|| (0..).map(Hue::Number).find(is_free)).unwrap_or(Hue::Number(0))
}

/// The limits as SVG, and their names.
pub(super) fn draw_limits(
    svg: &mut String,
    limits: &[Limit],
    axis: &ValueAxis,
    unit: Unit,
    height: f64,
) -> Vec<Note> {
    let mut notes = Vec::new();
    for limit in limits {
        let y = axis.y(limit.value, height);
        let text = format!("{} {}", limit.name, unit.of(limit.value));
        let _ = write!(svg, r#"<path class="limit" d="M0 {}H{WIDTH}"/>"#, Num(y));
        // Above its line, or below it if there is no space above.
        notes.push(Note { x: 1.0, y: if y > 14.0 { y - 5.0 } else { y + 13.0 }, text });
    }
    notes
}
