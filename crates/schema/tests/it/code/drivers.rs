//! Programs in each language that build the keys of `cases.json` and print them, and programs that use the generated
//! code as people do. The tools of the language check the latter, including the mistakes in them.

use std::fmt::Write as _;

use hob_schema::{Schema, Tag};

/// A key or a channel of the schema: its name, the types of its arguments and whether it takes a shard.
struct Call {
    name: String,
    method: String,
    types: Vec<String>,
    shard: bool,
}

fn calls(schema: &Schema) -> Vec<Call> {
    let types = |ids: &mut dyn Iterator<Item = usize>| {
        ids.map(|id| capital(schema.ids[id].of.as_ref().unwrap_or(&schema.ids[id].name))).collect()
    };
    let families = schema.families.iter().map(|family| Call {
        name: family.name.clone(),
        method: family.name.clone(),
        types: types(&mut family.pattern.ids()),
        shard: matches!(family.tag, Tag::Shard { by: None }),
    });
    let notice = schema.channel("notice").map(|channel| Call {
        name: channel.name.clone(),
        method: "notice_channel".into(),
        types: types(&mut channel.pattern.ids()),
        shard: false,
    });
    families.chain(notice).collect()
}

fn capital(word: &str) -> String {
    word[..1].to_uppercase() + &word[1..]
}

pub(super) fn javascript(schema: &Schema) -> String {
    let mut methods = String::new();
    for call in calls(schema) {
        let method = call.method.replace("_channel", "Channel");
        let ids: Vec<String> = call
            .types
            .iter()
            .enumerate()
            .map(|(at, name)| format!("m.{}(ids[{at}])", javascript_type(name)))
            .collect();
        let shard = if call.shard { ", k.shard(shard)" } else { "" };
        let arguments = format!("{}{shard}", ids.join(", "));
        let arguments = arguments.trim_start_matches(", ");
        let _ = writeln!(methods, "  {}: (k, ids, shard) => k.{method}({arguments}),", call.name);
    }
    format!(
        r#"const m = require("./every_form_keys.js");
const methods = {{
{methods}}};
const build = ({{ layout, prefix, name, ids, shard }}) => {{
  try {{
    const env = prefix === null ? {{}} : {{ EVERY_PREFIX: prefix }};
    return methods[name](new m.Keys(layout, env), ids, shard);
  }} catch (error) {{
    if (error instanceof m.InvalidId || error instanceof RangeError) return null;
    throw error;
  }}
}};
console.log(JSON.stringify(require("./cases.json").map(build)));
"#
    )
}

/// A type must not hide JavaScript's `Number`.
fn javascript_type(name: &str) -> &str {
    if name == "Number" { "Number_" } else { name }
}

pub(super) fn python(schema: &Schema) -> String {
    let mut methods = String::new();
    for call in calls(schema) {
        let keyword = matches!(call.method.as_str(), "class" | "global");
        let method = format!("{}{}", call.method, if keyword { "_" } else { "" });
        // A word of a list is a plain string.
        let id = |(at, name): (usize, &String)| match name.as_str() {
            "Color" | "Level" => format!("ids[{at}]"),
            _ => format!("m.{name}(ids[{at}])"),
        };
        let ids: Vec<String> = call.types.iter().enumerate().map(id).collect();
        let shard = if call.shard { ", k.shard(shard)" } else { "" };
        let arguments = format!("{}{shard}", ids.join(", "));
        let arguments = arguments.trim_start_matches(", ");
        let _ = writeln!(methods, "    \"{}\": lambda k, ids, shard: k.{method}({arguments}),", call.name);
    }
    format!(
        r#"import json
import every_form_keys as m

methods = {{
{methods}}}


def build(case):
    env = {{}} if case["prefix"] is None else {{"EVERY_PREFIX": case["prefix"]}}
    try:
        return methods[case["name"]](m.Keys(case["layout"], env), case["ids"], case["shard"])
    except ValueError:
        return None


print(json.dumps([build(case) for case in json.load(open("cases.json", encoding="utf-8"))]))
"#
    )
}

