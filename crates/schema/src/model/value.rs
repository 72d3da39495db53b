//! Values: what a string, a field, an item, a member or a score may be.

mod binary;

use serde_json::Value as Json;

pub use binary::{is_hyperloglog, is_msgpack_container};

use crate::model::Schema;
use crate::model::id::IdRule;

/// A geohash has 52 bits.
const GEOHASH_END: f64 = (1_u64 << 52) as f64;

/// The declared form of one value of a key.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Any,
    Int {
        min: i64,
        max: i64,
    },
    Float {
        min: f64,
        max: f64,
    },
    /// `0` or `1`.
    Bool,
    OneOf(Vec<String>),
    Text {
        max_bytes: u64,
    },
    /// A time with its offset: `2025-11-16T10:00:00Z`.
    Rfc3339,
    /// The same, where the offset may be missing.
    Iso8601,
    UnixSeconds,
    UnixMillis,
    /// The id of this index.
    Id(usize),
    Json {
        form: JsonForm,
        max_bytes: u64,
    },
    /// Bits, written with `SETBIT` and `BITFIELD`.
    Bitmap {
        max_bytes: u64,
    },
    /// A set of which only the size can be estimated, written with `PFADD`.
    HyperLogLog,
    /// One MessagePack value.
    MsgPack {
        max_bytes: u64,
    },
    /// A Protocol Buffers message.
    Protobuf {
        max_bytes: u64,
    },
    /// Only for scores: a place, written with `GEOADD`.
    Geo,
}

/// The declared form of a part of a JSON value.
#[derive(Clone, Debug, PartialEq)]
pub enum JsonForm {
    Any,
    Text,
    Int,
    Number,
    Bool,
    Rfc3339,
    Iso8601,
    UnixSeconds,
    UnixMillis,
    OneOf(Vec<String>),
    List(Box<JsonForm>),
    /// The object of this name.
    Shape(String),
}

/// A JSON object: `[shape.NAME]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Shape {
    pub name: String,
    pub members: Vec<Member>,
    /// The form of members that are not listed; `None` forbids them.
    pub others: Option<JsonForm>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Member {
    pub name: String,
    pub form: JsonForm,
    pub presence: crate::model::Presence,
}

/// Why a value does not have its declared form.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Mismatch(pub String);

fn mismatch<T>(message: impl Into<String>) -> Result<T, Mismatch> {
    Err(Mismatch(message.into()))
}

impl Value {
    pub fn int() -> Value {
        Value::Int { min: i64::MIN, max: i64::MAX }
    }

    pub fn float() -> Value {
        Value::Float { min: f64::NEG_INFINITY, max: f64::INFINITY }
    }

    /// Checks that the bytes have this form. `schema` is used to look up shapes and ids.
    pub fn fits(&self, bytes: &[u8], schema: &Schema) -> Result<(), Mismatch> {
        match self {
            Value::Any => return Ok(()),
            Value::Bitmap { max_bytes } => return at_most(bytes.len(), *max_bytes),
            Value::HyperLogLog => return binary::hyperloglog(bytes),
            Value::MsgPack { max_bytes } => {
                return at_most(bytes.len(), *max_bytes).and_then(|()| binary::msgpack(bytes));
            }
            Value::Protobuf { max_bytes } => {
                return at_most(bytes.len(), *max_bytes).and_then(|()| binary::protobuf(bytes));
            }
            _ => {}
        }
        let Ok(text) = std::str::from_utf8(bytes) else {
            return mismatch("is not UTF-8");
        };
        match self {
            Value::Any
            | Value::Bitmap { .. }
            | Value::HyperLogLog
            | Value::MsgPack { .. }
            | Value::Protobuf { .. }
            | Value::Geo => Ok(()),
            Value::Int { min, max } => match text.parse::<i64>() {
                Ok(number) if number < *min => mismatch(format!("{number} is below {min}")),
                Ok(number) if number > *max => mismatch(format!("{number} is above {max}")),
                Ok(_) => Ok(()),
                Err(_) => mismatch(format!("{} is not a whole number", quoted(text))),
            },
            Value::Float { min, max } => match text.parse::<f64>() {
                Ok(number) => within(number, *min, *max),
                Err(_) => mismatch(format!("{} is not a number", quoted(text))),
            },
            Value::Bool if matches!(text, "0" | "1") => Ok(()),
            Value::Bool => mismatch(format!("{} is neither 0 nor 1", quoted(text))),
            Value::OneOf(words) => one_of(text, words),
            Value::Text { max_bytes } => at_most(bytes.len(), *max_bytes),
            Value::Rfc3339 => rfc3339(text),
            Value::Iso8601 => iso8601(text),
            Value::UnixSeconds => unix_time(text, 1),
            Value::UnixMillis => unix_time(text, 1_000),
            Value::Id(id) => is_id(&schema.ids[*id], text),
            Value::Json { form, max_bytes } => {
                at_most(bytes.len(), *max_bytes)?;
                match serde_json::from_str::<Json>(text) {
                    Ok(json) => form.fits(&json, schema, ""),
                    Err(error) => mismatch(format!("is not JSON: {error}")),
                }
            }
        }
    }

