//! All errors in a schema file are reported, each with its position and a suggestion.

use hob_schema::{Content, FieldName, KeyType, Keyspace, Layout, Schema, TtlRule};

fn errors(text: &str) -> Vec<String> {
    match Schema::parse("t.toml", text) {
        Ok(_) => Vec::new(),
        Err(errors) => errors.0.iter().map(ToString::to_string).collect(),
    }
}

const HEAD: &str = "[schema]\nname = \"t\"\nversion = 1\n[ids]\nuserId = { max = 9 }\n";

fn family(body: &str) -> Vec<String> {
    errors(&format!("{HEAD}[key.one]\n{body}"))
}

#[test]
fn all_errors_are_reported_in_the_order_of_the_text() {
    let found = errors(
        r#"[schema]
name = "t"
version = 0
colour = "red"
[ids]
userId = { max = "long" }
[key.one]
patern = "user:<userId>"
type = "sting"
ttl = { max = "soon" }
"#,
    );
    let lines: Vec<&str> = found.iter().map(|error| error.lines().next().unwrap()).collect();
    assert_eq!(
        lines,
        [
            "t.toml:3:11: expected a whole number from 1, found integer",
            "t.toml:4:1: [schema] has no `colour`",
            "t.toml:6:18: expected a whole number from 1, found string",
            "t.toml:7:6: [key.one] has no `pattern`",
            "t.toml:8:1: [key.one] has no `patern`",
            "t.toml:9:8: unknown type \"sting\"",
        ]
    );
    assert!(found[4].contains("write instead: pattern"), "{}", found[4]);
}

#[test]
fn each_error_suggests_what_to_write() {
    for (body, expected) in [
        ("pattern = \"u:<userid>\"\ntype = \"set\"", "write instead: <userId>"),
        ("pattern = \"u:<userId>\"\ntype = \"set\"\nvalue = \"int\"", "write instead: `member`"),
        ("pattern = \"u\"\ntype = \"string\"\nvalue = \"intt\"", "write instead: \"int\""),
        (
            "pattern = \"u\"\ntype = \"string\"\nvalue = \"int\"\nexample = \"many\"",
            "t.toml:10:11: the example does not match the declared form: \"many\" is not a whole number",
        ),
        (
            "pattern = \"u\"\ntype = \"hash\"\nfields = { n = \"int\" }\nexample = { m = \"1\" }",
            "the example does not match the declared form: field \"m\" is not declared",
        ),
        ("pattern = \"u\"\ntype = \"string\"\nmax_len = 3", "write instead: value = { text = 4096 }"),
        ("pattern = \"u\"\ntype = \"string\"\nttl = { max = \"1h\", none = \"x\" }", "exactly one rule"),
        ("pattern = \"u\"\ntype = \"string\"\nttl = { max = \"1 fortnight\" }", "expected a duration"),
        ("pattern = \"u\"\ntype = \"string\"\ntag = \"userId\"", "has no placeholder <userId>"),
        ("pattern = \"u\"\ntype = \"string\"\nwith = [\"two\"]", "`with` names the unknown family \"two\""),
        ("pattern = \"u\"\ntype = \"list\"\nitem = { json = \"mesage\" }", "unknown form or shape"),
        ("pattern = \"u\"\ntype = \"string\"\nrole = \"king\"", "unknown role \"king\""),
    ] {
        let found = family(body);
        assert!(found.iter().any(|error| error.contains(expected)), "{body}\n{found:#?}");
    }
}

#[test]
fn invalid_toml_is_reported_with_its_position() {
    let found = errors("[schema]\nname = \"t\nversion = 1\n");
    assert!(found[0].starts_with("t.toml:2:"), "{found:#?}");
    assert!(found[0].contains("not TOML"), "{found:#?}");
}

#[test]
fn position_of_an_error_in_a_pattern_is_exact() {
    let found = family("pattern = \"user:<nobody>\"\ntype = \"set\"");
    assert!(found[0].starts_with("t.toml:7:17: <nobody> is not declared"), "{found:#?}");
}

