//! Mutated monitors and assertions are read or refused in bounded time and memory.

use hob_service::config::Secrets;
use hob_testkit::fuzz;
use hob_uptime::monitor::MonitorSpec;
use hob_uptime::monitor::apply::{Existing, Plan, Unlisted};
use hob_uptime::monitor::check::MonitorKind;

const YAML: &str = r#"monitors:
  shop: &web
    name: Shop   # a comment
    kind: http
    target: https://shop.example/health
    http: {method: POST, headers: {accept: "text/html"}, body: 'x'}
    interval_s: 30
    assertions: ["status in 200..299", 'latency < 500ms']
    tags: [eu]
  blog:
    <<: *web
    name: |
      Blog
  backup:
    name: "Nightly"
    kind: heartbeat
    heartbeat: { cron: "0 3 * * *", grace_s: 600 }
"#;

const JSON: &str = r#"{"name": "Shop", "kind": "http", "target": "https://shop.example/", "interval_s": 30,
 "http": {"method": "POST", "headers": {"accept": "text/html"}}, "assertions": ["status in 200..299"], "tags": ["eu"]}"#;

const ASSERTIONS: [&str; 6] = [
    "status in 200..299",
    "latency < 500ms",
    "body matches /a+(b|c)?d{2,5}/",
    "body contains \"welcome\\n\"",
    "header \"content-type\" starts with \"text/\"",
    "json $.items[*]['a b'].id == 3.5",
];

fn read_file(text: &str) {
    let existing = Existing { monitors: &[], channels: &[], secrets: &Secrets::none() };
    drop(Plan::new(text, existing, Unlisted::Keep));
}

#[test]
fn mutated_monitor_files_are_read_within_limits() {
    fuzz(
        "fuzz::mutated_monitor_files_are_read_within_limits",
        &[YAML, &format!("{{\"monitors\": {{\"a\": {JSON}}}}}")],
        read_file,
    );
}

#[test]
fn mutated_monitors_in_json_are_read_within_limits() {
    fuzz("fuzz::mutated_monitors_in_json_are_read_within_limits", &[JSON], |text| {
        if let Ok(spec) = serde_json::from_str::<MonitorSpec>(text) {
            drop(spec.validate());
        }
    });
}

#[test]
fn mutated_assertions_are_read_within_limits() {
    fuzz("fuzz::mutated_assertions_are_read_within_limits", &ASSERTIONS, |text| {
        let mut spec = MonitorSpec::new("Shop", MonitorKind::Http, "https://shop.example/");
        spec.assertions = vec![text.to_owned()];
        drop(spec.validate());
    });
}
