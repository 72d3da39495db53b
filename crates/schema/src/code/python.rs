//! Typed keys in Python.

use std::fmt::Write as _;

use super::names::{self, Names, Scope, argument, is_identifier, pascal, screaming};
use super::{
    Amount, Language, Parameter, Parts, SourceFile, channel_doc, channel_expression, constants,
    declared_fields, expression, family_doc, field_doc, form_word, header, id_doc, literal, literals,
    named_fields, parameters, raw_chars, shape_of, shard_argument, single_value, templates, write_parts,
};
use crate::model::id::{IdForm, IdRule};
use crate::model::value::{JsonForm, Shape, Value};
use crate::model::{Channel, Family, Presence, Schema, Tag};

const RUNTIME: &str = include_str!("python.py");
/// All other names of the runtime start with an underscore, unlike any name of a schema.
const NAMES: [&str; 4] = ["Layout", "Shard", "InvalidId", "Keys"];
const METHODS: [&str; 5] = ["prefix", "layout", "shards", "shard", "shard_of"];

const PARTS: Parts = Parts { id, shape: shape_type, family: family_items, family_method, channel_method };

pub(super) fn file(schema: &Schema, names: &mut Names) -> SourceFile {
    names.reserve(Scope::Module, &NAMES);
    names.reserve(Scope::Keys, &METHODS);
    let doc = docstring("", &[format!("The keys of `{}`.", schema.name)]);
    let mut out = format!("# {}\n# flake8: noqa\n# ruff: noqa\n{doc}\n{RUNTIME}", header(schema));
    let (items, methods) = write_parts(schema, names, &PARTS);
    out += &items;
    let _ = write!(out, "\n\n{}", class(schema, &methods));
    SourceFile { path: format!("{}_keys.py", schema.name), text: out }
}

fn id(id: &IdRule, names: &mut Names) -> String {
    let rule = format!("\n\n{} = {}\n", rule_name(id), rule(id));
    if id.of.is_none() { rule + &id_type(id, names) } else { rule }
}

fn type_name(name: &str) -> String {
    names::type_name(name, Language::Python)
}

fn rule_name(id: &IdRule) -> String {
    format!("_{}_RULE", screaming(&id.name))
}

fn rule(id: &IdRule) -> String {
    let form = match &id.form {
        IdForm::Text(raw) => format!(", raw={}", literal(&raw_chars(*raw))),
        IdForm::Int { min, max, step } => format!(", least={min}, most={max}, step={step}"),
        IdForm::OneOf(words) => format!(", words={}", tuple(words)),
        IdForm::Hour => String::new(),
        IdForm::Endpoint { space } => format!(", space={}", literal(&char::from(*space).to_string())),
        IdForm::Verbatim { without } => format!(", without={}", literal(without.chars())),
    };
    let (name, max, not) = (literal(&id.name), id.max, tuple(&id.not));
    format!("_Rule({name}, {max}, {not}, \"{}\"{form})", form_word(&id.form))
}

fn tuple(texts: &[String]) -> String {
    format!("({}{})", literals(texts), if texts.len() == 1 { "," } else { "" })
}

fn id_type(id: &IdRule, names: &mut Names) -> String {
    let name = names.take(Scope::Module, type_name(&id.name), &format!("the id `{}`", id.name));
    if let IdForm::OneOf(words) = &id.form {
        return format!("{name} = Literal[{}]\n{}", literals(words), docstring("", &[id_doc(id)]));
    }
    let (given, text) = match id.form {
        IdForm::Int { .. } => ("Union[str, int]", "str(value)"),
        _ => ("str", "value"),
    };
    format!(
        "\n\nclass {name}(str):\n{}\n    __slots__ = ()\n\n    def __new__(cls, value: {given}) -> {name}:\n        \
         return super().__new__(cls, _check({}, {text}))\n",
        docstring("    ", &[id_doc(id)]),
        rule_name(id)
    )
}

/// The members of a `TypedDict`: its name, its type and whether it may be missing.
type Members = Vec<(String, String, Presence)>;

