//! Typed keys in TypeScript.

use std::fmt::Write as _;

use super::names::{self, Names, Scope, argument, camel, is_identifier, pascal, screaming};
use super::{
    Amount, Language, Parts, SourceFile, channel_doc, channel_expression, constants, declared_fields,
    expression, family_doc, field_doc, form_word, header, id_doc, literal, literals, named_fields,
    parameters, raw_chars, shape_of, shard_argument, single_value, templates, write_parts,
};
use crate::model::id::{IdForm, IdRule};
use crate::model::value::{JsonForm, Shape, Value};
use crate::model::{Channel, Family, Presence, Schema, Tag};

const RUNTIME: &str = include_str!("typescript.ts");
/// The names of the runtime that its users need. All others start with an underscore, unlike any name of a schema.
const NAMES: [&str; 6] = ["Layout", "Shard", "IntText", "FloatText", "InvalidId", "Keys"];
const METHODS: [&str; 8] =
    ["constructor", "prefix", "layout", "shards", "shard", "shardOf", "shardCount", "channelName"];

const PARTS: Parts = Parts { id, shape: shape_type, family: family_items, family_method, channel_method };

pub(super) fn file(schema: &Schema, names: &mut Names) -> SourceFile {
    names.reserve(Scope::Module, &NAMES);
    names.reserve(Scope::Keys, &METHODS);
    names.reserve(Scope::Keys, &["channelNames"]);
    let mut out = format!("// {}\n/* eslint-disable */\n\n{RUNTIME}", header(schema));
    let (items, methods) = write_parts(schema, names, &PARTS);
    out += &items;
    let _ = write!(out, "\n{}", class(schema, &methods));
    SourceFile { path: format!("{}_keys.ts", schema.name), text: out }
}

fn id(id: &IdRule, names: &mut Names) -> String {
    let rule = format!("\nconst {}: _Rule = {};\n", rule_name(id), rule(id));
    if id.of.is_none() { rule + &id_type(id, names) } else { rule }
}

fn type_name(name: &str) -> String {
    names::type_name(name, Language::TypeScript)
}

fn rule_name(id: &IdRule) -> String {
    format!("_{}_RULE", screaming(&id.name))
}

fn rule(id: &IdRule) -> String {
    let form = match &id.form {
        IdForm::Text(raw) => format!("raw: {}", literal(&raw_chars(*raw))),
        IdForm::Int { min, max, step } => format!("min: \"{min}\", most: \"{max}\", step: \"{step}\""),
        IdForm::OneOf(words) => format!("words: [{}]", literals(words)),
        IdForm::Hour => String::new(),
        IdForm::Endpoint { space } => format!("space: {}", literal(&char::from(*space).to_string())),
        IdForm::Verbatim { without } => format!("without: {}", literal(without.chars())),
    };
    let comma = if form.is_empty() { "" } else { ", " };
    format!(
        "{{ name: {}, max: {}, not: [{}], form: \"{}\"{comma}{form} }}",
        literal(&id.name),
        id.max,
        literals(&id.not),
        form_word(&id.form)
    )
}

fn id_type(id: &IdRule, names: &mut Names) -> String {
    let name = names.take(Scope::Module, type_name(&id.name), &format!("the id `{}`", id.name));
    let (form, given, text) = match &id.form {
        IdForm::OneOf(words) => (union(words), "string", "value"),
        IdForm::Int { .. } => (format!("_Id<\"{}\">", id.name), "string | number | bigint", "String(value)"),
        _ => (format!("_Id<\"{}\">", id.name), "string", "value"),
    };
    format!(
        "{}export type {name} = {form};\n/** Throws {{@link InvalidId}} if the text cannot be this id. */\n\
         export const {name} = (value: {given}): {name} => check({}, {text}) as {name};\n",
        doc("", &[id_doc(id)]),
        rule_name(id)
    )
}

fn union(words: &[String]) -> String {
    words.iter().map(|word| literal(word)).collect::<Vec<_>>().join(" | ")
}

