//! For any ids, a key parses to the family and the ids that it was built from; the matcher agrees with a naive one; no text
//! makes the parser panic.

use std::sync::LazyLock;

use hob_schema::{Catalog, Family, IdForm, Keyspace, Layout, Schema, Segment};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use crate::{SERVICES, schema_path};

fn text_of(name: &str) -> String {
    std::fs::read_to_string(schema_path(name)).unwrap()
}

/// Patterns that do not occur in the five files.
const ODD: &str = r#"
[schema]
name = "odd"
version = 1
prefix = "o:"
[ids]
r = { raw = ": /" }
b = {}
c = { not = ["mid", "x"] }
n = { form = "int", range = [5, 5000], step = 5 }
w = { one_of = ["eta", "zeta", "b"] }
[key.both_ends]
pattern = "ends:<r>:mid:<b>:<c>"
type = "string"
tag = "b"
[key.own_tag]
pattern = "{<b>}:own:<n>"
type = "string"
tag = "b"
[key.words]
pattern = "<w>:<b>:<c>"
type = "string"
tag = "c"
[key.sharded]
pattern = "sh:<b>:<r>"
type = "string"
tag = "shard"
[key.sharded_by]
pattern = "by:<b>:<r>:<n>"
type = "string"
tag = { shard_by = "r" }
[key.whole]
pattern = "all"
type = "string"
tag = "shard"
"#;

static TEXTS: LazyLock<Vec<String>> =
    LazyLock::new(|| SERVICES.iter().map(|name| text_of(name)).chain([ODD.to_owned()]).collect());

fn catalog(layout: Layout) -> &'static Catalog {
    static PLAIN: LazyLock<Catalog> = LazyLock::new(|| build(Layout::Plain));
    static TAGGED: LazyLock<Catalog> = LazyLock::new(|| build(Layout::Tagged));
    match layout {
        Layout::Plain => &PLAIN,
        Layout::Tagged => &TAGGED,
    }
}

fn build(layout: Layout) -> Catalog {
    let schemas = TEXTS.iter().map(|text| Schema::parse("t.toml", text).unwrap()).collect();
    Catalog::new(schemas, layout).unwrap()
}

/// Texts that resemble parts of keys.
fn keylike_text() -> impl Strategy<Value = String> {
    let pieces = select(vec![
        ":", "::", "{", "}", "*", "?", "[", "]", "\\", "%", "%3A", "%25", "\n", "\0", " ", "/", "_", "\"",
        "'", "total", "online", "user", "recent", "a", "0", "42", "GET ", "é", "사", "::1", "{0}:", ":{0}",
        "\u{7f}", "\u{85}",
    ]);
    prop_oneof![vec(pieces, 1..6).prop_map(|pieces| pieces.concat()), any::<String>(), "[a-zA-Z0-9_-]{1,20}",]
}

/// A valid id of this form.
fn id_text(form: &IdForm) -> BoxedStrategy<String> {
    match form {
        IdForm::Text(_) | IdForm::Verbatim { .. } => keylike_text().boxed(),
        IdForm::OneOf(words) => select(words.clone()).boxed(),
        IdForm::Int { min, max, step } => {
            let (min, max, step) = (min / step, max / step, *step);
            (min..=max).prop_map(move |n| (n * step).to_string()).boxed()
        }
        IdForm::Hour => (2000..2100u32, 1..13u32, 1..29u32, 0..24u32)
            .prop_map(|(y, m, d, h)| format!("{y}-{m:02}-{d:02}_{h:02}"))
            .boxed(),
        IdForm::Endpoint { .. } => prop_oneof![
            ("[A-Z]{1,7}", keylike_text())
                .prop_map(|(method, path)| format!("{method} /{}", path.replace(' ', ""))),
            "[a-z]{1,8}",
        ]
        .boxed(),
    }
}

#[derive(Debug, Clone)]
struct Built {
    layout: Layout,
    schema: usize,
    family: usize,
    ids: Vec<String>,
    shard: usize,
}

fn built() -> impl Strategy<Value = Built> {
    let families: Vec<(usize, usize)> =
        catalog(Layout::Plain).families().map(|(id, _)| (id.schema, id.family)).collect();
    (select(families), select(vec![Layout::Plain, Layout::Tagged]), 0..4usize).prop_flat_map(
        |((schema, family), layout, shard)| {
            let declared = catalog(layout).spaces()[schema].schema();
            let ids: Vec<_> =
                declared.families[family].pattern.ids().map(|id| id_text(&declared.ids[id].form)).collect();
            ids.prop_map(move |ids| Built { layout, schema, family, ids, shard })
        },
    )
}

