//! Properties of every chart, for any input.

use proptest::prelude::*;

use super::*;
use crate::components::{Markup, Tone};

/// A chart of the size that pages use is never larger than this, whatever it shows.
const MAX_BYTES: usize = 320 * 1024;

const UNITS: [Unit; 6] =
    [Unit::Count, Unit::PerSecond, Unit::Millis, Unit::Bytes, Unit::BytesPerSecond, Unit::Ratio];

/// Usual and unusual times.
fn moments() -> impl Strategy<Value = u64> {
    prop_oneof![0..100_000_u64, 1_763_208_000_000..1_763_300_000_000_u64, any::<u64>()]
}

fn values() -> impl Strategy<Value = f64> {
    prop_oneof![any::<f64>(), -1e3..1e6, Just(0.0), Just(f64::NAN), Just(f64::INFINITY)]
}

fn points() -> impl Strategy<Value = Vec<(u64, f64)>> {
    prop::collection::vec((moments(), values()), 0..200)
}

fn assert_sound(chart: &Markup) {
    let svg = chart.as_str();
    assert!(svg.len() <= MAX_BYTES, "{} bytes", svg.len());
    for bad in ["NaN", "inf", "style=", "<script", "javascript:", "<b>x"] {
        assert!(!svg.contains(bad), "{bad} in {svg}");
    }
    assert_eq!(svg.matches("<svg").count(), svg.matches("</svg>").count());
    assert!(svg.contains(r#"role="img" aria-label=""#), "{svg}");
}

/// A name that would become markup, or would break out of its attribute, if it were not escaped.
const EVIL: &str = "<script>\"'><b>x</b>&";

proptest! {
    #[test]
    fn any_line_is_sound(
        start in moments(), end in moments(), all in prop::collection::vec(points(), 0..15), unit in 0..6_usize,
        limit in values(), step in prop::option::of(any::<u64>()),
    ) {
        let mut line = Line::area(start..end).title(EVIL).unit(UNITS[unit]).limit(EVIL, limit);
        if let Some(step) = step {
            line = line.every(step).zoomed();
        }
        for points in all {
            line = line.series(EVIL, points);
        }
        line = line.band(end..start, Tone::Bad, EVIL).band(start..end, Tone::Warn, EVIL);
        assert_sound(&line.render());
    }

    #[test]
    fn any_bars_are_sound(
        start in moments(), end in moments(), step in any::<u64>(), all in prop::collection::vec(points(), 0..8),
        unit in 0..6_usize,
    ) {
        let mut bars = Bars::new(start..end, step).title(EVIL).unit(UNITS[unit]);
        for points in all {
            bars = bars.series(EVIL, points);
        }
        assert_sound(&bars.render());
    }

    #[test]
    fn any_heat_map_is_sound(
        start in moments(), end in moments(), step in any::<u64>(), rows in 0..60_usize,
        cells in prop::collection::vec((moments(), 0..80_usize, any::<u64>()), 0..300),
    ) {
        let mut map = HeatMap::new(start..end, step, vec![EVIL; rows]).title(EVIL);
        for (at_ms, row, count) in cells {
            map = map.count(at_ms, row, count);
        }
        assert_sound(&map.render());
    }

    #[test]
    fn any_histogram_is_sound(
        bins in prop::collection::vec((values(), values(), any::<u64>()), 0..200),
        marks in prop::collection::vec(values(), 0..20), unit in 0..6_usize,
    ) {
        let mut histogram = Histogram::new(UNITS[unit]).title(EVIL);
        for (from, to, count) in bins {
            histogram = histogram.bin(from..to, count);
        }
        for value in marks {
            histogram = histogram.mark(EVIL, value);
        }
        assert_sound(&histogram.render());
    }

    #[test]
    fn any_spark_is_sound(values in prop::collection::vec(values(), 0..600)) {
        assert_sound(&Spark::new(EVIL, Unit::Millis, values).render());
    }

    #[test]
    fn any_heartbeat_is_sound(
        beats in prop::collection::vec((moments(), 0..4_usize, prop::option::of(values())), 0..300),
    ) {
        let pulses = [Pulse::Up, Pulse::Slow, Pulse::Down, Pulse::Silent];
        let beat = |(at_ms, pulse, latency_ms): (u64, usize, Option<f64>)| {
            Beat { at_ms, pulse: pulses[pulse], latency_ms, note: EVIL.to_owned() }
        };
        assert_sound(&Heartbeat::new(EVIL, beats.into_iter().map(beat)).render());
    }
}

#[test]
fn full_chart_stays_small() {
    let points = |phase: u64| (0..50_000_u64).map(move |at| (at, ((at * phase) % 977) as f64));
    let mut line = Line::area(0..50_000).title("full");
    for phase in 1..=MAX_SERIES as u64 + 3 {
        line = line.series("a name that is longer than the names of series usually are", points(phase));
    }
    let svg = line.render();
    assert!(svg.as_str().len() <= MAX_BYTES, "{}", svg.as_str().len());
}

#[test]
fn gap_interrupts_the_line() {
    let whole = Line::new(0..100).series("a", (0..10).map(|at| (at * 10, 1.0))).render();
    let holed = Line::new(0..100).series("a", (0..10).map(|at| (at * 10, (at != 5).then_some(1.0)))).render();
    let starts = |chart: &Markup| {
        let line = chart.as_str().split(r#"s0 line" d=""#).nth(1).unwrap();
        line.split('"').next().unwrap().matches('M').count()
    };
    assert_eq!((starts(&whole), starts(&holed)), (1, 2));
}

#[test]
fn tooltip_shows_every_series() {
    let svg = Line::new(0..100_000)
        .unit(Unit::Millis)
        .series("p50", [(50_000, 12.0)])
        .series("p99", [(50_000, 80.0)])
        .render();
    assert!(svg.as_str().contains("Jan 1 00:00:50 UTC\np50  12\u{a0}ms\np99  80\u{a0}ms</title>"), "{svg}");
}

#[test]
fn values_are_also_in_a_table() {
    let points = (0..1000).map(|at| (at * 100, at as f64));
    let svg = Line::new(0..100_000).series("p50", points).series("<b>", [(99_900, 7.0)]).render();
    let table = svg.as_str().split("<tbody>").nth(1).unwrap();
    assert!((20..=24).contains(&table.matches("<tr>").count()), "{table}");
    assert!(
        table.ends_with("<td>999</td><td>7</td></tr></tbody></table></div></details></figure>"),
        "{table}"
    );
    assert!(svg.as_str().contains("<th>&lt;b&gt;</th>"), "{svg}");
}

#[test]
fn same_name_has_the_same_colour_in_every_chart() {
    let colour = |names: &[&str], of: &str| {
        let line = names.iter().fold(Line::new(0..9), |line, name| line.series(name, [(1, 1.0)]));
        let html = line.render().to_string();
        let legend = html.split(&format!("</svg>{of} <b>")).next().unwrap().to_owned();
        legend.rsplit("<svg class=\"").next().unwrap()[..2].to_owned()
    };
    assert_eq!(colour(&["p50", "p99"], "p99"), colour(&["p50", "p90", "p99"], "p99"));
    assert_eq!(colour(&["other", "p50"], "p50"), "s1", "a colour that is taken is not used twice");
}

#[test]
fn amounts_of_one_step_are_added_up() {
    let svg = Bars::new(0..60_000, 60_000).series("5xx", [(1, 2.0), (2, 3.0)]).render();
    assert!(svg.as_str().contains("\n5xx  5</title>"), "{svg}");
}

#[test]
fn empty_chart_has_a_message() {
    assert!(Line::new(0..100).render().as_str().contains("No data in this time"));
    assert!(Histogram::new(Unit::Millis).render().as_str().contains("No values yet"));
    assert!(Spark::new("Requests", Unit::Count, Vec::<f64>::new()).render().as_str().contains("no data yet"));
}
