//! The narrowest form that all sampled values have, as the text of a schema file. A form is narrowed value by value, so
//! that no value has to be kept.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use hob_schema::{LAST_UNIX_MS, is_hyperloglog, is_iso8601, is_msgpack_container, is_rfc3339};
use serde_json::Value as Json;

/// A JSON object with more members than this has no shape.
const MAX_MEMBERS: usize = 64;

/// The forms that all values have so far.
#[derive(Clone, Debug)]
pub(super) struct ValueStats {
    values: u64,
    longest: u64,
    hyperloglog: bool,
    /// MessagePack lists and maps.
    msgpack: bool,
    text: bool,
    flag: bool,
    int: bool,
    unix_s: bool,
    unix_ms: bool,
    float: bool,
    rfc3339: bool,
    iso8601: bool,
    list: bool,
    object: bool,
    members: BTreeMap<String, (u64, MemberStats)>,
}

impl Default for ValueStats {
    fn default() -> Self {
        ValueStats {
            values: 0,
            longest: 0,
            hyperloglog: true,
            msgpack: true,
            text: true,
            flag: true,
            int: true,
            unix_s: true,
            unix_ms: true,
            float: true,
            rfc3339: true,
            iso8601: true,
            list: true,
            object: true,
            members: BTreeMap::new(),
        }
    }
}

impl ValueStats {
    pub(super) fn add(&mut self, value: &[u8]) {
        self.values += 1;
        self.longest = self.longest.max(value.len() as u64);
        self.hyperloglog = self.hyperloglog && is_hyperloglog(value);
        self.msgpack = self.msgpack && is_msgpack_container(value);
        // A NUL has no meaning in a text: these are rather bits that happen to be UTF-8.
        let Some(text) = std::str::from_utf8(value).ok().filter(|text| !text.contains('\0')) else {
            *self = ValueStats { text: false, ..self.only_text() };
            return;
        };
        let number = text.parse::<i64>().ok();
        self.flag &= matches!(text, "true" | "false");
        self.int &= number.is_some();
        self.unix_s &= number.is_some_and(|number| (1_000_000_000..=9_999_999_999).contains(&number));
        self.unix_ms &= number.is_some_and(is_unix_ms);
        self.float = self.float && text.parse::<f64>().is_ok_and(f64::is_finite);
        self.rfc3339 = self.rfc3339 && is_rfc3339(text);
        self.iso8601 = self.iso8601 && is_iso8601(text);
        self.add_json(text);
    }

    /// Adds a value that was too long to be read. The audit does not read it either, unless the form is that of a number
    /// or a time.
    pub(super) fn add_unread(&mut self, len: u64) {
        self.values += 1;
        let text = self.text;
        *self = ValueStats { text, hyperloglog: false, msgpack: false, ..self.only_text() };
        self.longest = self.longest.max(len);
    }

    /// Without every form but text.
    fn only_text(&self) -> ValueStats {
        ValueStats {
            values: self.values,
            longest: self.longest,
            hyperloglog: self.hyperloglog,
            msgpack: self.msgpack,
            text: self.text,
            flag: false,
            int: false,
            unix_s: false,
            unix_ms: false,
            float: false,
            rfc3339: false,
            iso8601: false,
            list: false,
            object: false,
            members: BTreeMap::new(),
        }
    }

    fn add_json(&mut self, text: &str) {
        self.list &= text.starts_with('[');
        self.object &= text.starts_with('{');
        if !self.list && !self.object {
            return;
        }
        match serde_json::from_str::<Json>(text) {
            Ok(Json::Object(object)) => {
                for (name, value) in &object {
                    let (count, member) = self.members.entry(name.clone()).or_default();
                    *count += 1;
                    member.add(value);
                }
                // A larger object is text: its members are rather keys than names.
                self.object &= self.members.len() <= MAX_MEMBERS;
            }
            Ok(_) => {}
            Err(_) => (self.list, self.object) = (false, false),
        }
        if !self.object {
            self.members.clear();
        }
    }

    pub(super) fn merge(&mut self, other: ValueStats) {
        if other.values == 0 {
            return;
        }
        self.values += other.values;
        self.longest = self.longest.max(other.longest);
        self.hyperloglog &= other.hyperloglog;
        self.msgpack &= other.msgpack;
        self.text &= other.text;
        self.flag &= other.flag;
        self.int &= other.int;
        self.unix_s &= other.unix_s;
        self.unix_ms &= other.unix_ms;
        self.float &= other.float;
        self.rfc3339 &= other.rfc3339;
        self.iso8601 &= other.iso8601;
        self.list &= other.list;
        self.object &= other.object;
        for (name, (count, member)) in other.members {
            let (own_count, own) = self.members.entry(name).or_default();
            *own_count += count;
            own.merge(&member);
        }
        self.object &= self.members.len() <= MAX_MEMBERS;
        if !self.object {
            self.members.clear();
        }
    }

