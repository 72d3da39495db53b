//! Typed keys in Go.

use std::fmt::Write as _;

use super::names::{Names, Scope, argument, exported, is_identifier, unexported};
use super::{
    Amount, Language, Parameter, Parts, SourceFile, channel_doc, channel_expression, constants,
    declared_fields, expression, family_doc, field_doc, form_word, header, id_doc, literal, literals,
    named_fields, parameters, raw_chars, shape_of, shard_argument, single_value, templates, write_parts,
};
use crate::model::id::{IdForm, IdRule};
use crate::model::value::{JsonForm, Shape, Value};
use crate::model::{Channel, Family, Presence, Schema, Tag};

const RUNTIME: &str = include_str!("go.go");
const IMPORTS: [&str; 6] = ["fmt", "regexp", "strconv", "strings", "time", "unicode/utf8"];
const NAMES: [&str; 8] = ["Layout", "Plain", "Tagged", "Shard", "InvalidID", "Keys", "New", "FromEnv"];
const METHODS: [&str; 3] = ["Shards", "Shard", "ShardOf"];

const PARTS: Parts = Parts { id, shape: shape_type, family: family_items, family_method, channel_method };

pub(super) fn file(schema: &Schema, names: &mut Names) -> SourceFile {
    names.reserve(Scope::Module, &NAMES);
    names.reserve(Scope::Keys, &METHODS);
    let (items, methods) = write_parts(schema, names, &PARTS);
    let body = settings(schema) + &items + &methods;
    let package = format!("{}keys", schema.name.replace('_', "").to_ascii_lowercase());
    let imports: String = IMPORTS
        .iter()
        .filter(|name| **name != "time" || body.contains("time."))
        .map(|name| format!("\t\"{name}\"\n"))
        .collect();
    let text = format!(
        "// {}\n\n// Package {package} builds the keys of `{}`.\npackage {package}\n\nimport (\n{imports})\n{RUNTIME}{body}",
        header(schema),
        schema.name
    );
    SourceFile { path: format!("{package}/{package}.go"), text }
}

fn id(id: &IdRule, names: &mut Names) -> String {
    let rule = format!("\nvar {} = {}\n", rule_name(id), rule(id));
    if id.of.is_none() { rule + &id_type(id, names) } else { rule }
}

fn settings(schema: &Schema) -> String {
    let channels: String = schema
        .channels
        .iter()
        .filter_map(|channel| {
            Some(format!("{}: {}, ", literal(&channel.name), literal(channel.env.as_ref()?)))
        })
        .collect();
    let env = |env: Option<&String>| literal(env.map_or("", |env| env));
    format!(
        "\nconst defaultPrefix = {}\nconst prefixEnv = {}\nconst defaultShards = {}\nconst shardsEnv = {}\n\n\
         var channelEnv = map[string]string{{{}}}\n",
        literal(&schema.prefix.value),
        env(schema.prefix.env.as_ref()),
        schema.shards.value,
        env(schema.shards.env.as_ref().map(|env| &env.name)),
        channels.trim_end_matches(", "),
    )
}

fn rule_name(id: &IdRule) -> String {
    format!("{}Rule", unexported(&id.name))
}

fn rule(id: &IdRule) -> String {
    let form = match &id.form {
        IdForm::Text(raw) => format!(", raw: {}", literal(&raw_chars(*raw))),
        IdForm::Int { min, max, step } => format!(", least: {min}, most: {max}, step: {step}"),
        IdForm::OneOf(words) => format!(", words: []string{{{}}}", literals(words)),
        IdForm::Hour => String::new(),
        IdForm::Endpoint { space } => format!(", space: {}", literal(&char::from(*space).to_string())),
        IdForm::Verbatim { without } => format!(", without: {}", literal(without.chars())),
    };
    let not =
        if id.not.is_empty() { String::new() } else { format!(", not: []string{{{}}}", literals(&id.not)) };
    format!(
        "rule{{name: {}, max: {}{not}, form: \"{}\"{form}}}",
        literal(&id.name),
        id.max,
        form_word(&id.form)
    )
}