fn shape_type(shape: &Shape, names: &mut Names) -> String {
    let name = names.take(Scope::Module, type_name(&shape.name), &format!("the shape `{}`", shape.name));
    let mut out = format!("\n/** The JSON object `{}`. */\nexport interface {name} {{\n", shape.name);
    for member in &shape.members {
        let _ = writeln!(
            out,
            "  {}{}: {};",
            property(&member.name),
            optional(member.presence),
            json_type(&member.form)
        );
    }
    if shape.others.is_some() {
        out += "  [member: string]: unknown;\n";
    }
    out + "}\n"
}

fn property(name: &str) -> String {
    if is_identifier(name) { name.to_owned() } else { literal(name) }
}

fn optional(presence: Presence) -> &'static str {
    match presence {
        Presence::Required => "",
        Presence::Optional => "?",
    }
}

fn json_type(form: &JsonForm) -> String {
    match form {
        JsonForm::Any => "unknown".into(),
        JsonForm::Text | JsonForm::Rfc3339 | JsonForm::Iso8601 => "string".into(),
        JsonForm::Int | JsonForm::Number | JsonForm::UnixSeconds | JsonForm::UnixMillis => "number".into(),
        JsonForm::Bool => "boolean".into(),
        JsonForm::OneOf(words) => union(words),
        JsonForm::List(item) => format!("Array<{}>", json_type(item)),
        JsonForm::Shape(name) => type_name(name),
    }
}

/// The type of a value as Redis holds it: a text.
fn text_type(value: &Value, schema: &Schema) -> String {
    match value {
        Value::Int { .. } | Value::UnixSeconds | Value::UnixMillis => "IntText".into(),
        Value::Float { .. } => "FloatText".into(),
        Value::Bool => "\"0\" | \"1\"".into(),
        Value::OneOf(words) => union(words),
        Value::Id(id) => {
            let rule = &schema.ids[*id];
            type_name(rule.of.as_deref().unwrap_or(&rule.name))
        }
        Value::Any | Value::Text { .. } | Value::Rfc3339 | Value::Iso8601 | Value::Json { .. } => {
            "string".into()
        }
        Value::Geo => "FloatText".into(),
        Value::Bitmap { .. } | Value::HyperLogLog | Value::MsgPack { .. } | Value::Protobuf { .. } => {
            "Uint8Array".into()
        }
    }
}

/// The constants of a family and the type of its value.
fn family_items(family: &Family, schema: &Schema, names: &mut Names) -> String {
    let what = format!("the key `{}`", family.name);
    let constant = screaming(&family.name);
    let mut out = String::from("\n");
    let name = names.take(Scope::Module, format!("{constant}_TYPE"), &what);
    let _ = writeln!(out, "export const {name} = {};", literal(family.type_name()));
    for limit in constants(family) {
        let (suffix, number) = match limit.amount {
            Amount::Time(duration) => ("_MS", duration.as_millis().to_string()),
            Amount::Count(count) => ("", count.to_string()),
        };
        let name = format!("{constant}_{}{suffix}", limit.name.to_ascii_uppercase());
        let name = names.take(Scope::Module, name, &what);
        let _ = writeln!(out, "{}export const {name} = {number};", doc("", &[limit.doc]));
    }
    let type_name = pascal(&family.name);
    if let Some((word, value)) = single_value(&family.content) {
        let name = names.take(Scope::Module, type_name + &pascal(word), &what);
        let (form, about) = match shape_of(value) {
            Some(form) => (json_type(form), format!("The {word} of `{}`, once parsed as JSON.", family.name)),
            None => (text_type(value, schema), format!("The {word} of `{}`.", family.name)),
        };
        let _ = writeln!(out, "{}export type {name} = {form};", doc("", &[about]));
    } else if let Some(fields) = declared_fields(&family.content) {
        let name = names.take(Scope::Module, type_name + "Fields", &what);
        let (named, open) = named_fields(fields);
        let mut about = vec![format!("The fields of `{}`.", family.name)];
        about.extend(fields.iter().map(|field| format!("- {}", field_doc(field, schema))));
        let _ = writeln!(out, "{}export interface {name} {{", doc("", &about));
        for (field_name, field) in named {
            let form = text_type(&field.value, schema);
            let _ = writeln!(out, "  {}{}: {form};", property(field_name), optional(field.presence));
        }
        out += if open { "  [field: string]: string | undefined;\n}\n" } else { "}\n" };
    }
    out
}

