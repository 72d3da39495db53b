//! Mutated rules are accepted or refused in bounded time and memory.

use hob_admission::{Policy, Rule, RuleConfig};
use hob_gateway::Config;
use hob_testkit::fuzz;

const TOML: &str = r#"routes = ["/api/users/:id", "/files/*"]
allow = ["10.0.0.0/8", "user:123"]
[[rules]]
name = "login"
windows = "20/1s, 500/1m burst 50"
methods = ["POST"]
route = "/api/users/:id"
header = { "x-plan" = "free", "x-beta" = "*" }
by = "header:x-user-id as user"
cost = 2
algorithm = "sliding_window"
exactness = "leased"
lease = "2s"
[[rules]]
name = "all"
windows = "100/1s"
by = "api_key:x-api-key"
"#;

const JSON: &str = r#"{"name": "login", "windows": "20/1s, 500/1m burst 50", "methods": ["POST"], "route": "/api/users/:id",
 "header": {"x-plan": "free"}, "by": "header:x-user-id as user", "cost": 2, "exactness": "leased", "lease": "2s"}"#;

#[test]
fn mutated_policies_are_read_within_limits() {
    fuzz("fuzz::mutated_policies_are_read_within_limits", &[TOML], |text| {
        if let Ok(config) = toml::from_str::<Config>(text) {
            drop(Policy::new(&config.policy()));
        }
    });
}

#[test]
fn mutated_rules_in_json_are_read_within_limits() {
    fuzz("fuzz::mutated_rules_in_json_are_read_within_limits", &[JSON], |text| {
        if let Ok(config) = serde_json::from_str::<RuleConfig>(text) {
            drop(Rule::new(&config));
        }
    });
}