fn key_of(space: &Keyspace, built: &Built) -> Option<Vec<u8>> {
    let schema = space.schema();
    let rules = schema.families[built.family].pattern.ids().map(|id| &schema.ids[id]);
    if rules.zip(&built.ids).any(|(rule, id)| rule.check(id).is_err()) {
        return None;
    }
    let ids: Vec<&str> = built.ids.iter().map(String::as_str).collect();
    let sharded = matches!(schema.families[built.family].tag, hob_schema::Tag::Shard { by: None });
    let shard = sharded.then(|| space.shards().nth(built.shard).unwrap_or_default());
    Some(space.key(built.family, &ids, shard).into_bytes())
}

/// Tries every way to split the key, for every family, in the plain layout.
fn naive<'c>(catalog: &'c Catalog, key: &[u8]) -> Vec<(&'c str, Vec<String>)> {
    let mut found = Vec::new();
    for space in catalog.spaces() {
        let Some(rest) = key.strip_prefix(space.schema().prefix.value.as_bytes()) else {
            continue;
        };
        for family in &space.schema().families {
            let mut readings = Vec::new();
            cut(space.schema(), &family.pattern.segments, rest, &mut Vec::new(), &mut readings);
            found.extend(readings.into_iter().map(|ids| (name_of(family), ids)));
        }
    }
    found
}

fn name_of(family: &Family) -> &str {
    &family.pattern.text
}

fn cut(
    schema: &Schema,
    segments: &[Segment],
    rest: &[u8],
    ids: &mut Vec<String>,
    readings: &mut Vec<Vec<String>>,
) {
    match segments.split_first() {
        None if rest.is_empty() => readings.push(ids.clone()),
        None => {}
        Some((Segment::Literal(text), after)) => {
            if let Some(rest) = rest.strip_prefix(text.as_bytes()) {
                cut(schema, after, rest, ids, readings);
            }
        }
        Some((Segment::Id(id), after)) => {
            for end in 1..=rest.len() {
                if let Some(text) = schema.ids[*id].decode(&rest[..end]) {
                    ids.push(text.into_owned());
                    cut(schema, after, &rest[end..], ids, readings);
                    ids.pop();
                }
            }
        }
    }
}

