//! One valid example of every family, as commands: for the documentation, and for tests that seed a server.

use crate::keyspace::{Keyspace, Shard};
use crate::model::value::{JsonForm, Value};
use crate::model::{Content, Family, FieldName, Presence, Role, Schema, Tag, TtlRule};

/// A command and its arguments.
pub type Command = Vec<String>;

/// The time in all examples: 2025-11-16T10:00:00Z.
const NOW_S: u64 = 1_763_287_200;

/// The commands that create one valid key of a family, with its TTL.
pub fn example_write(space: &Keyspace, family: usize) -> Vec<Command> {
    let schema = space.schema();
    let declared = &schema.families[family];
    let key = example_key(space, family);
    let given = |field: Option<&str>| {
        let values = declared.example.iter().flat_map(|example| &example.values);
        values.clone().find(|(name, _)| name.as_deref() == field).map(|(_, text)| text.clone())
    };
    let value = |value: &Value| given(None).unwrap_or_else(|| example_value(value, schema));
    let ttl_ms = written_ttl_ms(declared);
    let mut commands = vec![match &declared.content {
        Content::String(Value::Bitmap { .. }) => command(&["SETBIT", &key, "7", "1"]),
        Content::String(Value::HyperLogLog) => command(&["PFADD", &key, "element"]),
        Content::Zset { member, score: Value::Geo } => {
            command(&["GEOADD", &key, "13.361389", "38.115556", &value(member)])
        }
        Content::String(shape) => {
            let mut set = command(&["SET", &key, &value(shape)]);
            set.extend(ttl_ms.map(ttl_words).unwrap_or_default());
            return vec![set];
        }
        // Only the module has commands that write it.
        Content::Module(_) => return Vec::new(),
        Content::Hash(fields) | Content::Stream(fields) => {
            let stream = matches!(declared.content, Content::Stream(_));
            let mut hset = if stream { command(&["XADD", &key, "*"]) } else { command(&["HSET", &key]) };
            let head = hset.len();
            // If all fields are optional, the example shows them.
            let all = !fields.iter().any(|field| shown(field.presence, &field.name));
            for field in fields.iter().filter(|field| all || shown(field.presence, &field.name)) {
                let name = field_name(&field.name, schema);
                let text = given(Some(&name)).unwrap_or_else(|| example_value(&field.value, schema));
                hset.extend([name, text]);
            }
            if hset.len() == head {
                hset.extend(["field".to_owned(), "value".to_owned()]);
            }
            hset
        }
        Content::List(item) => {
            // Entries are taken from the left, so they are added on the right.
            let queued = matches!(declared.role, Some(Role::Queue | Role::Buffer));
            command(&[if queued { "RPUSH" } else { "LPUSH" }, &key, &value(item)])
        }
        Content::Set(member) => command(&["SADD", &key, &value(member)]),
        Content::Zset { member, score } => {
            command(&["ZADD", &key, &example_value(score, schema), &value(member)])
        }
    }];
    commands.extend(ttl_ms.map(|ms| expire(&key, ms)));
    commands
}

/// The command that reads a key of a family.
pub fn example_read(space: &Keyspace, family: usize) -> Command {
    let key = example_key(space, family);
    match &space.schema().families[family].content {
        Content::String(Value::Bitmap { .. }) => command(&["BITCOUNT", &key]),
        Content::String(Value::HyperLogLog) => command(&["PFCOUNT", &key]),
        Content::Zset { score: Value::Geo, .. } => {
            command(&["GEOSEARCH", &key, "FROMLONLAT", "15", "37", "BYRADIUS", "200", "km", "ASC"])
        }
        Content::String(_) => command(&["GET", &key]),
        Content::Hash(_) => command(&["HGETALL", &key]),
        Content::List(_) => command(&["LRANGE", &key, "0", "9"]),
        Content::Set(_) => command(&["SMEMBERS", &key]),
        Content::Zset { .. } => command(&["ZRANGE", &key, "0", "9", "WITHSCORES"]),
        Content::Stream(_) => command(&["XRANGE", &key, "-", "+", "COUNT", "10"]),
        Content::Module(_) => command(&["TYPE", &key]),
    }
}

/// The command that publishes on a channel.
pub fn example_publish(space: &Keyspace, channel: usize) -> Command {
    let schema = space.schema();
    let declared = &schema.channels[channel];
    let ids: Vec<&str> = declared.pattern.ids().map(|id| schema.ids[id].example.as_str()).collect();
    command(&["PUBLISH", &space.channel(channel, &ids), &example_value(&declared.payload, schema)])
}

/// A key of a family, for the examples of its ids.
pub fn example_key(space: &Keyspace, family: usize) -> String {
    let schema = space.schema();
    let declared = &schema.families[family];
    let ids: Vec<&str> = declared.pattern.ids().map(|id| schema.ids[id].example.as_str()).collect();
    let shard = matches!(declared.tag, Tag::Shard { by: None }).then(Shard::default);
    space.key(family, &ids, shard)
}