pub(super) fn go(schema: &Schema) -> String {
    let mut methods = String::new();
    for call in calls(schema) {
        let method = capital(&call.method).replace("_channel", "Channel");
        let _ = writeln!(methods, "\tcase \"{}\":", call.name);
        let mut arguments = Vec::new();
        for (at, name) in call.types.iter().enumerate() {
            let name = if name == "Id" { "ID" } else { name };
            let _ = writeln!(
                methods,
                "\t\tid{at}, err := m.New{name}(c.IDs[{at}])\n\t\tif err != nil {{\n\t\t\treturn nil\n\t\t}}"
            );
            arguments.push(format!("id{at}"));
        }
        if call.shard {
            methods += "\t\tshard, err := k.Shard(c.Shard)\n\t\tif err != nil {\n\t\t\tpanic(err)\n\t\t}\n";
            arguments.push("shard".into());
        }
        let _ = writeln!(methods, "\t\tkey = k.{method}({})", arguments.join(", "));
    }
    format!(
        r#"package main

import (
	"encoding/json"
	"os"

	m "example.com/generated/everyformkeys"
)

type testCase struct {{
	Layout string   `json:"layout"`
	Prefix *string  `json:"prefix"`
	Name   string   `json:"name"`
	IDs    []string `json:"ids"`
	Shard  uint32   `json:"shard"`
}}

func build(c testCase) *string {{
	layout := m.Plain
	if c.Layout == "tagged" {{
		layout = m.Tagged
	}}
	k, err := m.FromEnv(layout, func(name string) (string, bool) {{
		if name != "EVERY_PREFIX" || c.Prefix == nil {{
			return "", false
		}}
		return *c.Prefix, true
	}})
	if err != nil {{
		return nil
	}}
	var key string
	switch c.Name {{
{methods}	default:
		panic(c.Name)
	}}
	return &key
}}

func main() {{
	text, err := os.ReadFile("cases.json")
	if err != nil {{
		panic(err)
	}}
	var cases []testCase
	if err := json.Unmarshal(text, &cases); err != nil {{
		panic(err)
	}}
	keys := []*string{{}}
	for _, c := range cases {{
		keys = append(keys, build(c))
	}}
	if err := json.NewEncoder(os.Stdout).Encode(keys); err != nil {{
		panic(err)
	}}
}}
"#
    )
}

pub(super) const TYPESCRIPT_USAGE: &str = r#"
import * as m from "./every_form_keys";

const keys = new m.Keys("tagged");
const word: m.Word = m.Word("a:b");
const key: string = keys.pair(word, m.Id("7"));
if (key !== "app:p:a%3Ab:{7}") throw new Error(key);
// @ts-expect-error: a plain text is not checked
keys.word("plain");
// @ts-expect-error: one id is not another
try { keys.pair(m.Id("7"), word); } catch { /* too long */ }
keys.words("dark_blue", "2xx");
// @ts-expect-error: not a word of the list
try { keys.words("green", "2xx"); throw new Error("accepted"); } catch (error) { if (!(error instanceof m.InvalidId)) throw error; }
if (keys.numbers(m.Code(404), m.Number_(BigInt(6))) !== "app:n:404:6") throw new Error("numbers");
const thing: m.Thing = { name: "x", kind: "a", tags: [], when: 1, more: true };
const items: m.TwiceItem[] = [thing];
const fields: m.PairFields = { count: "3", class: "1", data: JSON.stringify(items) };
// @ts-expect-error: not a number
fields.count = "three";
const ttl: number = m.WORD_TTL_MS;
if (ttl !== 90_000 || m.PAIR_MAX_KEYS !== 1000 || m.WORDS_TYPE !== "ReJSON-RL") throw new Error("limits");
if (new m.Keys("plain", { FIXED_CHANNEL: "other" }).fixedChannel() !== "other") throw new Error("channel");
try { m.Word("\ud800"); throw new Error("accepted"); } catch (error) { if (!(error instanceof m.InvalidId)) throw error; }
"#;

