//! Keys to build in every language: ids of each form, right, almost right and odd, and what Rust makes of them.

use hob_schema::{IdForm, IdRule, Keyspace, Layout, Schema, Tag};
use proptest::prelude::*;
use proptest::sample::select;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use serde::Serialize;

/// Cases for each family in each layout.
const PER_FAMILY: usize = 150;

#[derive(Debug, Serialize)]
pub(super) struct Case {
    layout: &'static str,
    prefix: Option<String>,
    name: String,
    ids: Vec<String>,
    shard: Option<u32>,
    /// What Rust builds; `None` if it refuses an id or the prefix.
    #[serde(skip)]
    pub(super) key: Option<String>,
}

pub(super) fn cases(schema: &Schema) -> Vec<Case> {
    let mut runner = TestRunner::deterministic();
    let mut cases = Vec::new();
    for (layout, word) in [(Layout::Plain, "plain"), (Layout::Tagged, "tagged")] {
        for (index, family) in schema.families.iter().enumerate() {
            let rules: Vec<&IdRule> = family.pattern.ids().map(|id| base(schema, id)).collect();
            for _ in 0..PER_FAMILY {
                let ids: Vec<String> = rules.iter().map(|rule| pick(&text(rule), &mut runner)).collect();
                let prefix = pick(&prefix(), &mut runner);
                let space = keyspace(schema, layout, prefix.as_deref());
                let shard = matches!(family.tag, Tag::Shard { by: None }).then(|| match layout {
                    Layout::Plain => 0,
                    Layout::Tagged => pick(&(0..7u32).boxed(), &mut runner),
                });
                let key = space.filter(|_| accepted(&rules, &ids)).map(|space| {
                    let texts: Vec<&str> = ids.iter().map(String::as_str).collect();
                    space.key(index, &texts, shard.map(|number| space.shard(number).unwrap()))
                });
                cases.push(Case { layout: word, prefix, name: family.name.clone(), ids, shard, key });
            }
        }
    }
    cases.extend((0..PER_FAMILY).map(|_| notice(schema, &mut runner)));
    let refused = cases.iter().filter(|case| case.key.is_none()).count();
    assert!(refused > cases.len() / 10 && refused < cases.len() * 8 / 10, "{refused} of {}", cases.len());
    cases
}

/// A channel.
fn notice(schema: &Schema, runner: &mut TestRunner) -> Case {
    let index = schema.channels.iter().position(|channel| channel.name == "notice").unwrap();
    let rule = schema.id("word").unwrap();
    let id = pick(&text(rule), runner);
    let space = keyspace(schema, Layout::Plain, None).unwrap();
    let key = rule.check(&id).is_ok().then(|| space.channel(index, &[&id]));
    Case { layout: "plain", prefix: None, name: "notice".into(), ids: vec![id], shard: None, key }
}

/// The id that the typed key checks: the one of which it is another encoding.
fn base(schema: &Schema, id: usize) -> &IdRule {
    let rule = &schema.ids[id];
    rule.of.as_ref().map_or(rule, |of| schema.id(of).unwrap())
}

fn accepted(rules: &[&IdRule], ids: &[String]) -> bool {
    rules.iter().zip(ids).all(|(rule, id)| rule.check(id).is_ok())
}

fn keyspace(schema: &Schema, layout: Layout, prefix: Option<&str>) -> Option<Keyspace> {
    let mut schema = schema.clone();
    let env = |name: &str| prefix.filter(|_| name == "EVERY_PREFIX").map(str::to_owned);
    schema.apply_env(&env).ok()?;
    Some(Keyspace::new(schema, layout))
}

fn pick<T: std::fmt::Debug>(strategy: &BoxedStrategy<T>, runner: &mut TestRunner) -> T {
    strategy.new_tree(runner).unwrap().current()
}

fn prefix() -> BoxedStrategy<Option<String>> {
    prop_oneof![
        8 => Just(None),
        2 => select(&["", "x:", "ä-", "a/b.", "1"][..]).prop_map(|text| Some(text.to_owned())),
        1 => select(&["a b", "{x}", "{a", "{a}{b}", "{}", "a*", "\n", "\u{85}", "50%", "a'b", "<x>"][..]).prop_map(|text| Some(text.to_owned())),
    ]
    .boxed()
}

/// Texts that look like this id, and any others.
fn text(rule: &IdRule) -> BoxedStrategy<String> {
    let like = match &rule.form {
        IdForm::Text(_) | IdForm::Verbatim { .. } => "[a-z0-9:./ %é사-]{1,10}".boxed(),
        IdForm::Int { .. } => prop_oneof![
            3 => (400u64..600).prop_map(|number| number.to_string()),
            3 => (0u64..1000).prop_map(|number| (number * 3_600_000).to_string()),
            1 => any::<u64>().prop_map(|number| number.to_string()),
            1 => select(&[
                "0", "00", "03", "+3", "-3", "3.0", "１２", "18446744073709551615", "18446744073709551616",
                "9999997200000", "10000000800000", "99999999999999999999", " 3", "3\n",
            ][..]).prop_map(str::to_owned),
        ]
        .boxed(),
        IdForm::OneOf(words) => select(words.clone()).boxed(),
        IdForm::Hour => prop_oneof![
            6 => (0u32..10_000, 0u32..14, 0u32..33, 0u32..26)
                .prop_map(|(year, month, day, hour)| format!("{year:04}-{month:02}-{day:02}_{hour:02}")),
            2 => (select(&[0, 1900, 2000, 2023, 2024, 2100][..]), 28u32..30)
                .prop_map(|(year, day)| format!("{year:04}-02-{day}_00")),
            1 => select(&["-001-01-01_00", "2024-9-17_014", "2024-09-17 14", "+024-01-01_00", "2024-01-01_1\n"][..])
                .prop_map(str::to_owned),
        ]
        .boxed(),
        IdForm::Endpoint { .. } => prop_oneof![
            6 => "(GET|PUT|M-SEARCH) /([a-z_:*'~é]|/|%2F|%7B|%25){0,6}".boxed(),
            2 => "(GET|Get|) ?/?([a-z{}?% \"]|%2A|%27|%7b|%zz){0,4}".boxed(),
            1 => select(&["other", "Other", "GET", "GET /a\n", "GET  /a"][..]).prop_map(str::to_owned).boxed(),
        ]
        .boxed(),
    };
    let odd = select(
        &[
            "a", "Z", "7", ":", "/", " ", "*", "?", "[", "]", "{", "}", "\\", "%", "\"", "'", "\n", "\0",
            "\u{1f}", "\u{7f}", "\u{80}", "\u{a0}", "é", "사", "😀", "\u{2028}", "\u{feff}", "%3A", "%61",
            "total", "$&", "`", "<", ">", "+", ".", "_", "\u{fffd}",
        ][..],
    );
    let odd = prop::collection::vec(odd, 0..6).prop_map(|parts| parts.concat());
    let long = ("[a-zé😀]{1,3}", 1usize..20).prop_map(|(text, times)| text.repeat(times));
    prop_oneof![6 => like, 3 => odd, 1 => long, 1 => Just("total".to_owned())].boxed()
}
