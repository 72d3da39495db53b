//! Mutated and hostile plans are read or rejected in bounded time and memory.

use hob_load_generator::plan::{Format, Plan};
use hob_testkit::fuzz;

const TOML: &str = r#"name = "shop"
target = "http://127.0.0.1:8080"
thresholds = ["p99 < 300ms", { that = "error_rate < 1%", abort_after = "10s" }]

[vars]
size = 3

[run.smoke]
groups = ["read"]
scale = 0.1
csv = "user,password\nada,secret\n"

[[scenario]]
name = "browse"
load = { rate = 100, for = "30s", ramp = "10s" }
think = "100ms..300ms"

[[scenario.step]]
name = "home"
group = "read"
request = "GET /list?n=${size}&user=${user}"
headers = { "X-User" = "${user}" }
expect = { status = [200, 304], within = "500ms", matches = "a+b?", json = { "$.items[0].id" = 1 } }
extract = { id = "json $.items[*].id", word = "regex id=(\\d+)" }

[[scenario]]
name = "users"
load = { stages = [{ users = 10, for = "1m" }, { users = 0, for = "30s" }] }

[[scenario.step]]
name = "list"
request = "POST http://localhost:9000/list"
json = { a = [1, 2.5, true], b = { c = "${size}" } }
"#;

fn json() -> String {
    let value: toml::Value = toml::from_str(TOML).unwrap();
    serde_json::to_string_pretty(&value).unwrap()
}

#[test]
fn unmutated_plan_is_valid() {
    Plan::read(TOML, Format::Toml).unwrap();
    Plan::read(&json(), Format::Json).unwrap();
}

#[test]
fn mutated_plans_in_toml_are_read_within_limits() {
    fuzz("fuzz::mutated_plans_in_toml_are_read_within_limits", &[TOML], |text| {
        drop(Plan::read(text, Format::Toml));
    });
}

#[test]
fn mutated_plans_in_json_are_read_within_limits() {
    // The second document once made the reader loop.
    let documents = [&json(), r#"{"a":[{"b":1,,}]}"#];
    fuzz("fuzz::mutated_plans_in_json_are_read_within_limits", &documents, |text| {
        drop(Plan::read(text, Format::Json));
    });
}
