//! Each kind of edit, and what it affects.

use hob_schema::Schema;
use hob_schema::diff::{Class, diff, report_text};

const BASE: &str = r#"
[schema]
name = "t"
version = 1
prefix = "t:"

[ids]
user = { max = 64 }
room = { form = "int" }

[key.online]
pattern = "user:<user>:online"
type = "string"
value = { text = 64 }
ttl = { max = "1h" }
max_keys = 100
purpose = "Who is online."

[key.profile]
pattern = "user:<user>:profile"
type = "hash"
fields = { name = { text = 64 }, age = "int?" }
ttl = { none = "kept" }

[key.recent]
pattern = "room:<room>:recent"
type = "list"
item = { json = "message", max_bytes = 1024 }
max_len = 100
ttl = { max = "1d" }

[channel.events]
name = "events"
payload = { json = "message" }

[shape.message]
id = "string"
note = "string?"
"#;

fn parse(text: &str) -> Schema {
    Schema::parse("t.toml", text).unwrap_or_else(|errors| panic!("{errors}\n{text}"))
}

/// `class effects` of each change after replacing a part of the schema.
fn edit(from: &str, to: &str) -> Vec<String> {
    assert!(BASE.contains(from), "{from}");
    let changes = diff(&parse(BASE), &parse(&BASE.replace(from, to)));
    let words = |effects: &[hob_schema::diff::Effect]| {
        effects.iter().map(|effect| format!(" {}", effect.as_str())).collect::<String>()
    };
    changes.iter().map(|change| format!("{}{}", change.class.as_str(), words(&change.effects))).collect()
}

#[test]
fn equal_schemas_have_no_changes() {
    assert!(diff(&parse(BASE), &parse(BASE)).is_empty());
    assert_eq!(report_text(&[]), "0 breaking, 0 migration, 0 compatible\n");
}

#[test]
fn compatible_edits() {
    for (from, to) in [
        ("Who is online.", "Which users are online."),
        ("ttl = { max = \"1h\" }", "ttl = { max = \"2h\" }"),
        ("max_len = 100\n", "max_len = 200\n"),
        ("max_keys = 100\n", ""),
        ("age = \"int?\"", "age = \"int?\", city = { text = 9, optional = true }"),
        ("[channel.events]", "[key.new]\npattern = \"new\"\ntype = \"set\"\n\n[channel.events]"),
        ("[key.online]", "[key.presence]"),
    ] {
        assert_eq!(edit(from, to), ["compatible"], "{to}");
    }
    // The name of a placeholder is not part of a key.
    let renamed = BASE.replace("<room>", "<place>").replace("room = { form", "place = { form");
    assert!(diff(&parse(BASE), &parse(&renamed)).iter().all(|change| change.class == Class::Compatible));
}

#[test]
fn edits_that_need_a_migration() {
    assert_eq!(edit("max_keys = 100\n", "max_keys = 10\n"), ["migration data"]);
}

#[test]
fn edits_that_break_readers() {
    for (from, to) in [
        ("value = { text = 64 }", "value = { text = 128 }"),
        ("name = { text = 64 }", "name = { text = 64, optional = true }"),
        ("id = \"string\"", "id = \"string?\""),
        ("note = \"string?\"", "note = \"string?\"\nmore = \"int?\""),
        ("user = { max = 64 }", "user = { max = 128 }"),
    ] {
        assert_eq!(edit(from, to), ["breaking readers"], "{to}");
    }
}

#[test]
fn edits_that_break_writers() {
    for (from, to) in [
        ("value = { text = 64 }", "value = { text = 32 }"),
        ("ttl = { max = \"1h\" }", "ttl = { max = \"1m\" }"),
        ("max_len = 100\n", "max_len = 50\n"),
        ("age = \"int?\"", "age = \"int\""),
        ("age = \"int?\"", "age = \"int?\", city = \"int\""),
        (", age = \"int?\"", ""),
        ("user = { max = 64 }", "user = { max = 32 }"),
        ("note = \"string?\"", "note = \"string\""),
    ] {
        assert_eq!(edit(from, to), ["breaking writers data"], "{to}");
    }
}

#[test]
fn edits_that_break_everything() {
    for (from, to) in [
        ("user:<user>:online", "users:<user>:online"),
        ("prefix = \"t:\"", "prefix = \"u:\""),
        ("type = \"list\"\nitem", "type = \"set\"\nmember"),
        ("fields = { name = { text = 64 }, ", "fields = { "),
        ("ttl = { none = \"kept\" }", "ttl = { max = \"1h\" }"),
        ("ttl = { max = \"1h\" }", "ttl = { none = \"kept\" }"),
        ("room = { form = \"int\" }", "room = { form = \"hour\" }"),
        ("id = \"string\"", "id = \"int\""),
    ] {
        assert_eq!(edit(from, to), ["breaking readers writers data"], "{to}");
    }
    let removed =
        edit("[key.recent]\npattern = \"room:<room>:recent\"", "[key.other]\npattern = \"other:<room>\"");
    assert_eq!(removed, ["breaking readers writers data", "compatible"]);
    assert_eq!(edit("name = \"events\"", "name = \"event\""), ["breaking readers writers"]);
}

#[test]
fn report_names_file_line_and_reason() {
    let text = report_text(&diff(&parse(BASE), &parse(&BASE.replace("max_len = 100", "max_len = 50"))));
    let expected = "t.toml:25:6: breaking for writers, data: key.recent: `max_len` 100 became 50: keys may exceed it\n\
                    1 breaking, 0 migration, 0 compatible\n";
    assert_eq!(text, expected);
}

#[test]
fn edits_of_streams_fields_and_binary_values_are_classified() {
    let change = |kind: &str, from: &str, to: &str| {
        let schema = |rules: &str| {
            let head = "[schema]\nname = \"t\"\nversion = 1\n[key.k]\npattern = \"k\"\n";
            parse(&format!("{head}type = \"{kind}\"\n{rules}\n"))
        };
        diff(&schema(from), &schema(to)).iter().map(|change| change.class.as_str()).collect::<Vec<_>>()
    };
    assert_eq!(change("stream", "groups = [\"a\"]", "groups = [\"a\", \"b\"]"), ["compatible"]);
    assert_eq!(change("stream", "groups = [\"a\", \"b\"]", "groups = [\"a\"]"), ["breaking"]);
    assert_eq!(change("stream", "", "groups = []"), ["breaking"]);
    assert_eq!(change("stream", "groups = []", ""), ["compatible"]);
    assert_eq!(change("stream", "max_pending = 5", "max_pending = 4"), ["migration"]);
    assert_eq!(change("stream", "max_age = \"1h\"", "max_age = \"2h\""), ["compatible"]);
    assert_eq!(change("stream", "", "max_age = \"2h\""), ["breaking"]);
    assert_eq!(
        change("hash", "field_ttl = { max = \"1h\" }", "field_ttl = { max = \"2h\" }"),
        ["compatible"]
    );
    assert_eq!(change("hash", "field_ttl = { max = \"2h\" }", "field_ttl = { max = \"1h\" }"), ["breaking"]);
    assert_eq!(change("string", "value = { msgpack = 5 }", "value = { msgpack = 5 }"), [""; 0]);
    assert_eq!(change("string", "value = { msgpack = 5 }", "value = { msgpack = 4 }"), ["breaking"]);
    assert_eq!(change("string", "value = { bitmap = 5 }", "value = \"hyperloglog\""), ["breaking"]);
    assert_eq!(change("zset", "score = \"geo\"", "score = \"geo\""), [""; 0]);
}
