//! `[ids]`: the values of placeholders.

use super::limit::duration_text;
use super::table::{Item, Reader, Table};
use crate::model::id::{IdForm, IdRule, LAST_UNIX_MS, RawChars, Without};

pub(crate) const ID_KEYS: [&str; 13] = [
    "max", "not", "raw", "without", "form", "range", "step", "one_of", "of", "space", "example", "note",
    "allow",
];
pub(crate) const FORMS: [&str; 6] = ["text", "int", "unix_ms", "hour", "endpoint", "verbatim"];

/// Redis keeps long keys in memory, and people have to read them.
const MAX_ID_BYTES: u64 = 1024;
/// A verbatim id describes keys that exist already: as long as Redis allows.
const MAX_VERBATIM_BYTES: u64 = 512 << 20;

pub(super) fn read_ids(table: &Table<'_>, reader: &mut Reader<'_>) -> Vec<IdRule> {
    let mut ids: Vec<IdRule> = Vec::new();
    for entry in &table.entries {
        if !super::is_name(entry.name) || entry.name == "shard" {
            reader.report(entry.at, format!("`{}` cannot name an id", entry.name), "letters, digits and _");
            continue;
        }
        if let Some(clash) = ids.iter().find(|id| super::snake(&id.name) == super::snake(entry.name)) {
            let message = format!("`{}` and `{}` are the same name in code", clash.name, entry.name);
            reader.report(entry.at, message, "another name");
            continue;
        }
        let title = format!("id {}", entry.name);
        if let Some(table) = entry.item.table(&title, "{ max = 128 }", reader)
            && let Some(id) = read_id(entry.name, &table, &ids, reader)
        {
            ids.push(id);
        }
    }
    ids
}

fn read_id(name: &str, table: &Table<'_>, earlier: &[IdRule], reader: &mut Reader<'_>) -> Option<IdRule> {
    table.only(&ID_KEYS, reader);
    let of = table.get("of").and_then(|item| Some((item, item.text(reader)?)));
    let base = of.as_ref().and_then(|(_, of)| earlier.iter().find(|id| id.name == *of)).cloned();
    if let (Some((item, of)), None) = (&of, &base) {
        reader.report(
            item.at,
            format!("`{of}` is not declared before `{name}`"),
            "an id that is declared above",
        );
    }
    let form = read_form(table, base.as_ref(), reader)?;
    if let (Some(item), false) = (table.get("without"), matches!(form, IdForm::Verbatim { .. })) {
        reader.report(item.at, "only a verbatim id has `without`", "form = \"verbatim\"");
    }
    let default_max = base.as_ref().map_or(128, |base| base.max);
    let max = match table.get("max") {
        None => default_max,
        Some(item) => {
            let verbatim = matches!(form, IdForm::Verbatim { .. });
            let most = if verbatim { MAX_VERBATIM_BYTES } else { MAX_ID_BYTES };
            usize::try_from(item.count(1, reader)?.min(most)).unwrap_or(default_max)
        }
    };
    let not = table.get("not").map(|item| item.texts(reader)).unwrap_or_default();
    let mut id = IdRule {
        name: name.to_owned(),
        form,
        max,
        not: if not.is_empty() {
            base.as_ref().map(|base| base.not.clone()).unwrap_or_default()
        } else {
            not
        },
        of: base.as_ref().map(|base| base.name.clone()),
        example: String::new(),
        note: table.text("note", reader),
        allow: super::family::read_allow(table.get("allow"), reader),
        position: reader.source().position(table.at),
    };
    let example = table.text("example", reader);
    id.example = example.or_else(|| base.map(|base| base.example)).unwrap_or_else(|| default_example(&id));
    if let Err(error) = id.check(&id.example) {
        let at = table.get("example").map_or(table.at, |item| item.at);
        reader.report(at, format!("invalid example of `{name}`: {error}"), "an id that the rule accepts");
    }
    Some(id)
}

fn default_example(id: &IdRule) -> String {
    match &id.form {
        IdForm::Text(_) => super::snake(&id.name).trim_end_matches("_id").to_owned() + "1",
        // Letters and digits are never excluded.
        IdForm::Verbatim { .. } => "x1".to_owned(),
        IdForm::Int { min, step, .. } => (min.div_ceil(*step).max(1) * step).to_string(),
        IdForm::OneOf(words) => words.first().cloned().unwrap_or_default(),
        IdForm::Hour => "2024-09-17_14".to_owned(),
        IdForm::Endpoint { .. } => "GET /api/users".to_owned(),
    }
}

