//! The plan format, and its error messages.

use std::time::Duration;

use hob_load_generator::plan::{Format, LoadModel, Plan};

const PLAN: &str = r#"name = "shop"
target = "http://127.0.0.1:8080"

[run.smoke]
groups = ["read"]
scale = 0.1

[run.full]

[[scenario]]
name = "browse"
load = { rate = 100, for = "30s", ramp = "10s" }
think = "100ms..300ms"

[[scenario.step]]
name = "home"
group = "read"
request = "GET /"
expect = { status = [200, 304], within = "500ms" }

[[scenario.step]]
name = "buy"
group = "write"
request = "POST /buy"
body = "x"

[[scenario]]
name = "users"
load = { stages = [{ users = 10, for = "1m" }, { users = 0, for = "30s" }] }

[[scenario.step]]
name = "list"
request = "GET http://localhost:9000/list?n=1"
"#;

#[test]
fn toml_and_json_give_the_same_plan() {
    let value: toml::Value = toml::from_str(PLAN).unwrap();
    let json = serde_json::to_string_pretty(&value).unwrap();
    for plan in [Plan::read(PLAN, Format::Toml).unwrap(), Plan::read(&json, Format::Json).unwrap()] {
        assert_eq!(plan.steps.len(), 3);
        assert_eq!(
            plan.origins.iter().map(ToString::to_string).collect::<Vec<_>>(),
            ["http://127.0.0.1:8080", "http://localhost:9000"]
        );
        assert_eq!(plan.duration(), Duration::from_secs(90));
        let (smoke, full) = (plan.run_type("smoke").unwrap(), plan.run_type("full").unwrap());
        assert_eq!((plan.groups(smoke), plan.groups(full)), (vec!["read"], vec!["read", "write"]));
        assert_eq!((plan.target_users(smoke), plan.target_users(full)), (1, 10));
        assert_eq!((plan.planned_rate(smoke), plan.planned_rate(full)), (10.0, 200.0));
        assert!(matches!(plan.scenarios[0].load, LoadModel::Open { .. }));
    }
}

#[test]
fn mistake_is_reported_with_its_line_and_field() {
    for (right, wrong, line, field) in [
        ("rate = 100", "rate = \"fast\"", 12, "scenario[0].load.rate"),
        ("rate = 100", "rate = -1", 12, "scenario[0].load"),
        ("rate = 100", "rate = 100, users = 5", 12, "scenario[0].load"),
        ("for = \"30s\"", "for = \"30\"", 12, "scenario[0].load.for"),
        ("\"GET /\"", "\"FETCH /\"", 18, "scenario[0].step[0].request"),
        ("\"GET /\"", "\"GET /${unknown}\"", 18, "scenario[0].step[0].request"),
        ("name = \"buy\"", "name = \"home\"", 22, "scenario[0].step[1].name"),
        ("[\"read\"]", "[\"reed\"]", 5, "run.smoke.groups[0]"),
        ("scale = 0.1", "scale = 0", 6, "run.smoke.scale"),
        ("body = \"x\"", "bodi = \"x\"", 25, "scenario[0].step[1].bodi"),
        ("target = \"http://127.0.0.1:8080\"", "target = \"shop\"", 2, "target"),
        ("within = \"500ms\"", "within = \"soon\"", 19, "scenario[0].step[0].expect.within"),
        ("users = 0, for = \"30s\"", "users = 0, for = \"0s\"", 29, "scenario[1].load.stages[1].for"),
    ] {
        let text = PLAN.replacen(right, wrong, 1);
        assert_ne!(text, PLAN, "{right} is not in the plan");
        let mistake = Plan::read(&text, Format::Toml).unwrap_err();
        assert_eq!((mistake.at.line, mistake.field.as_str()), (line, field), "{wrong}: {mistake}");
    }
}

#[test]
fn unknown_variable_has_a_column_and_a_suggestion() {
    for (request, column) in [("GET /${itreation}", 6), ("GET http://127.0.0.1:8080/${itreation}", 27)] {
        let text = PLAN.replacen("GET /", request, 1);
        let mistake = Plan::read(&text, Format::Toml).unwrap_err();
        let expected = format!("column {column}: unknown variable `itreation`; write `${{iteration}}`");
        assert!(mistake.message.starts_with(&expected), "{mistake}");
    }
}

#[test]
fn mistake_in_json_is_reported_with_its_line_and_field() {
    let json = "{\n  \"name\": \"x\",\n  \"target\": \"http://127.0.0.1\",\n  \"scenario\": [\n    {\n      \
        \"name\": \"s\",\n      \"load\": {\"rate\": 1, \"for\": \"1s\"},\n      \"step\": [\n        \
        {\"name\": \"a\", \"request\": \"GET /\"}\n      ]\n    }\n  ]\n}";
    assert!(Plan::read(json, Format::Json).is_ok());
    for (right, wrong, line, field) in [
        ("GET /", "GET", 9, "scenario[0].step[0].request"),
        ("\"1s\"", "\"1 week\"", 7, "scenario[0].load.for"),
        ("{\"rate\": 1", "{\"rate\": \"x\"", 7, "scenario[0].load.rate"),
    ] {
        let mistake = Plan::read(&json.replacen(right, wrong, 1), Format::Json).unwrap_err();
        assert_eq!((mistake.at.line, mistake.field.as_str()), (line, field), "{wrong}: {mistake}");
    }
    assert!(Plan::read("{", Format::Json).is_err());
}

#[test]
fn limits_are_enforced() {
    let huge = format!("{PLAN}\n# {}", "x".repeat(Plan::MAX_BYTES));
    assert!(Plan::read(&huge, Format::Toml).unwrap_err().message.contains("more than 262144"));
    let steps: String = (0..=Plan::MAX_STEPS)
        .map(|n| format!("[[scenario.step]]\nname = \"s{n}\"\nrequest = \"GET /\"\n"))
        .collect();
    let text = format!(
        "name = 'x'\ntarget = 'http://127.0.0.1'\n[[scenario]]\nname = 's'\nload = {{ users = 1, for = '1s' }}\n{steps}"
    );
    assert!(Plan::read(&text, Format::Toml).unwrap_err().message.contains("at most 64 steps"));
    let day = PLAN.replacen("for = \"30s\"", "for = \"25h\"", 1);
    assert!(Plan::read(&day, Format::Toml).unwrap_err().message.contains("at most a day"));
    let header = PLAN.replacen("body = \"x\"", "headers = { \"Content-Length\" = \"1\" }", 1);
    assert!(Plan::read(&header, Format::Toml).unwrap_err().message.contains("the generator itself"));
}

#[test]
fn max_users_scales_the_plan_down() {
    let plan = Plan::read(PLAN, Format::Toml).unwrap();
    let full = plan.run_type("full").unwrap();
    assert_eq!(plan.clone().capped(4, full).target_users(full), 4);
    assert_eq!(plan.capped(400, full).target_users(full), 10);
}
