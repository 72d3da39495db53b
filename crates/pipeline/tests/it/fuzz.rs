//! Fuzzed plans are parsed or rejected in bounded time and memory.

use hob_pipeline::plan::Plan;
use hob_testkit::fuzz;

const TOML: &str = r#"name = "dockets"
weight = 3
quota = { name = "api", windows = "5/1m, 50/1h", buffer = 1 }
[source]
step = "docket"
list = ["1", "2"]
[step.docket]
get = "https://api.example/dockets/${key}/"
headers = { Authorization = "Token ${secret.api}" }
extract = { id = "$.id", names = "$.parties[*]['full name']" }
follow = [{ step = "entry", items = "$.entries[*]", key = "$.id" }]
sink = "out"
[step.entry]
[sink.out]
jsonl = "out/dockets.jsonl"
[http]
timeout = "10s"
"#;

fn read(text: &str) {
    drop(Plan::parse(text));
}

#[test]
fn mutated_plans_are_parsed_within_limits() {
    Plan::parse(TOML).unwrap();
    let example = include_str!("../../../../examples/pipelines/courtlistener.toml");
    fuzz("fuzz::mutated_plans_are_parsed_within_limits", &[TOML, example], read);
}

#[test]
fn mutated_plans_in_json_are_parsed_within_limits() {
    let table: toml::Table = toml::from_str(TOML).unwrap();
    let json = serde_json::to_string_pretty(&table).unwrap();
    fuzz("fuzz::mutated_plans_in_json_are_parsed_within_limits", &[&json], |text| {
        if let Ok(table) = serde_json::from_str::<toml::Table>(text)
            && let Ok(text) = toml::to_string(&table)
        {
            read(&text);
        }
    });
}