#[test]
fn every_feature_of_the_language_is_parsed() {
    let text = r#"
[schema]
name = "t"
version = 2
prefix = { env = "T_PREFIX", default = "t:" }
shards = 4
[ids]
user = { max = 20, not = ["all"] }
[key.profile]
pattern = "user:<user>:profile"
type = "hash"
fields = { name = { text = 64 }, age = "int?", "<user>" = "bool", "*" = "any" }
max_len = { env = "T_FIELDS", default = 32 }
ttl = { max = { env = "T_HOURS", unit = "h", default = "2h" } }
tag = "user"
[key.all]
pattern = "user:all"
type = "set"
tag = "shard"
ttl = { none = "small" }
"#;
    let mut schema = Schema::parse("t.toml", text).unwrap();
    let profile = schema.family("profile").unwrap();
    assert_eq!(profile.kind(), KeyType::Hash);
    let Content::Hash(fields) = &profile.content else { panic!("{:?}", profile.content) };
    assert_eq!(fields[0].name, FieldName::Exact("name".into()));
    assert_eq!(fields[2].name, FieldName::Id(0));
    assert_eq!(fields[3].name, FieldName::Any);

    let env = |name: &str| match name {
        "T_HOURS" => Some("25".to_owned()),
        "T_FIELDS" => Some("8".to_owned()),
        "T_PREFIX" => Some("x:".to_owned()),
        _ => None,
    };
    schema.apply_env(&env).unwrap();
    let profile = schema.family("profile").unwrap();
    assert_eq!(profile.max_len.as_ref().unwrap().value, 8);
    let TtlRule::Max(limit) = &profile.ttl.rule else { panic!("{:?}", profile.ttl) };
    assert_eq!(limit.value.as_secs(), 25 * 3600);

    let plain = Keyspace::new(schema.clone(), Layout::Plain);
    let tagged = Keyspace::new(schema.clone(), Layout::Tagged);
    assert_eq!(plain.key(0, &["ann"], None), "x:user:ann:profile");
    assert_eq!(tagged.key(0, &["ann"], None), "x:user:{ann}:profile");
    assert_eq!(plain.key(1, &[], None), "x:user:all");
    let shards: Vec<String> = tagged.shards().map(|shard| tagged.key(1, &[], Some(shard))).collect();
    assert_eq!(shards, ["x:user:all:{0}", "x:user:all:{1}", "x:user:all:{2}", "x:user:all:{3}"]);
}

#[test]
fn invalid_limit_in_the_environment_is_an_error() {
    let text =
        format!("{HEAD}[key.a]\npattern = \"a\"\ntype = \"set\"\nmax_len = {{ env = \"N\", default = 3 }}");
    let mut schema = Schema::parse("t.toml", &text).unwrap();
    let error = schema.apply_env(&|_| Some("many".to_owned())).unwrap_err();
    assert_eq!(error.to_string(), "N=\"many\" is not a positive number");
}

#[test]
fn pattern_with_a_tag_keeps_it_under_both_layouts() {
    let text = format!("{HEAD}[key.a]\npattern = \"a:{{<userId>}}:b\"\ntype = \"set\"\ntag = \"userId\"");
    let schema = Schema::parse("t.toml", &text).unwrap_or_else(|errors| panic!("{errors}"));
    for layout in [Layout::Plain, Layout::Tagged] {
        let space = Keyspace::new(schema.clone(), layout);
        assert_eq!(space.key(0, &["7"], None), "a:{7}:b");
    }
}

#[test]
fn rules_of_one_type_are_refused_for_another() {
    for (body, expected) in [
        ("type = \"set\"\ngroups = [\"a\"]", "a set has no `groups`"),
        ("type = \"hash\"\nmax_age = \"1h\"", "a hash has no `max_age`"),
        ("type = \"stream\"\nfield_ttl = { max = \"1h\" }", "a stream has no `field_ttl`"),
        ("type = \"zset\"\nmember = \"geo\"", "\"geo\" is the form of a score"),
        ("type = \"string\"\nvalue = { bitmap = \"much\" }", "expected"),
    ] {
        let found = family(&format!("pattern = \"k:<userId>\"\n{body}"));
        assert!(found.len() == 1 && found[0].contains(expected), "{body}: {found:?}");
    }
}

#[test]
fn limits_of_streams_and_fields_come_from_the_environment() {
    let text = "[schema]\nname = \"t\"\nversion = 1\n[key.s]\npattern = \"s\"\ntype = \"stream\"\n\
                max_pending = { env = \"PENDING\", default = 5 }\nmax_age = { env = \"AGE\", default = \"1h\" }\n\
                [key.h]\npattern = \"h\"\ntype = \"hash\"\n\
                field_ttl = { max = { env = \"FIELD\", default = \"1h\" } }\n";
    let mut schema = Schema::parse("t.toml", text).unwrap();
    schema.apply_env(&|name| Some(if name == "PENDING" { "9" } else { "2h" }.to_owned())).unwrap();
    let rules = &schema.families[0].stream;
    assert_eq!(rules.max_pending.as_ref().unwrap().value, 9);
    let hours = std::time::Duration::from_hours(2);
    assert_eq!(rules.max_age.as_ref().unwrap().value, hours);
    assert_eq!(schema.families[1].field_ttl.as_ref().unwrap().longest(), Some(hours));
}

#[test]
fn prefix_may_have_one_hash_tag() {
    let key = |prefix: &str| {
        let text = format!(
            "[schema]\nname = \"t\"\nversion = 1\nprefix = \"{prefix}\"\n[key.k]\npattern = \"k\"\ntype = \"set\"\n"
        );
        let schema = Schema::parse("t.toml", &text).map_err(|errors| errors.to_string())?;
        Ok::<_, String>(Keyspace::new(schema, Layout::Plain).key(0, &[], None))
    };
    assert_eq!(key("{bull}:").unwrap(), "{bull}:k");
    for bad in ["{bull", "bull}", "{}:", "{a}{b}:", "{a*}:"] {
        assert!(key(bad).is_err(), "{bad}");
    }
}