/// A `TypedDict`. Members that may be missing are in a subclass, because `NotRequired` needs Python 3.11.
fn typed_dict(name: &str, doc: &[String], members: &Members) -> String {
    let of = |presence| members.iter().filter(move |member| member.2 == presence).collect::<Vec<_>>();
    let (required, optional) = (of(Presence::Required), of(Presence::Optional));
    let body = |members: &[&(String, String, Presence)]| {
        members.iter().map(|(name, form, _)| format!("    {name}: {form}\n")).collect::<String>()
    };
    let dict = |members: &[&(String, String, Presence)]| {
        members
            .iter()
            .map(|(name, form, _)| format!("{}: {}", literal(name), literal(form)))
            .collect::<Vec<_>>()
            .join(", ")
    };
    let text = docstring("    ", doc);
    let plain = members.iter().all(|(name, ..)| is_identifier(name));
    match (required.is_empty(), optional.is_empty(), plain) {
        (_, true, true) => format!("\n\nclass {name}(TypedDict):\n{text}{}", spaced(&body(&required))),
        (true, false, true) => {
            format!("\n\nclass {name}(TypedDict, total=False):\n{text}{}", spaced(&body(&optional)))
        }
        (false, false, true) => format!(
            "\n\nclass _{name}Required(TypedDict):\n{}\n\nclass {name}(_{name}Required, total=False):\n{text}{}",
            body(&required),
            spaced(&body(&optional))
        ),
        (_, _, false) => format!(
            "\n\n_{name}Required = TypedDict(\"_{name}Required\", {{{}}})\n_{name}Optional = \
             TypedDict(\"_{name}Optional\", {{{}}}, total=False)\n\n\nclass {name}(_{name}Required, \
             _{name}Optional):\n{text}",
            dict(&required),
            dict(&optional)
        ),
    }
}

fn spaced(body: &str) -> String {
    if body.is_empty() { String::new() } else { format!("\n{body}") }
}

fn shape_type(shape: &Shape, names: &mut Names) -> String {
    let name = names.take(Scope::Module, type_name(&shape.name), &format!("the shape `{}`", shape.name));
    if shape.members.is_empty() {
        return format!("\n\n{name} = Dict[str, Any]\n");
    }
    let others = if shape.others.is_some() { " It may have other members." } else { "" };
    let doc = [format!("The JSON object `{}`.{others}", shape.name)];
    let members = shape
        .members
        .iter()
        .map(|member| (member.name.clone(), json_type(&member.form), member.presence))
        .collect();
    typed_dict(&name, &doc, &members)
}

fn json_type(form: &JsonForm) -> String {
    match form {
        JsonForm::Any => "Any".into(),
        JsonForm::Text | JsonForm::Rfc3339 | JsonForm::Iso8601 => "str".into(),
        JsonForm::Int => "int".into(),
        JsonForm::Number | JsonForm::UnixSeconds | JsonForm::UnixMillis => "float".into(),
        JsonForm::Bool => "bool".into(),
        JsonForm::OneOf(words) => format!("Literal[{}]", literals(words)),
        JsonForm::List(item) => format!("List[{}]", json_type(item)),
        JsonForm::Shape(name) => type_name(name),
    }
}

/// The type of a value as Redis holds it: a text.
fn text_type(value: &Value, schema: &Schema) -> String {
    match value {
        Value::Bool => "Literal[\"0\", \"1\"]".into(),
        Value::OneOf(words) => format!("Literal[{}]", literals(words)),
        Value::Bitmap { .. } | Value::HyperLogLog | Value::MsgPack { .. } | Value::Protobuf { .. } => {
            "bytes".into()
        }
        Value::Id(id) => {
            let rule = &schema.ids[*id];
            type_name(rule.of.as_deref().unwrap_or(&rule.name))
        }
        _ => "str".into(),
    }
}

fn family_items(family: &Family, schema: &Schema, names: &mut Names) -> String {
    let what = format!("the key `{}`", family.name);
    let constant = screaming(&family.name);
    let name = names.take(Scope::Module, format!("{constant}_TYPE"), &what);
    let mut out = format!("\n\n{name}: Final = {}\n", literal(family.type_name()));
    for limit in constants(family) {
        let number = match limit.amount {
            Amount::Time(duration) => format!("timedelta(milliseconds={})", duration.as_millis()),
            Amount::Count(count) => count.to_string(),
        };
        let name = format!("{constant}_{}", limit.name.to_ascii_uppercase());
        let name = names.take(Scope::Module, name, &what);
        let _ = write!(out, "{name}: Final = {number}\n{}", docstring("", &[limit.doc]));
    }
    let type_name = pascal(&family.name);
    if let Some((word, value)) = single_value(&family.content) {
        let name = names.take(Scope::Module, type_name + &pascal(word), &what);
        let (form, about) = match shape_of(value) {
            Some(form) => (json_type(form), format!("The {word} of `{}`, once parsed as JSON.", family.name)),
            None => (text_type(value, schema), format!("The {word} of `{}`, as text.", family.name)),
        };
        let _ = write!(out, "{name} = {form}\n{}", docstring("", &[about]));
    } else if let Some(fields) = declared_fields(&family.content) {
        let name = names.take(Scope::Module, type_name + "Fields", &what);
        let mut about = vec![format!("The fields of `{}`, as texts.", family.name), String::new()];
        about.extend(fields.iter().map(|field| format!("- {}", field_doc(field, schema))));
        let (named, _) = named_fields(fields);
        let members: Members = named
            .iter()
            .map(|(name, field)| ((*name).to_owned(), text_type(&field.value, schema), field.presence))
            .collect();
        out += &if members.is_empty() {
            format!("{name} = Dict[str, str]\n{}", docstring("", &about))
        } else {
            typed_dict(&name, &about, &members)
        };
    }
    out
}