    /// Whether some value is not a text, and the values have no form that infer recognizes.
    pub(super) fn is_opaque(&self) -> bool {
        self.values > 0 && !self.text && !self.hyperloglog && !self.msgpack
    }

    /// The form as TOML. `name` is the name of the shape, if it needs one.
    pub(super) fn form(&self, name: &str, shapes: &mut Shapes) -> String {
        let max = (self.longest * 2).next_power_of_two().max(64);
        let word = match () {
            () if self.values == 0 => "any",
            () if self.hyperloglog => "hyperloglog",
            () if self.is_opaque() => "any",
            // Some value is not a text, so these are not texts that happen to look like MessagePack.
            () if !self.text => return format!("{{ msgpack = {max} }}"),
            () if self.flag => return "{ enum = [\"true\", \"false\"] }".to_owned(),
            () if self.unix_ms => "unix_ms",
            () if self.unix_s => "unix_s",
            () if self.int => "int",
            () if self.float => "float",
            () if self.rfc3339 => "rfc3339",
            () if self.iso8601 => "iso8601",
            () if self.object => {
                let shape = shapes.add(name, self.values, &self.members);
                return format!("{{ json = \"{shape}\", max_bytes = {max} }}");
            }
            () if self.list => return format!("{{ json = [\"any\"], max_bytes = {max} }}"),
            () => return format!("{{ text = {max} }}"),
        };
        format!("\"{word}\"")
    }
}

/// The forms that all values of one member of a JSON object have so far.
#[derive(Clone, Debug)]
struct MemberStats {
    rfc3339: bool,
    text: bool,
    unix_ms: bool,
    int: bool,
    number: bool,
    flag: bool,
    texts: bool,
}

impl Default for MemberStats {
    fn default() -> Self {
        MemberStats {
            rfc3339: true,
            text: true,
            unix_ms: true,
            int: true,
            number: true,
            flag: true,
            texts: true,
        }
    }
}

impl MemberStats {
    fn add(&mut self, value: &Json) {
        self.rfc3339 = self.rfc3339 && value.as_str().is_some_and(is_rfc3339);
        self.text &= value.is_string();
        self.unix_ms &= value.as_i64().is_some_and(is_unix_ms);
        self.int &= value.is_i64() || value.is_u64();
        self.number &= value.is_number();
        self.flag &= value.is_boolean();
        self.texts &= value.as_array().is_some_and(|items| items.iter().all(Json::is_string));
    }

    fn merge(&mut self, other: &MemberStats) {
        self.rfc3339 &= other.rfc3339;
        self.text &= other.text;
        self.unix_ms &= other.unix_ms;
        self.int &= other.int;
        self.number &= other.number;
        self.flag &= other.flag;
        self.texts &= other.texts;
    }

    fn form(&self, presence: &str) -> String {
        let word = match () {
            () if self.rfc3339 => "rfc3339",
            () if self.text => "string",
            () if self.unix_ms => "unix_ms",
            () if self.int => "int",
            () if self.number => "number",
            () if self.flag => "bool",
            () if self.texts && presence.is_empty() => return "[\"string\"]".to_owned(),
            () if self.texts => return "{ list = \"string\", optional = true }".to_owned(),
            () => "any",
        };
        format!("\"{word}{presence}\"")
    }
}

/// The JSON objects of a proposal.
#[derive(Default)]
pub(super) struct Shapes {
    shapes: BTreeMap<String, Vec<String>>,
}

impl Shapes {
    /// Adds a shape and returns its name.
    fn add(&mut self, name: &str, objects: u64, members: &BTreeMap<String, (u64, MemberStats)>) -> String {
        let line = |(name, (count, member)): (&String, &(u64, MemberStats))| {
            let form = member.form(if *count < objects { "?" } else { "" });
            format!("{} = {form}", toml_key(name))
        };
        let name: String = name.chars().take(60).collect();
        let mut unique = name.clone();
        let mut number = 2;
        while self.shapes.contains_key(&unique) {
            unique = format!("{name}_{number}");
            number += 1;
        }
        self.shapes.insert(unique.clone(), members.iter().map(line).collect());
        unique
    }

    /// Writes a `[shape]` for every kind of JSON object in the sample.
    pub(super) fn write(&self, out: &mut String) {
        for (name, members) in &self.shapes {
            let _ = writeln!(out, "[shape.{name}]");
            for member in members {
                let _ = writeln!(out, "{member}");
            }
            out.push('\n');
        }
        out.truncate(out.trim_end().len());
        out.push('\n');
    }
}

pub(super) fn toml_text(text: &str) -> String {
    toml::Value::from(text).to_string()
}

fn toml_key(name: &str) -> String {
    let bare = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if bare {
        name.to_owned()
    } else {
        serde_json::Value::from(name).to_string().replace('\u{7f}', "\\u007F")
    }
}

/// Between 2001 and 2286.
fn is_unix_ms(number: i64) -> bool {
    u64::try_from(number).is_ok_and(|number| (1_000_000_000_000..=LAST_UNIX_MS).contains(&number))
}