fn family_method(family: &Family, schema: &Schema, names: &mut Names) -> String {
    let name = names.take(Scope::Keys, camel(&family.name), &format!("the key `{}`", family.name));
    let parameters = parameters(&family.pattern, schema);
    let mut list: Vec<String> = arguments(&parameters, schema);
    let shard = match (shard_argument(family), &family.tag) {
        (Some(by), _) => format!("this.shardOf({})", argument(&parameters[by].name, Language::TypeScript)),
        (None, Tag::Shard { .. }) => {
            list.push("shard: Shard".into());
            "shard".into()
        }
        _ => String::new(),
    };
    let [plain, tagged] =
        templates(family).map(|parts| expression(&parts, "this.prefix", part(&parameters, schema), &shard));
    let result =
        if plain == tagged { plain } else { format!("this.layout === \"tagged\" ? {tagged} : {plain}") };
    let doc = doc("  ", &family_doc(family, schema));
    format!("\n{doc}  {name}({}): string {{\n    return {result};\n  }}\n", list.join(", "))
}

fn channel_method(channel: &Channel, schema: &Schema, names: &mut Names) -> String {
    let what = format!("the channel `{}`", channel.name);
    let name = names.take(Scope::Keys, camel(&channel.name) + "Channel", &what);
    let parameters = parameters(&channel.pattern, schema);
    let list = arguments(&parameters, schema).join(", ");
    let text = channel_expression(channel, part(&parameters, schema));
    let (doc, key) = (doc("  ", &channel_doc(channel, schema)), literal(&channel.name));
    format!("\n{doc}  {name}({list}): string {{\n    return this.channelName({key}, {text});\n  }}\n")
}

fn arguments(parameters: &[super::Parameter], schema: &Schema) -> Vec<String> {
    let argument = |parameter: &super::Parameter| {
        let id = &schema.ids[parameter.id];
        format!("{}: {}", argument(&parameter.name, Language::TypeScript), type_name(&id.name))
    };
    parameters.iter().map(argument).collect()
}

fn part<'p>(parameters: &'p [super::Parameter], schema: &'p Schema) -> impl Fn(usize) -> String + 'p {
    |index| {
        let parameter = &parameters[index];
        let (id, encoding) = (&schema.ids[parameter.id], &schema.ids[parameter.encoding]);
        let name = argument(&parameter.name, Language::TypeScript);
        let encoding = if parameter.id == parameter.encoding {
            String::new()
        } else {
            format!(", {}", rule_name(encoding))
        };
        format!("part({}, {name}{encoding})", rule_name(id))
    }
}

fn class(schema: &Schema, methods: &str) -> String {
    let env = |name: &str, env: Option<&String>| {
        env.map_or_else(String::new, |env| format!("\n  {name}: {},", literal(env)))
    };
    let channels: String = schema
        .channels
        .iter()
        .filter_map(|channel| Some(format!(" {}: {},", channel.name, literal(channel.env.as_ref()?))))
        .collect();
    format!(
        "const _SETTINGS: _Settings = {{\n  prefix: {},{}\n  shards: {},{}\n  channelEnv: {{{channels} }},\n}};\n\n\
         /** The keys of `{}`. */\nexport class Keys extends _Space {{\n  \
         /** With the prefix, the shards and the names of channels that `env` sets, for example `process.env`. */\n  \
         constructor(layout: Layout = \"plain\", env: _Env = {{}}) {{\n    super(_SETTINGS, layout, env);\n  }}\n\
         {methods}}}\n",
        literal(&schema.prefix.value),
        env("prefixEnv", schema.prefix.env.as_ref()),
        schema.shards.value,
        env("shardsEnv", schema.shards.env.as_ref().map(|env| &env.name)),
        schema.name,
    )
}

/// A documentation comment.
fn doc(indent: &str, lines: &[String]) -> String {
    let lines: Vec<String> = lines.iter().map(|line| line.replace("*/", "* /")).collect();
    match lines.as_slice() {
        [line] => format!("{indent}/** {line} */\n"),
        lines => {
            let body: String = lines.iter().map(|line| format!("{indent} * {line}\n")).collect();
            format!("{indent}/**\n{body}{indent} */\n")
        }
    }
}