fn id_type(id: &IdRule, names: &mut Names) -> String {
    let what = format!("the id `{}`", id.name);
    let name = names.take(Scope::Module, exported(&id.name), &what);
    let new = names.take(Scope::Module, format!("New{name}"), &what);
    let rule = rule_name(id);
    let mut out = format!(
        "\n// {name} is an id. {}\ntype {name} struct{{ text string }}\n\n\
         // {new} returns an error of type [*InvalidID] if the text cannot be this id.\n\
         func {new}(text string) ({name}, error) {{\n\tif err := {rule}.check(text); err != nil {{\n\t\t\
         return {name}{{}}, err\n\t}}\n\treturn {name}{{text}}, nil\n}}\n\n\
         func (id {name}) String() string {{ return id.text }}\n",
        id_doc(id)
    );
    match &id.form {
        IdForm::Int { .. } => {
            let from = names.take(Scope::Module, format!("New{name}FromInt"), &what);
            let _ = write!(
                out,
                "\n// {from} is {new} for a number.\nfunc {from}(number uint64) ({name}, error) {{\n\t\
                 return {new}(strconv.FormatUint(number, 10))\n}}\n"
            );
        }
        IdForm::OneOf(words) if words.iter().all(|word| is_identifier(word)) => {
            for word in words {
                let value = names.take(Scope::Module, format!("{name}{}", exported(word)), &what);
                let _ = writeln!(out, "\nvar {value} = {name}{{{}}}", literal(word));
            }
        }
        _ => {}
    }
    out
}

/// The fields of a struct: name, type and tag, aligned as gofmt aligns them.
fn structure(fields: &[(String, String, String)]) -> String {
    let width = |column: fn(&(String, String, String)) -> &String| {
        fields.iter().map(|field| column(field).chars().count()).max().unwrap_or(0)
    };
    let (names, types) = (width(|field| &field.0), width(|field| &field.1));
    let line =
        |(name, form, tag): &(String, String, String)| format!("\t{name:<names$} {form:<types$} `{tag}`\n");
    fields.iter().map(line).collect()
}

/// The name of a struct field. Names that are the same in Go get a number.
fn field_name(name: &str, index: usize, earlier: &[(String, String, String)]) -> String {
    let plain: String =
        name.chars().map(|char| if char.is_ascii_alphanumeric() { char } else { '_' }).collect();
    let go = exported(plain.trim_matches('_'));
    let named = go.starts_with(|char: char| char.is_ascii_alphabetic());
    let taken = earlier.iter().any(|(other, ..)| *other == go);
    match (named, taken) {
        (true, false) => go,
        (true, true) => format!("{go}{index}"),
        (false, _) => format!("Field{index}{go}"),
    }
}

/// A name in a tag, if Go's tags can hold it.
fn tag_name(name: &str) -> Option<&str> {
    let allowed = |char: char| char.is_alphanumeric() || "!#$%&()*+-./:;<=>?@[]^_{|}~ ".contains(char);
    (!name.is_empty() && name != "-" && name.chars().all(allowed)).then_some(name)
}

fn shape_type(shape: &Shape, names: &mut Names) -> String {
    let name = names.take(Scope::Module, exported(&shape.name), &format!("the shape `{}`", shape.name));
    let mut fields = Vec::new();
    let mut left_out = Vec::new();
    for (index, member) in shape.members.iter().enumerate() {
        let Some(tag) = tag_name(&member.name) else {
            left_out.push(literal(&member.name));
            continue;
        };
        let form = json_type(&member.form);
        let by_value = form.starts_with("[]") || form == "any";
        let (form, omit) = match member.presence {
            Presence::Required => (form, ""),
            Presence::Optional if by_value => (form, ",omitempty"),
            Presence::Optional => (format!("*{form}"), ",omitempty"),
        };
        fields.push((field_name(&member.name, index, &fields), form, format!("json:\"{tag}{omit}\"")));
    }
    let mut about = vec![format!("{name} is the JSON object `{}`.", shape.name)];
    if shape.others.is_some() {
        about.push("It may have other members.".into());
    }
    if !left_out.is_empty() {
        about.push(format!("Go cannot name these members: {}.", left_out.join(", ")));
    }
    format!("\n{}type {name} struct {{\n{}}}\n", doc(&about), structure(&fields))
}

fn json_type(form: &JsonForm) -> String {
    match form {
        JsonForm::Any => "any".into(),
        JsonForm::Text | JsonForm::Rfc3339 | JsonForm::Iso8601 | JsonForm::OneOf(_) => "string".into(),
        JsonForm::Int => "int64".into(),
        JsonForm::Number | JsonForm::UnixSeconds | JsonForm::UnixMillis => "float64".into(),
        JsonForm::Bool => "bool".into(),
        JsonForm::List(item) => format!("[]{}", json_type(item)),
        JsonForm::Shape(name) => exported(name),
    }
}

/// The type into which clients scan a field.
fn scanned_type(value: &Value) -> &'static str {
    match value {
        Value::Int { .. } | Value::UnixSeconds | Value::UnixMillis => "int64",
        Value::Float { .. } | Value::Geo => "float64",
        Value::Bool => "bool",
        _ => "string",
    }
}

