//! The dashboards in `deploy/grafana`: a Prometheus that reads the demo answers their queries, and the charts of the console draw
//! the answers. Grafana itself is in none of the package registries that the tests use.

use std::fmt::Write as _;
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use hob_testkit::{Browser, ColorScheme, Window, set_view};
use hob_web::STYLESHEET;
use hob_web::chart::Line;
use hob_web::components::{Escaped, Unit};
use serde_json::Value;

use super::{HIDE_SCROLLBAR, MAX_BYTES};
use crate::prometheus::{ObservedDemo, Prometheus, dashboards, without_variables};

/// The time that a dashboard shows.
const SHOWN: Duration = Duration::from_secs(120);
const STEP: Duration = Duration::from_secs(2);
const WIDTH: u32 = 900;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "writes docs/images; run `cargo xtask screenshots`"]
async fn pictures_of_dashboards() {
    let demo = ObservedDemo::start();
    demo.wait_for_data().await;
    tokio::time::sleep(SHOWN).await;
    let images = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/images");
    let folder = tempfile::tempdir().unwrap();
    let browser = Browser::start();
    let client = browser.open(Window::default()).await;
    for (name, dashboard) in dashboards() {
        let file = folder.path().join(format!("{name}.html"));
        std::fs::write(&file, page(&demo.prometheus, &dashboard)).unwrap();
        set_view(&client, WIDTH, 100, ColorScheme::Light).await;
        client.goto(&format!("file://{}", file.display())).await.unwrap();
        client.execute(HIDE_SCROLLBAR, Vec::new()).await.unwrap();
        let height = client.execute("return document.documentElement.scrollHeight", Vec::new()).await;
        let height = height.unwrap().as_u64().unwrap();
        set_view(&client, WIDTH, u32::try_from(height).unwrap(), ColorScheme::Light).await;
        let png = client.screenshot().await.unwrap();
        assert!(png.len() < MAX_BYTES, "{name} has {} bytes", png.len());
        std::fs::write(images.join(format!("dashboard-{name}.png")), png).unwrap();
    }
    client.close().await.unwrap();
}

fn page(prometheus: &Prometheus, dashboard: &Value) -> String {
    let end_ms = hob_units::unix_ms();
    let range_ms = end_ms - SHOWN.as_millis() as u64..end_ms;
    let mut panels = String::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        let drawn = if panel["type"] == "stat" {
            numbers(prometheus, panel, &range_ms)
        } else {
            chart(prometheus, panel, range_ms.clone())
        };
        write!(panels, "<section class=\"panel\">{drawn}</section>").unwrap();
    }
    let title = Escaped(dashboard["title"].as_str().unwrap());
    format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>{title}</title><style>{STYLESHEET} details {{ display: none }}</style>\
         <main class=\"page\"><h1>{title}</h1><div class=\"grid\">{panels}</div></main></html>"
    )
}

fn chart(prometheus: &Prometheus, panel: &Value, range_ms: Range<u64>) -> String {
    let (unit, factor) = unit(panel);
    let mut line = Line::new(range_ms.clone()).title(panel["title"].as_str().unwrap()).unit(unit);
    line = line.every(STEP.as_millis() as u64).height(130);
    for (name, points) in series(prometheus, panel, &range_ms) {
        line = line.series(&name, points.into_iter().map(|(at_ms, value)| (at_ms, value * factor)));
    }
    line.render().to_string()
}

/// The last value of each series.
fn numbers(prometheus: &Prometheus, panel: &Value, range_ms: &Range<u64>) -> String {
    let (unit, factor) = unit(panel);
    let mut list = String::new();
    for (name, points) in series(prometheus, panel, range_ms) {
        if let Some((_, value)) = points.last() {
            let value = unit.of(value * factor);
            write!(list, "<div><dt>{}</dt><dd>{value}</dd></div>", Escaped(&name)).unwrap();
        }
    }
    format!("<h2>{}</h2><dl class=\"vitals\">{list}</dl>", Escaped(panel["title"].as_str().unwrap()))
}

/// The answers to the queries of a panel, with the names in its legend.
fn series(prometheus: &Prometheus, panel: &Value, range_ms: &Range<u64>) -> Vec<(String, Vec<(u64, f64)>)> {
    let targets = panel["targets"].as_array().unwrap().iter();
    let answers = targets.flat_map(|target| {
        let query = without_variables(target["expr"].as_str().unwrap());
        let found = prometheus.query_range(&query, range_ms, STEP).unwrap();
        let legend = target["legendFormat"].as_str().unwrap();
        found
            .into_iter()
            .map(|series| (named(legend, &series["metric"]), points(&series)))
            .collect::<Vec<_>>()
    });
    answers.collect()
}

/// A legend such as `{{rule}} in {{window}}` with the values of the labels. A label that is missing has no value, as in Grafana.
fn named(legend: &str, labels: &Value) -> String {
    let mut name = String::new();
    for part in legend.split("{{") {
        match part.split_once("}}") {
            Some((label, text)) => name += &format!("{}{text}", labels[label].as_str().unwrap_or_default()),
            None => name += part,
        }
    }
    name.trim().to_owned()
}

fn points(series: &Value) -> Vec<(u64, f64)> {
    let point = |pair: &Value| {
        let at_ms = (pair[0].as_f64()? * 1000.0) as u64;
        Some((at_ms, pair[1].as_str()?.parse().ok()?))
    };
    series["values"].as_array().unwrap().iter().filter_map(point).collect()
}

/// The unit of a panel, and what its values are multiplied with.
fn unit(panel: &Value) -> (Unit, f64) {
    match panel["fieldConfig"]["defaults"]["unit"].as_str().unwrap() {
        "s" => (Unit::Millis, 1000.0),
        "reqps" | "ops" => (Unit::PerSecond, 1.0),
        "percentunit" => (Unit::Ratio, 1.0),
        "short" => (Unit::Count, 1.0),
        other => panic!("{other} is not drawn"),
    }
}