/// A valid key with a few bytes changed.
fn near_key() -> impl Strategy<Value = Vec<u8>> {
    (built(), vec((any::<prop::sample::Index>(), any::<u8>()), 0..3), 0..3usize).prop_map(
        |(built, edits, cut)| {
            let space = &catalog(Layout::Plain).spaces()[built.schema];
            let mut key = key_of(space, &built).unwrap_or_else(|| built.ids.concat().into_bytes());
            for (at, byte) in edits {
                if !key.is_empty() {
                    let at = at.index(key.len());
                    key[at] = byte;
                }
            }
            key.truncate(key.len().saturating_sub(cut));
            key
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: hob_testkit::budget(2_000, 100_000), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn key_parses_to_the_ids_that_it_was_built_from(built in built()) {
        let catalog = catalog(built.layout);
        if let Some(key) = key_of(&catalog.spaces()[built.schema], &built) {
            let found = catalog.find(&key).expect("the key of a family belongs to it");
            prop_assert_eq!((found.family.schema, found.family.family), (built.schema, built.family));
            prop_assert_eq!(found.ids.iter().map(ToString::to_string).collect::<Vec<_>>(), built.ids);
            prop_assert!(!key.iter().any(u8::is_ascii_control));
        }
    }

    #[test]
    fn matcher_agrees_with_a_naive_one(key in near_key()) {
        let catalog = catalog(Layout::Plain);
        let found = catalog.find(&key);
        prop_assert_eq!(catalog.family_of(&key), found.as_ref().map(|found| found.family));
        let expected = naive(catalog, &key);
        prop_assert!(expected.len() <= 1, "{:?}", expected);
        let found: Vec<(&str, Vec<String>)> = found
            .map(|found| (name_of(catalog.family(found.family)), found.ids.iter().map(ToString::to_string).collect()))
            .into_iter()
            .collect();
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn no_text_makes_the_parser_panic(text in any::<String>()) {
        let _ = Schema::parse("t.toml", &text);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: hob_testkit::budget(400, 20_000), failure_persistence: None, ..ProptestConfig::default() })]

    /// A valid file with parts removed, repeated or replaced. An error has a position inside the file.
    #[test]
    fn no_damaged_schema_makes_the_parser_panic(
        file in 0..TEXTS.len(),
        edits in vec((any::<prop::sample::Index>(), 0..40usize, damaging_text()), 1..4),
    ) {
        let mut text = TEXTS[file].clone();
        for (at, len, insert) in edits {
            let mut start = at.index(text.len());
            while !text.is_char_boundary(start) {
                start -= 1;
            }
            let mut end = (start + len).min(text.len());
            while !text.is_char_boundary(end) {
                end += 1;
            }
            text.replace_range(start..end, &insert);
        }
        if let Err(errors) = Schema::parse("t.toml", &text) {
            let lines = text.lines().count() as u32 + 1;
            prop_assert!(!errors.0.is_empty());
            prop_assert!(errors.0.iter().all(|error| (1..=lines).contains(&error.position.line)));
        }
    }
}

fn damaging_text() -> impl Strategy<Value = String> {
    prop_oneof![
        Just(String::new()),
        "[\\[\\]{}=\",.<>a-z0-9\n #']{0,12}",
        select(vec![
            "[key.x]\n",
            "= 99999999999999999999",
            "= -1",
            "= []",
            "= {}",
            "\"<\"",
            "\"<>\"",
            "[[key]]",
            "= 1e999",
            "\\"
        ])
        .prop_map(str::to_owned),
        any::<String>(),
    ]
}

const PIECES: &str = r#"
[schema]
name = "t"
version = 1
[ids]
text = {}
named = { not = ["total", "tps"] }
number = { form = "int" }
raw = { raw = ":" }
word = { one_of = ["tps", "users", "total"] }
hour = { form = "hour" }
"#;

/// A schema of a few random patterns, which may overlap.
fn random_schema() -> impl Strategy<Value = String> {
    let piece = select(vec![
        "a", "b", "total", "tps", "7", "<text>", "<named>", "<number>", "<raw>", "<word>", "<hour>",
    ]);
    vec(vec(piece, 1..4), 2..5).prop_map(|patterns| {
        let mut text = PIECES.to_owned();
        for (number, pieces) in patterns.iter().enumerate() {
            text += &format!("[key.k{number}]\npattern = \"{}\"\ntype = \"set\"\n", pieces.join(":"));
        }
        text
    })
}

/// Short keys that often match the patterns.
fn short_key() -> impl Strategy<Value = String> {
    let piece = select(vec!["a", "b", "total", "tps", "users", "7", "0", "x", "2024-09-17_14", "%3A", ""]);
    vec(piece, 1..5).prop_map(|pieces| pieces.join(":"))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: hob_testkit::budget(1_000, 50_000), failure_persistence: None, ..ProptestConfig::default() })]

    /// In an accepted schema no key matches two families, and the matcher finds every key that the naive matcher finds.
    #[test]
    fn valid_schema_has_no_key_of_two_families(text in random_schema(), keys in vec(short_key(), 20)) {
        let Ok(schema) = Schema::parse("t.toml", &text) else { return Ok(()) };
        let catalog = Catalog::new(vec![schema], Layout::Plain).unwrap();
        for key in keys {
            let readings = naive(&catalog, key.as_bytes());
            prop_assert!(readings.len() <= 1, "{} is {:?}", key, readings);
            prop_assert_eq!(catalog.find(key.as_bytes()).is_some(), readings.len() == 1);
        }
    }

    /// A reported overlap names a key that matches both families. Hours are an exception: the overlap check accepts more
    /// texts than the parser.
    #[test]
    fn reported_overlap_shows_a_key_of_two_families(text in random_schema()) {
        let Err(errors) = Schema::parse("t.toml", &text) else { return Ok(()) };
        for error in errors.0.iter().filter(|error| error.message.contains(" matches both ")) {
            let words: Vec<&str> = error.message.split(['`', '"']).collect();
            let [_, key, _, left, _, right, _] = words[..] else { panic!("{}", error.message) };
            for name in [left, right] {
                let family = text.split("[key.").find(|block| block.starts_with(&format!("{name}]"))).unwrap();
                // A pattern that reads a key in two ways is an error by itself.
                let Ok(alone) = Schema::parse("t.toml", &format!("{PIECES}[key.{family}")) else { continue };
                let catalog = Catalog::new(vec![alone], Layout::Plain).unwrap();
                prop_assert!(family.contains("<hour>") || catalog.find(key.as_bytes()).is_some(), "{} {}", key, family);
            }
        }
    }
}