fn family_method(family: &Family, schema: &Schema, names: &mut Names) -> String {
    let what = format!("the key `{}`", family.name);
    let name = names.take(Scope::Keys, method_name(&family.name), &what);
    let parameters = parameters(&family.pattern, schema);
    let mut list = arguments(&parameters, schema);
    let shard = match (shard_argument(family), &family.tag) {
        (Some(by), _) => {
            format!("str(self.shard_of({}))", argument(&parameters[by].name, Language::Python))
        }
        (None, Tag::Shard { .. }) => {
            list.push("shard: Shard".into());
            "str(shard)".into()
        }
        _ => String::new(),
    };
    let [plain, tagged] =
        templates(family).map(|parts| expression(&parts, "self.prefix", part(&parameters, schema), &shard));
    let body = if plain == tagged {
        format!("        return {plain}\n")
    } else {
        format!(
            "        if self.layout == \"tagged\":\n            return {tagged}\n        return {plain}\n"
        )
    };
    method(&name, &list, &family_doc(family, schema), &body)
}

fn channel_method(channel: &Channel, schema: &Schema, names: &mut Names) -> String {
    let what = format!("the channel `{}`", channel.name);
    let name = names.take(Scope::Keys, format!("{}_channel", channel.name), &what);
    let parameters = parameters(&channel.pattern, schema);
    let text = channel_expression(channel, part(&parameters, schema));
    let body = format!("        return self._channel({}, {text})\n", literal(&channel.name));
    method(&name, &arguments(&parameters, schema), &channel_doc(channel, schema), &body)
}

fn method(name: &str, arguments: &[String], doc: &[String], body: &str) -> String {
    let arguments: String = arguments.iter().map(|argument| format!(", {argument}")).collect();
    format!("\n    def {name}(self{arguments}) -> str:\n{}{body}", docstring("        ", doc))
}

/// A method cannot have the name of a keyword.
fn method_name(family: &str) -> String {
    if is_identifier(family) { family.to_owned() } else { format!("{family}_") }
}

fn arguments(parameters: &[Parameter], schema: &Schema) -> Vec<String> {
    let argument = |parameter: &Parameter| {
        let id = &schema.ids[parameter.id];
        format!("{}: {}", argument(&parameter.name, Language::Python), type_name(&id.name))
    };
    parameters.iter().map(argument).collect()
}

fn part<'p>(parameters: &'p [Parameter], schema: &'p Schema) -> impl Fn(usize) -> String + 'p {
    |index| {
        let parameter = &parameters[index];
        let (id, encoding) = (&schema.ids[parameter.id], &schema.ids[parameter.encoding]);
        let name = argument(&parameter.name, Language::Python);
        let encoding = if parameter.id == parameter.encoding {
            String::new()
        } else {
            format!(", {}", rule_name(encoding))
        };
        format!("_part({}, {name}{encoding})", rule_name(id))
    }
}

fn class(schema: &Schema, methods: &str) -> String {
    let env = |env: Option<&String>| env.map_or_else(|| "None".to_owned(), |env| literal(env));
    let channels: Vec<String> = schema
        .channels
        .iter()
        .filter_map(|channel| Some(format!("{}: {}", literal(&channel.name), literal(channel.env.as_ref()?))))
        .collect();
    format!(
        "class Keys(_Space):\n{}\n    _PREFIX = {}\n    _PREFIX_ENV = {}\n    _SHARDS = {}\n    _SHARDS_ENV = {}\n    \
         _CHANNEL_ENV = {{{}}}\n{methods}",
        docstring("    ", &[format!("The keys of `{}`.", schema.name)]),
        literal(&schema.prefix.value),
        env(schema.prefix.env.as_ref()),
        schema.shards.value,
        env(schema.shards.env.as_ref().map(|env| &env.name)),
        channels.join(", "),
    )
}

fn docstring(indent: &str, lines: &[String]) -> String {
    let lines: Vec<String> =
        lines.iter().map(|line| line.replace('\\', "\\\\").replace("\"\"\"", "\\\"\\\"\\\"")).collect();
    let text = lines.join(&format!("\n{indent}")).replace(&format!("\n{indent}\n"), "\n\n");
    let end = if lines.len() > 1 { format!("\n{indent}") } else { String::new() };
    let space = if end.is_empty() && text.ends_with('"') { " " } else { "" };
    format!("{indent}\"\"\"{text}{space}{end}\"\"\"\n")
}
