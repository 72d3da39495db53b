//! The parts of a whole in one bar.

use std::fmt::Write;

use super::canvas::{Num, WIDTH};
use super::series::Hue;
use crate::components::{Escaped, Markup, Unit};

const HEIGHT: f64 = 24.0;
/// Parts with their own colour; the others are one part together.
const MAX_PARTS: usize = 5;

/// A bar of the largest parts of a whole, with a legend.
#[derive(Clone, Debug)]
#[must_use]
pub struct Shares {
    title: String,
    unit: Unit,
    parts: Vec<(String, f64)>,
}

impl Shares {
    pub fn new(title: impl Into<String>, unit: Unit) -> Self {
        Self { title: title.into(), unit, parts: Vec::new() }
    }

    /// A part; one that is not a positive number is left out.
    pub fn part(mut self, name: impl Into<String>, amount: f64) -> Self {
        if amount.is_finite() && amount > 0.0 {
            self.parts.push((name.into(), amount));
        }
        self
    }

    /// `None` without parts.
    #[must_use]
    pub fn render(&self) -> Option<Markup> {
        let whole: f64 = self.parts.iter().map(|(_, amount)| amount).sum();
        if !whole.is_finite() || whole <= 0.0 {
            return None;
        }
        let mut parts = self.parts.clone();
        parts.sort_by(|one, other| other.1.total_cmp(&one.1));
        if parts.len() > MAX_PARTS + 1 {
            let rest = parts.split_off(MAX_PARTS);
            let amount = rest.iter().map(|(_, amount)| amount).sum();
            parts.push((format!("{} others", rest.len()), amount));
        }
        let (mut marks, mut legend, mut summary) = (String::new(), String::new(), format!("{}:", self.title));
        let mut x = 0.0;
        for (index, (name, amount)) in parts.iter().enumerate() {
            let (class, share) = (Hue::Number(index).class(), Unit::Ratio.of(amount / whole));
            let (width, value, name) = (WIDTH * amount / whole, self.unit.of(*amount), Escaped(name));
            let _ = write!(
                marks,
                r#"<g class="{class} hit-part"><rect class="fill" x="{}" y="0" width="{}" height="{HEIGHT}"><title>{name}\n{value} ({share})</title></rect></g>"#,
                Num(x),
                Num((width - 1.0).max(0.5))
            );
            let _ = write!(
                legend,
                r#"<li><svg class="{class} swatch" width="14" height="10" aria-hidden="true"><path class="line" d="M2 5h10"/></svg>{name} <b>{value}</b> {share}</li>"#
            );
            let _ = write!(summary, " {name} {value}, {share}.");
            x += width;
        }
        let title = Escaped(&self.title);
        let total = self.unit.of(whole);
        Some(Markup::trusted(format!(
            r#"<figure class="chart shares"><figcaption><span class="chart-title">{title}</span> <span class="quiet">{total} in all</span></figcaption><svg width="100%" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}" preserveAspectRatio="none" role="img" aria-label="{summary}">{marks}</svg><ul class="legend">{legend}</ul></figure>"#
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_parts_are_shown_together() {
        let bar = (0..9)
            .fold(Shares::new("Memory", Unit::Bytes), |bar, part| bar.part(format!("<{part}>"), 1024.0));
        let html = bar.render().unwrap().to_string();
        assert!(
            html.contains("4 others") && html.contains("&lt;0&gt;") && html.contains("9\u{a0}KiB in all"),
            "{html}"
        );
        assert_eq!(html.matches("<rect").count(), 6);
    }

    #[test]
    fn without_parts_there_is_no_bar() {
        assert_eq!(Shares::new("Memory", Unit::Bytes).part("a", 0.0).part("b", f64::NAN).render(), None);
    }
}