fn read_form(table: &Table<'_>, base: Option<&IdRule>, reader: &mut Reader<'_>) -> Option<IdForm> {
    if let Some(item) = table.get("one_of") {
        let words = item.texts(reader);
        for word in &words {
            if word.is_empty() || !word.bytes().all(|byte| IdForm::Text(RawChars::default()).stays_raw(byte))
            {
                reader.report(item.at, format!("{word:?} would be encoded in a key"), "plain words");
            }
        }
        return (!words.is_empty()).then_some(IdForm::OneOf(words));
    }
    let form = match table.get("form") {
        Some(item) => {
            let form = item.text(reader)?;
            if !FORMS.contains(&form.as_str()) {
                reader.report(
                    item.at,
                    format!("unknown form {form:?}"),
                    format!("one of {}", FORMS.join(", ")),
                );
                return None;
            }
            form
        }
        None => match base.map(|base| &base.form) {
            Some(IdForm::Endpoint { .. }) => "endpoint".to_owned(),
            Some(other) if table.get("raw").is_none() => return Some(other.clone()),
            _ => "text".to_owned(),
        },
    };
    Some(match form.as_str() {
        "int" => read_int(table, u64::MAX, reader),
        "unix_ms" => read_int(table, LAST_UNIX_MS, reader),
        "hour" => IdForm::Hour,
        "verbatim" => IdForm::Verbatim {
            without: table.get("without").map(|item| read_without(item, reader)).unwrap_or_default(),
        },
        "endpoint" => {
            IdForm::Endpoint { space: table.get("space").map_or(b' ', |item| read_space(item, reader)) }
        }
        _ => IdForm::Text(table.get("raw").map(|item| read_raw(item, reader)).unwrap_or_default()),
    })
}

fn read_space(item: Item<'_>, reader: &mut Reader<'_>) -> u8 {
    match item.as_text() {
        Some("_") => b'_',
        Some(" ") => b' ',
        _ => {
            reader.report(
                item.at,
                "`space` must be the character that replaces the space in an endpoint",
                "\"_\" or \" \"",
            );
            b' '
        }
    }
}

fn read_without(item: Item<'_>, reader: &mut Reader<'_>) -> Without {
    let chars = item.text(reader).unwrap_or_default();
    Without::new(&chars).unwrap_or_else(|| {
        reader.report(item.at, "`without` lists the separators that the id never contains", "\":\"");
        Without::default()
    })
}

fn read_raw(item: Item<'_>, reader: &mut Reader<'_>) -> RawChars {
    let mut raw = RawChars::default();
    for char in item.text(reader).unwrap_or_default().chars() {
        match char {
            ':' => raw.separator = true,
            '/' => raw.slash = true,
            ' ' => raw.space = true,
            _ => reader.report(item.at, format!("{char:?} is never raw in a key"), "any of \": /\""),
        }
    }
    raw
}

fn read_int(table: &Table<'_>, max: u64, reader: &mut Reader<'_>) -> IdForm {
    let mut range = (0, max);
    if let Some(item) = table.get("range") {
        let bounds: Option<Vec<u64>> = item
            .as_list()
            .and_then(|items| items.iter().map(|item| u64::try_from(item.as_int()?).ok()).collect());
        match bounds.as_deref() {
            Some([min, max]) if min <= max => range = (*min, *max),
            _ => reader.report(item.at, "`range` must be the smallest and the largest number", "[400, 599]"),
        }
    }
    let step = match table.get("step") {
        None => 1,
        Some(item) => match (item.as_int(), duration_text(item)) {
            (Some(step), _) if step > 0 => step.unsigned_abs(),
            (_, Some(duration)) => u64::try_from(duration.as_millis()).unwrap_or(1).max(1),
            _ => {
                reader.report(item.at, "`step` must be a number or, for times, a duration", "\"1h\"");
                1
            }
        },
    };
    IdForm::Int { min: range.0, max: range.1, step }
}