pub(super) const PYTHON_USAGE: &str = r#"
from datetime import timedelta
from typing import Callable, List

import every_form_keys as m

keys = m.Keys("tagged")
word: m.Word = m.Word("a:b")
key: str = keys.pair(word, m.Id("7"))
assert key == "app:p:a%3Ab:{7}", key
keys.word("plain")  # type: ignore[arg-type]
keys.pair(m.Id("7"), m.Id("8"))  # type: ignore[arg-type]
keys.words("dark_blue", "2xx")
assert keys.numbers(m.Code(404), m.Number("6")) == "app:n:404:6"
thing: m.Thing = {"name": "x", "kind": "a", "tags": [], "when": 1}
items: List[m.TwiceItem] = [thing]
bad: m.Thing = {"name": "x", "kind": "c", "tags": [], "when": 1}  # type: ignore[typeddict-item]
fields: m.PairFields = {"count": "3", "class": "1", "data": "{}", "odd-name": "1.5"}
ttl: timedelta = m.WORD_TTL
assert ttl.total_seconds() == 90 and m.PAIR_MAX_KEYS == 1000 and m.WORDS_TYPE == "ReJSON-RL"
assert m.Keys("plain", {"FIXED_CHANNEL": "other"}).fixed_channel() == "other"


def refused(make: Callable[[], object]) -> bool:
    try:
        make()
    except m.InvalidId:
        return True
    return False


assert refused(lambda: m.Word("\ud800"))
assert refused(lambda: m.Code(True))
assert refused(lambda: keys.words("green", "2xx"))  # type: ignore[arg-type]
"#;

pub(super) const GO_USAGE: &str = r#"package everyformkeys

import (
	"encoding/json"
	"errors"
	"testing"
	"time"
)

func TestUsage(t *testing.T) {
	keys := New(Tagged)
	word, err := NewWord("a:b")
	if err != nil {
		t.Fatal(err)
	}
	id, err := NewID("7")
	if err != nil {
		t.Fatal(err)
	}
	if key := keys.Pair(word, id); key != "app:p:a%3Ab:{7}" {
		t.Fatal(key)
	}
	_, err = NewWord("\xff")
	var invalid *InvalidID
	if !errors.As(err, &invalid) {
		t.Fatal(err)
	}
	if _, err := NewCodeFromInt(404); err != nil {
		t.Fatal(err)
	}
	if key := keys.Words(ColorDarkBlue, mustLevel(t)); key != "app:c:dark_blue:2xx" {
		t.Fatal(key)
	}
	if WordTTL != 90*time.Second || PairMaxKeys != 1000 || WordsType != "ReJSON-RL" {
		t.Fatal("limits")
	}
	text, err := json.Marshal(TwiceItem{Name: "x", Kind: "a", Tags: []string{}, When: 1})
	if err != nil || string(text) != `{"name":"x","kind":"a","tags":[],"when":1}` {
		t.Fatal(string(text), err)
	}
	fields := PairFields{Count: 3, Class: true, OddName: 1.5}
	if fields.Count != 3 {
		t.Fatal(fields)
	}
	env := func(name string) (string, bool) { return "other", name == "FIXED_CHANNEL" }
	renamed, err := FromEnv(Plain, env)
	if err != nil || renamed.FixedChannel() != "other" {
		t.Fatal(renamed, err)
	}
	defer func() {
		if recover() == nil {
			t.Fatal("the zero value is an id")
		}
	}()
	keys.Word(Word{})
}

func mustLevel(t *testing.T) Level {
	level, err := NewLevel("2xx")
	if err != nil {
		t.Fatal(err)
	}
	return level
}
"#;