/// A command quoted for a shell, to follow `redis-cli`.
pub fn shell_words(command: &[String]) -> String {
    let plain = |char: char| char.is_ascii_alphanumeric() || "_-.:/+@%,=".contains(char);
    let word = |word: &String| {
        if !word.is_empty() && word.chars().all(plain) {
            return word.clone();
        }
        format!("'{}'", word.replace('\'', r"'\''"))
    };
    command.iter().map(word).collect::<Vec<_>>().join(" ")
}

fn command(words: &[&str]) -> Command {
    words.iter().map(|word| (*word).to_owned()).collect()
}

fn shown(presence: Presence, name: &FieldName) -> bool {
    presence == Presence::Required || matches!(name, FieldName::Id(_))
}

fn field_name(name: &FieldName, schema: &Schema) -> String {
    match name {
        FieldName::Exact(name) => name.clone(),
        FieldName::Id(id) => schema.ids[*id].example.clone(),
        FieldName::Any => "field".to_owned(),
    }
}

/// The TTL that a write sets; `None` for a key that gets its TTL only later.
fn written_ttl_ms(family: &Family) -> Option<u64> {
    if matches!(family.ttl.rule, TtlRule::Late { .. }) {
        return None;
    }
    family.ttl.rule.longest().map(|longest| u64::try_from(longest.as_millis()).unwrap_or(u64::MAX))
}

fn ttl_words(ms: u64) -> Command {
    if ms.is_multiple_of(1_000) {
        command(&["EX", &(ms / 1_000).to_string()])
    } else {
        command(&["PX", &ms.to_string()])
    }
}

fn expire(key: &str, ms: u64) -> Command {
    if ms.is_multiple_of(1_000) {
        return command(&["EXPIRE", key, &(ms / 1_000).to_string()]);
    }
    command(&["PEXPIRE", key, &ms.to_string()])
}

/// A value that fits the shape.
pub fn example_value(value: &Value, schema: &Schema) -> String {
    match value {
        Value::Any => "value".to_owned(),
        Value::Int { min, max } => 3.clamp(*min, *max).to_string(),
        Value::Float { min, max } => 150.5_f64.clamp(*min, *max).to_string(),
        Value::Bool => "1".to_owned(),
        Value::OneOf(words) => words.first().cloned().unwrap_or_default(),
        Value::Text { max_bytes } => "text".chars().take(usize::try_from(*max_bytes).unwrap_or(4)).collect(),
        Value::Rfc3339 => "2025-11-16T10:00:00Z".to_owned(),
        Value::Iso8601 => "2025-11-16T10:00:00".to_owned(),
        Value::UnixSeconds => NOW_S.to_string(),
        Value::UnixMillis => (NOW_S * 1_000).to_string(),
        Value::Id(id) => schema.ids[*id].example.clone(),
        Value::Json { form, .. } => example_json(form, schema, 0),
        // The number 42; and a field with it.
        Value::MsgPack { .. } => "*".to_owned(),
        Value::Protobuf { .. } => "(*".to_owned(),
        // Their examples are commands.
        Value::Bitmap { .. } | Value::HyperLogLog => "bits".to_owned(),
        Value::Geo => "3479099956230698".to_owned(),
    }
}

/// A shape may contain itself.
const MAX_DEPTH: usize = 8;

fn example_json(form: &JsonForm, schema: &Schema, depth: usize) -> String {
    match form {
        JsonForm::Any => "{}".to_owned(),
        JsonForm::Text => "\"text\"".to_owned(),
        JsonForm::Int => "3".to_owned(),
        JsonForm::Number => "1.5".to_owned(),
        JsonForm::Bool => "true".to_owned(),
        JsonForm::Rfc3339 => "\"2025-11-16T10:00:00Z\"".to_owned(),
        JsonForm::Iso8601 => "\"2025-11-16T10:00:00\"".to_owned(),
        JsonForm::UnixSeconds => NOW_S.to_string(),
        JsonForm::UnixMillis => (NOW_S * 1_000).to_string(),
        JsonForm::OneOf(words) => serde_json::to_string(&words.first()).unwrap_or_default(),
        JsonForm::List(item) => format!("[{}]", example_json(item, schema, depth + 1)),
        JsonForm::Shape(name) => {
            let Some(shape) = schema.shape(name).filter(|_| depth < MAX_DEPTH) else {
                return "{}".to_owned();
            };
            let members =
                shape.members.iter().filter(|member| member.presence == Presence::Required).map(|member| {
                    // The name is more informative than "text".
                    let name = crate::parse::snake(&member.name);
                    let value = match &member.form {
                        JsonForm::Text => format!("{name:?}"),
                        JsonForm::List(item) if **item == JsonForm::Text => {
                            format!("[{:?}]", name.trim_end_matches('s'))
                        }
                        form => example_json(form, schema, depth + 1),
                    };
                    format!("{:?}:{value}", member.name)
                });
            format!("{{{}}}", members.collect::<Vec<_>>().join(","))
        }
    }
}