    /// Whether every whole number of 64 bits has this form, as the results of `INCR` have.
    pub fn fits_every_whole_number(&self) -> bool {
        const LONGEST: u64 = "-9223372036854775808".len() as u64;
        match self {
            Value::Any => true,
            Value::Int { min, max } => (*min, *max) == (i64::MIN, i64::MAX),
            Value::Float { min, max } => *min <= i64::MIN as f64 && *max >= i64::MAX as f64,
            Value::Text { max_bytes } => *max_bytes >= LONGEST,
            _ => false,
        }
    }

    /// The maximum size, if the form declares one.
    pub fn max_bytes(&self) -> Option<u64> {
        match self {
            Value::Text { max_bytes }
            | Value::Json { max_bytes, .. }
            | Value::Bitmap { max_bytes }
            | Value::MsgPack { max_bytes }
            | Value::Protobuf { max_bytes } => Some(*max_bytes),
            _ => None,
        }
    }

    /// Checks that a value of so many bytes, which were not read, can have this form.
    pub fn fits_len(&self, bytes: u64) -> Result<(), Mismatch> {
        match self.max_bytes() {
            Some(max) => at_most(usize::try_from(bytes).unwrap_or(usize::MAX), max),
            None => Ok(()),
        }
    }

    /// Checks that a score has this form. Scores are doubles.
    pub fn fits_score(&self, score: f64) -> Result<(), Mismatch> {
        match self {
            Value::Int { min, max } => {
                if score.fract() != 0.0 {
                    return mismatch(format!("score {score} is not a whole number"));
                }
                within(score, *min as f64, *max as f64)
            }
            Value::Float { min, max } => within(score, *min, *max),
            Value::UnixSeconds => in_era(score),
            Value::UnixMillis => in_era(score / 1_000.0),
            Value::Geo if score.fract() == 0.0 && (0.0..GEOHASH_END).contains(&score) => Ok(()),
            Value::Geo => mismatch(format!("score {score} is not a geohash of 52 bits, as GEOADD writes it")),
            _ => Ok(()),
        }
    }
}

impl JsonForm {
    /// `path` is the position in the value, for messages.
    fn fits(&self, json: &Json, schema: &Schema, path: &str) -> Result<(), Mismatch> {
        let at = if path.is_empty() { "the value" } else { path };
        let not = |expected: &str| mismatch(format!("{at} is {}, not {expected}", describe(json)));
        match self {
            JsonForm::Any => Ok(()),
            JsonForm::Text => {
                if json.is_string() {
                    Ok(())
                } else {
                    not("a string")
                }
            }
            JsonForm::Int => {
                if json.is_i64() || json.is_u64() {
                    Ok(())
                } else {
                    not("a whole number")
                }
            }
            JsonForm::Number => {
                if json.is_number() {
                    Ok(())
                } else {
                    not("a number")
                }
            }
            JsonForm::Bool => {
                if json.is_boolean() {
                    Ok(())
                } else {
                    not("true or false")
                }
            }
            JsonForm::Rfc3339 => text_form(json, at, "an RFC 3339 time", rfc3339),
            JsonForm::Iso8601 => text_form(json, at, "an ISO 8601 time", iso8601),
            JsonForm::UnixSeconds => json.as_f64().map_or_else(|| not("unix seconds"), in_era),
            JsonForm::UnixMillis => {
                json.as_f64().map_or_else(|| not("unix milliseconds"), |ms| in_era(ms / 1e3))
            }
            JsonForm::OneOf(words) => text_form(json, at, "a word", |text| one_of(text, words)),
            JsonForm::List(form) => {
                let Some(items) = json.as_array() else {
                    return not("a list");
                };
                items
                    .iter()
                    .enumerate()
                    .try_for_each(|(i, item)| form.fits(item, schema, &format!("{path}[{i}]")))
            }
            JsonForm::Shape(name) => match schema.shape(name) {
                Some(shape) => shape.fits(json, schema, path),
                None => mismatch(format!("unknown shape {name}")),
            },
        }
    }
}

impl Shape {
    fn fits(&self, json: &Json, schema: &Schema, path: &str) -> Result<(), Mismatch> {
        let Some(object) = json.as_object() else {
            return mismatch(format!("{} is not a {} object", describe(json), self.name));
        };
        let inside = |name: &str| {
            if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
        };
        for member in &self.members {
            match object.get(&member.name) {
                Some(json) => member.form.fits(json, schema, &inside(&member.name))?,
                None if member.presence == crate::model::Presence::Optional => {}
                None => return mismatch(format!("{} is missing", inside(&member.name))),
            }
        }
        for (name, json) in object {
            if self.members.iter().any(|member| member.name == *name) {
                continue;
            }
            match &self.others {
                Some(form) => form.fits(json, schema, &inside(name))?,
                None => return mismatch(format!("{} is not declared", inside(name))),
            }
        }
        Ok(())
    }
}

