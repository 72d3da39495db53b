//! Prints a page with every chart and every part of the look, to be seen in a browser:
//!
//!     cargo run -p hob-web --example gallery > gallery.html
//!
//! A browser test photographs the same.

use std::f64::consts::PI;

use hob_web::chart::{Bars, Beat, Heartbeat, HeatMap, Histogram, Line, Pulse, Spark, Unit};
use hob_web::components::{Choice, Empty, Facts, Field, Markup, Pager, Quantity, RelativeTime, Tone};

const NOON: u64 = 1_763_208_000_000;
const MINUTE: u64 = 60_000;
const HOUR: u64 = 60 * MINUTE;

#[expect(clippy::print_stdout, reason = "the page is what it is for")]
#[allow(dead_code, reason = "a test takes the gallery alone")]
fn main() {
    let style = include_str!("../assets/hob.css");
    println!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>Gallery</title><style>{style}</style>\
         <main class=\"page\"><h1>Gallery</h1>{}</main>",
        gallery()
    );
}

/// The gallery's body.
pub(crate) fn gallery() -> Markup {
    let panels: Vec<String> = [
        ("Lines with a gap, an incident and an objective", latency().to_string()),
        ("Areas", traffic().to_string()),
        ("Stacked bars", statuses().to_string()),
        ("Heat map", heat().to_string()),
        ("Histogram with marks", histogram().to_string()),
        ("A narrow part, and more series than colours", many().to_string()),
        ("Nothing yet", Line::new(NOON..NOON + HOUR).title("Requests").render().to_string()),
        ("Small ones", small()),
        ("States and numbers", states()),
        ("Facts", facts()),
        ("A form", form()),
        ("Empty", empty()),
    ]
    .iter()
    .map(|(title, html)| format!(r#"<section class="panel"><h2>{title}</h2>{html}</section>"#))
    .collect();
    Markup::trusted(format!(r#"<div class="grid">{}</div>"#, panels.concat()))
}

/// Noise that is the same every time.
fn noise(seed: u64) -> f64 {
    let mixed = (seed ^ (seed >> 13)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    ((mixed ^ (mixed >> 31)) % 1000) as f64 / 1000.0
}

fn minutes() -> impl Iterator<Item = (u64, f64)> {
    (0..180).map(|minute| (NOON + minute * MINUTE, minute as f64))
}

fn latency() -> Markup {
    let wave = |base: f64, seed: u64| {
        minutes().map(move |(at_ms, minute)| {
            let value = base * (1.0 + 0.3 * (minute / 40.0 * PI).sin() + 0.25 * noise(seed + at_ms / MINUTE));
            let spike = if (120.0..132.0).contains(&minute) { 2.4 } else { 1.0 };
            (at_ms, (!(70.0..84.0).contains(&minute)).then_some(value * spike))
        })
    };
    Line::new(NOON..NOON + 3 * HOUR)
        .title("Response time")
        .unit(Unit::Millis)
        .series("p50", wave(22.0, 1))
        .series("p90", wave(61.0, 2))
        .series("p99", wave(118.0, 3))
        .band(NOON + 120 * MINUTE..NOON + 132 * MINUTE, Tone::Bad, "Incident 12: upstream slow")
        .limit("objective", 250.0)
        .render()
}

fn traffic() -> Markup {
    let day = |scale: f64, seed: u64| {
        (0..288_u64).map(move |step| {
            let hour = step as f64 / 12.0;
            let value = scale * (1.2 - (hour / 24.0 * 2.0 * PI).cos()) * (0.9 + 0.2 * noise(step + seed));
            (NOON + step * 5 * MINUTE, value)
        })
    };
    Line::area(NOON..NOON + 24 * HOUR)
        .title("Requests")
        .unit(Unit::PerSecond)
        .series("allowed", day(1_800.0, 5))
        .toned("limited", Tone::Warn, day(160.0, 9))
        .render()
}

fn statuses() -> Markup {
    let steps = |scale: f64, seed: u64| {
        (0..60_u64)
            .filter(|step| !(40..44).contains(step))
            .map(move |step| (NOON + step * MINUTE, (scale * (0.6 + 0.8 * noise(step + seed))).floor()))
    };
    Bars::new(NOON..NOON + HOUR, MINUTE)
        .title("Answers")
        .toned("2xx", Tone::Good, steps(900.0, 1))
        .toned("3xx", Tone::Busy, steps(120.0, 2))
        .toned("4xx", Tone::Warn, steps(90.0, 3))
        .toned("5xx", Tone::Bad, steps(40.0, 4))
        .render()
}

fn heat() -> Markup {
    let rows = ["1 ms", "2 ms", "5 ms", "10 ms", "20 ms", "50 ms", "100 ms", "200 ms", "500 ms", "1 s"];
    let mut map = HeatMap::new(NOON..NOON + HOUR, MINUTE, rows).title("Latency by bucket");
    for minute in 0..60_u64 {
        for row in 0..rows.len() {
            let middle = 3.5 + 2.0 * (minute as f64 / 12.0).sin();
            let near = (-(row as f64 - middle).powi(2) / 2.5).exp();
            let count = (400.0 * near * noise(minute * 31 + row as u64)) as u64;
            map = map.count(NOON + minute * MINUTE, row, count);
        }
    }
    map.render()
}

fn histogram() -> Markup {
    let mut histogram = Histogram::new(Unit::Millis).title("Latency").mark("p50", 21.0).mark("p99", 380.0);
    for bin in 0..36_i32 {
        let (from, to) = (1.25_f64.powi(bin), 1.25_f64.powi(bin + 1));
        let count = 9_000.0 * (-(f64::from(bin) - 13.0).powi(2) / 40.0).exp();
        histogram = histogram.bin(from..to, count as u64);
    }
    histogram.render()
}

fn many() -> Markup {
    let mut line = Line::new(NOON..NOON + HOUR).title("Availability").unit(Unit::Ratio).zoomed();
    for series in 0..8_u64 {
        let points = (0..60_u64).map(move |minute| {
            (NOON + minute * MINUTE, 1.0 - 0.0004 * series as f64 - 0.0003 * noise(minute * 7 + series))
        });
        line = line.series(&format!("node {series}"), points);
    }
    line.render()
}

fn small() -> String {
    let values = |seed: u64| (0..60_u64).map(move |step| 40.0 + 60.0 * noise(step + seed)).map(Some);
    let spark = Spark::new("Requests per second", Unit::PerSecond, values(1)).render();
    let gaps = values(4).enumerate().map(|(step, value)| value.filter(|_| !(20..30).contains(&step)));
    let gaps = Spark::new("Jobs", Unit::Count, gaps).render();
    let beats = (0..60_u64).map(|step| {
        let pulse = match step {
            20..23 => Pulse::Slow,
            30..33 => Pulse::Down,
            41..45 => Pulse::Silent,
            _ => Pulse::Up,
        };
        let latency_ms = matches!(pulse, Pulse::Up | Pulse::Slow).then(|| {
            let slow = if pulse == Pulse::Slow { 300.0 } else { 0.0 };
            slow + 40.0 + 90.0 * noise(step + 3)
        });
        let note = if pulse == Pulse::Down { "connection refused" } else { "" };
        Beat { at_ms: NOON + step * MINUTE, pulse, latency_ms, note: note.to_owned() }
    });
    let beats = Heartbeat::new("api.example.org", beats).render();
    format!("<h3>Sparkline</h3>{spark}<h3>With a gap</h3>{gaps}<h3>Heartbeat</h3>{beats}")
}

fn states() -> String {
    let badges: Vec<String> = [
        (Tone::Good, "up"),
        (Tone::Busy, "running"),
        (Tone::Warn, "degraded"),
        (Tone::Bad, "down"),
        (Tone::Idle, "paused"),
    ]
    .map(|(tone, word)| tone.badge(word).to_string())
    .to_vec();
    let notices: Vec<String> = [
        (Tone::Bad, "api.example.org is down: connection refused"),
        (Tone::Warn, "The nightly run is 12 min late"),
        (Tone::Good, "Everything is well"),
    ]
    .map(|(tone, text)| {
        format!(r#"<li class="notice {}">{}<div>{text}</div></li>"#, tone.class(), tone.icon())
    })
    .to_vec();
    let rows: Vec<String> = [
        Unit::Count.of(1_234.0),
        Unit::Millis.of(34.0),
        Unit::Bytes.of(5_347_737.0),
        Unit::Ratio.of(0.9995),
        Unit::PerSecond.of(12_300.0),
    ]
    .map(|quantity| {
        format!(
            r#"<tr><td>A thing</td><td><a href="/x">its link</a></td><td class="num">{quantity}</td></tr>"#
        )
    })
    .to_vec();
    let pager = Pager { first: Some("/".to_owned()), next: Some("/?after=x".to_owned()) };
    format!(
        r#"<div class="row">{}</div><ul class="notices">{}</ul><div class="table"><table><thead><tr><th>What</th><th>Where</th><th class="num">How much</th></tr></thead><tbody>{}</tbody></table></div>{pager}"#,
        badges.concat(),
        notices.concat(),
        rows.concat()
    )
}

fn facts() -> String {
    let vitals: Vec<String> = [
        ("Requests", Unit::PerSecond.of(1_820.0)),
        ("p99", Unit::Millis.of(118.0)),
        ("Errors", Unit::Ratio.of(0.0021)),
    ]
    .map(|(name, quantity)| format!("<div><dt>{name}</dt><dd>{quantity}</dd></div>"))
    .to_vec();
    let facts = Facts::new()
        .markup("State", Tone::Good.badge("connected"))
        .code("Address", "redis+cluster://10.0.0.1:6379")
        .text("Version", "Redis 7.2.4")
        .markup("Memory", Quantity::bytes(734_003_200))
        .markup("Since", RelativeTime::at(NOON).relative_to(NOON + 3 * HOUR));
    format!(r#"<dl class="vitals">{}</dl>{facts}"#, vitals.concat())
}

fn form() -> String {
    let choice = |value: &str, label: &str| Choice { value: value.to_owned(), label: label.to_owned() };
    let kinds = vec![choice("http", "HTTP"), choice("tcp", "TCP")];
    let fields = [
        Field::text("name", "Name").value("Front door").hint("What people call it."),
        Field::text("url", "Address")
            .value("htp://example")
            .error(Some("must begin with http:// or https://")),
        Field::choice("kind", "Kind", kinds).value("tcp"),
        Field::checkbox("paused", "Paused").value("on").hint("It is not checked until this is taken away."),
    ]
    .map(|field| field.to_string());
    format!(
        r#"<form class="form" action="/x" method="post">{}<div class="row"><button class="primary">Save</button><a class="button" href="/">Cancel</a><button class="danger">Delete</button></div></form>"#,
        fields.concat()
    )
}

fn empty() -> String {
    Empty::new("No monitors yet", "A monitor asks a server at intervals whether it is well.")
        .command("hob uptime add https://example.org")
        .link("Add a monitor", "/uptime/new")
        .to_string()
}