fn family_items(family: &Family, schema: &Schema, names: &mut Names) -> String {
    let what = format!("the key `{}`", family.name);
    let base = exported(&family.name);
    let name = names.take(Scope::Module, format!("{base}Type"), &what);
    let mut out = format!(
        "\n// {name} is the Redis type of `{}`.\nconst {name} = {}\n",
        family.name,
        literal(family.type_name())
    );
    for limit in constants(family) {
        let number = match limit.amount {
            Amount::Time(duration) => format!("{} * time.Millisecond", duration.as_millis()),
            Amount::Count(count) => count.to_string(),
        };
        let name = names.take(Scope::Module, base.clone() + &exported(limit.name), &what);
        let _ = writeln!(out, "\n// {name}: {}\nconst {name} = {number}", limit.doc);
    }
    if let Some((word, form)) =
        single_value(&family.content).and_then(|(word, value)| Some((word, shape_of(value)?)))
    {
        let name = names.take(Scope::Module, base + &exported(word), &what);
        let _ = write!(
            out,
            "\n// {name} is the {word} of `{}`, once parsed as JSON.\ntype {name} = {}\n",
            family.name,
            json_type(form)
        );
    } else if let Some(fields) = declared_fields(&family.content) {
        let name = names.take(Scope::Module, base + "Fields", &what);
        let mut about = vec![format!("{name} has the fields of `{}`:", family.name), String::new()];
        about.extend(fields.iter().map(|field| format!("  - {}", field_doc(field, schema))));
        let mut lines = Vec::new();
        for (index, (name, field)) in named_fields(fields).0.into_iter().enumerate() {
            let Some(tag) = tag_name(name) else { continue };
            let form = scanned_type(&field.value).to_owned();
            lines.push((field_name(name, index, &lines), form, format!("redis:\"{tag}\"")));
        }
        out += &if lines.is_empty() {
            format!("\n{}type {name} map[string]string\n", doc(&about))
        } else {
            format!("\n{}type {name} struct {{\n{}}}\n", doc(&about), structure(&lines))
        };
    }
    out
}

fn family_method(family: &Family, schema: &Schema, names: &mut Names) -> String {
    let what = format!("the key `{}`", family.name);
    let name = names.take(Scope::Keys, exported(&family.name), &what);
    let parameters = parameters(&family.pattern, schema);
    let mut list = arguments(&parameters, schema);
    let shard = match (shard_argument(family), &family.tag) {
        (Some(by), _) => format!(
            "strconv.FormatUint(uint64(k.ShardOf({}.text).number), 10)",
            argument(&parameters[by].name, Language::Go)
        ),
        (None, Tag::Shard { .. }) => {
            list.push("shard Shard".into());
            "strconv.FormatUint(uint64(shard.number), 10)".into()
        }
        _ => String::new(),
    };
    let [plain, tagged] =
        templates(family).map(|parts| expression(&parts, "k.prefix", part(&parameters, schema), &shard));
    let body = if plain == tagged {
        format!("\treturn {plain}\n")
    } else {
        format!("\tif k.layout == Tagged {{\n\t\treturn {tagged}\n\t}}\n\treturn {plain}\n")
    };
    method(&name, &list, family_doc(family, schema), &body)
}

fn channel_method(channel: &Channel, schema: &Schema, names: &mut Names) -> String {
    let what = format!("the channel `{}`", channel.name);
    let name = names.take(Scope::Keys, exported(&channel.name) + "Channel", &what);
    let parameters = parameters(&channel.pattern, schema);
    let text = channel_expression(channel, part(&parameters, schema));
    let body = format!("\tname := {text}\n\treturn k.channel({}, name)\n", literal(&channel.name));
    method(&name, &arguments(&parameters, schema), channel_doc(channel, schema), &body)
}

fn method(name: &str, arguments: &[String], mut lines: Vec<String>, body: &str) -> String {
    if let Some(first) = lines.first_mut() {
        *first = format!("{name}: {first}");
    }
    format!("\n{}func (k Keys) {name}({}) string {{\n{body}}}\n", doc(&lines), arguments.join(", "))
}

fn arguments(parameters: &[Parameter], schema: &Schema) -> Vec<String> {
    let argument = |parameter: &Parameter| {
        format!("{} {}", argument(&parameter.name, Language::Go), exported(&schema.ids[parameter.id].name))
    };
    parameters.iter().map(argument).collect()
}

fn part<'p>(parameters: &'p [Parameter], schema: &'p Schema) -> impl Fn(usize) -> String + 'p {
    |index| {
        let parameter = &parameters[index];
        let name = argument(&parameter.name, Language::Go);
        format!("{}.part({name}.text)", rule_name(&schema.ids[parameter.encoding]))
    }
}

fn doc(lines: &[String]) -> String {
    lines.iter().map(|line| format!("//{}{line}\n", if line.is_empty() { "" } else { " " })).collect()
}
