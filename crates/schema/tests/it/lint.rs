//! One small schema for each lint rule, and the schemas of the services, which break none.

use std::collections::BTreeSet;

use hob_schema::Schema;
use hob_schema::lint::{RULES, Severity, explain, lint, report_json, report_text};

use crate::{SERVICES, load_schema};

/// The rules that a schema breaks.
fn broken(text: &str) -> Vec<&'static str> {
    let schema = Schema::parse("t.toml", text).unwrap_or_else(|errors| panic!("{errors}"));
    lint(&schema).into_iter().map(|finding| finding.rule).collect()
}

const HEAD: &str = "[schema]\nname = \"t\"\nversion = 1\nprefix = \"t:\"\n";

/// A valid family, with one line added or replaced.
fn family(name: &str, line: &str) -> String {
    let key = line.split('=').next().unwrap().trim();
    let valid = [
        format!("pattern = \"{name}\""),
        "type = \"string\"".to_owned(),
        "ttl = { max = \"1h\" }".to_owned(),
        format!("purpose = \"Holds {name}.\""),
    ];
    let mut text = format!("[key.{name}]\n");
    for default in valid {
        if default.split('=').next().unwrap().trim() != key {
            text += &(default + "\n");
        }
    }
    text + line + "\n"
}

#[test]
fn each_rule_reports_its_own_case_only() {
    let one = |line: &str| format!("{HEAD}{}", family("one", line));
    let with_id = |id: &str, line: &str| {
        format!(
            "{HEAD}[ids]\nx = {id}\n{}",
            family("one", &format!("pattern = \"one:<x>\"\nmax_keys = 9\n{line}"))
        )
    };
    let cases = [
        (one(""), vec![]),
        (one("ttl = { none = \" \" }"), vec!["ttl-missing"]),
        (one("purpose = \"\""), vec!["no-purpose"]),
        (one("purpose = \"TODO\"") + &family("two", "purpose = \"TODO\""), vec!["no-purpose"]),
        (one("also = \"hash\""), vec!["mixed-types"]),
        (one("unconfirmed = [\"no TTL\", \"unbounded growth\"]"), vec!["unconfirmed", "unconfirmed"]),
        (one("ttl = { max = \"1h\", after = \"the end\" }"), vec!["no-backstop"]),
        (one("ttl = { max = \"1h\", renewed = true }\nrole = \"window\""), vec!["renewed-window"]),
        (one("role = \"buffer\""), vec!["expiring-buffer"]),
        (one("pattern = \"t:{x}:y\""), vec!["accidental-tag"]),
        (one("pattern = \"a b\""), vec!["space-in-key"]),
        (one("type = \"list\""), vec!["no-cap"]),
        (one("type = \"stream\""), vec!["no-cap"]),
        (one("type = \"stream\"\nmax_age = \"1d\""), vec![]),
        (one("type = \"stream\"\nmax_age = \"1d\"\ngroups = [\"a\"]"), vec!["no-max-pending"]),
        (
            one("type = \"zset\"\nmax_len = 9\nmember = \"float\"\nscore = \"unix_ms\""),
            vec!["sample-as-member"],
        ),
        (one("allow = { rule = \"no-cap\", reason = \"x\" }"), vec!["idle-allow"]),
        (one("allow = { rule = \"no-such\", reason = \"x\" }"), vec!["idle-allow"]),
        (with_id("{}", ""), vec![]),
        (with_id("{ raw = \":\" }", ""), vec!["separator-in-id"]),
        (with_id("{ raw = \"/\" }", ""), vec!["raw-path"]),
        (with_id("{ raw = \" \" }", ""), vec!["space-in-key"]),
        (with_id("{}\ny = {}", ""), vec!["unused-id"]),
        (format!("{HEAD}[ids]\nx = {{}}\n{}", family("one", "pattern = \"one:<x>\"")), vec!["no-max-keys"]),
        (one("").replace("prefix = \"t:\"\n", ""), vec!["no-prefix"]),
        (one("") + &family("two", "with = \"one\""), vec!["no-common-tag"]),
        (
            one("purpose = \"Counts failed logins.\"")
                + &family("two", "purpose = \"Counts the failed logins.\""),
            vec!["same-purpose"],
        ),
    ];
    let mut seen = BTreeSet::from(["overlapping-patterns", "two-encodings"]);
    for (text, expected) in cases {
        assert_eq!(broken(&text), expected, "{text}");
        seen.extend(expected);
    }
    let all: BTreeSet<&str> = RULES.iter().map(|rule| rule.id).collect();
    assert_eq!(seen, all, "every rule has a test case");
}

#[test]
fn second_encoding_of_an_id_is_reported() {
    let text = format!(
        "{HEAD}[ids]\nx = {{ form = \"endpoint\" }}\ny = {{ of = \"x\", space = \"_\" }}\n{}{}",
        family("one", "pattern = \"one:<x>\"\nmax_keys = 9"),
        family("two", "pattern = \"two:<y>\"\nmax_keys = 9"),
    );
    assert!(broken(&text).contains(&"two-encodings"));
}

#[test]
fn allow_with_a_reason_silences_its_rule() {
    let text = format!(
        "{HEAD}{}",
        family("one", "type = \"list\"\nallow = { rule = \"no-cap\", reason = \"small\" }")
    );
    assert!(broken(&text).is_empty());
}

#[test]
fn service_schemas_have_no_findings() {
    for name in SERVICES {
        let findings = lint(&load_schema(name));
        assert!(findings.is_empty(), "{}", report_text(&findings));
    }
}

#[test]
fn findings_are_reported_as_text_and_as_json() {
    let schema =
        Schema::parse("t.toml", &format!("{HEAD}{}", family("one", "ttl = { none = \"\" }"))).unwrap();
    let findings = lint(&schema);
    let text = report_text(&findings);
    let line =
        "t.toml:5:6: error[ttl-missing] key.one: never expires and gives no reason\n1 errors, 0 warnings\n";
    assert_eq!(text, line);
    let json: serde_json::Value = serde_json::from_str(&report_json(&findings)).unwrap();
    assert_eq!(json[0]["rule"], "ttl-missing");
    assert_eq!(json[0]["line"], 5);
    assert_eq!(explain("ttl-missing").unwrap().severity, Severity::Error);
    assert!(explain("nothing").is_none());
}