fn text_form(
    json: &Json,
    at: &str,
    expected: &str,
    fits: impl Fn(&str) -> Result<(), Mismatch>,
) -> Result<(), Mismatch> {
    match json.as_str() {
        Some(text) => fits(text).map_err(|mismatch| Mismatch(format!("{at}: {mismatch}"))),
        None => mismatch(format!("{at} is {}, not {expected}", describe(json))),
    }
}

fn describe(json: &Json) -> String {
    match json {
        Json::Null => "null".into(),
        Json::Bool(value) => value.to_string(),
        Json::Number(number) => number.to_string(),
        Json::String(text) => quoted(text),
        Json::Array(_) => "a list".into(),
        Json::Object(_) => "an object".into(),
    }
}

/// The start of a text in quotes, for messages: values may be long and contain control characters.
pub fn quoted(text: &str) -> String {
    const SHOWN: usize = 40;
    if text.chars().count() <= SHOWN {
        return format!("{text:?}");
    }
    format!("{:?}…", text.chars().take(SHOWN).collect::<String>())
}

fn at_most(bytes: usize, max: u64) -> Result<(), Mismatch> {
    if bytes as u64 <= max { Ok(()) } else { mismatch(format!("has {bytes} bytes, more than {max}")) }
}

fn within(number: f64, min: f64, max: f64) -> Result<(), Mismatch> {
    if number.is_nan() {
        return mismatch("is not a number");
    }
    if number < min {
        return mismatch(format!("{number} is below {min}"));
    }
    if number > max { mismatch(format!("{number} is above {max}")) } else { Ok(()) }
}

fn one_of(text: &str, words: &[String]) -> Result<(), Mismatch> {
    if words.iter().any(|word| word == text) {
        return Ok(());
    }
    mismatch(format!("{} is not one of {}", quoted(text), words.join(", ")))
}

fn is_id(rule: &IdRule, text: &str) -> Result<(), Mismatch> {
    rule.check(text).map_err(|error| Mismatch(error.to_string()))
}

/// Whether a text is a time such as `2025-11-16T10:00:00Z`.
pub fn is_rfc3339(text: &str) -> bool {
    has_time_form(text) && text.parse::<jiff::Timestamp>().is_ok()
}

/// Whether a text is a time such as `2025-11-16T10:00:00`, with or without an offset.
pub fn is_iso8601(text: &str) -> bool {
    is_rfc3339(text) || (has_time_form(text) && text.parse::<jiff::civil::DateTime>().is_ok())
}

/// Jiff reads more than RFC 3339 (a space for the T, a zone in brackets).
fn has_time_form(text: &str) -> bool {
    text.as_bytes().get(10) == Some(&b'T') && !text.contains('[')
}

fn rfc3339(text: &str) -> Result<(), Mismatch> {
    if is_rfc3339(text) {
        return Ok(());
    }
    mismatch(format!("{} is not an RFC 3339 time such as 2025-11-16T10:00:00Z", quoted(text)))
}

fn iso8601(text: &str) -> Result<(), Mismatch> {
    if is_iso8601(text) {
        return Ok(());
    }
    mismatch(format!("{} is not an ISO 8601 time such as 2025-11-16T10:00:00", quoted(text)))
}

fn unix_time(text: &str, per_second: i64) -> Result<(), Mismatch> {
    match text.parse::<i64>() {
        Ok(number) => in_era((number / per_second) as f64),
        Err(_) => mismatch(format!("{} is not a Unix time", quoted(text))),
    }
}

/// Between 2001 and 2286 a Unix time has ten digits, so seconds and milliseconds cannot be confused.
fn in_era(seconds: f64) -> Result<(), Mismatch> {
    if (1e9..1e10).contains(&seconds) {
        return Ok(());
    }
    mismatch(format!("{seconds} seconds is not a time between 2001 and 2286; check the unit"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_of_every_whole_number_are_known() {
        let text = |max_bytes| Value::Text { max_bytes };
        for form in [Value::Any, Value::int(), Value::float(), text(20)] {
            assert!(form.fits_every_whole_number(), "{form:?}");
        }
        for form in [
            Value::Int { min: 0, max: i64::MAX },
            Value::Float { min: 0.0, max: f64::INFINITY },
            text(19),
            Value::Bool,
            Value::UnixMillis,
        ] {
            assert!(!form.fits_every_whole_number(), "{form:?}");
        }
    }
}
