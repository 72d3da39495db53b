//! Counts and durations that an environment variable may change.

use std::time::Duration;

use super::table::{Item, Reader};
use crate::model::{EnvVar, Limit};
use crate::units::{parse_duration, parse_size};

pub(crate) const LIMIT_KEYS: [&str; 3] = ["env", "default", "unit"];
const UNITS: [&str; 5] = ["ms", "s", "m", "h", "d"];

/// `100`, `"4 KiB"` or `{ env = "NAME", default = 100 }`.
pub(super) fn read_count(item: Item<'_>, reader: &mut Reader<'_>) -> Option<Limit<u64>> {
    read_limit(item, reader, |item| match item.as_text() {
        Some(text) => parse_size(text).filter(|size| *size > 0),
        None => item.as_int().and_then(|number| u64::try_from(number).ok()).filter(|count| *count > 0),
    })
    .or_else(|| {
        reader.report(item.at, "expected a positive number", "100, or { env = \"MAX_LEN\", default = 100 }");
        None
    })
}

/// `"1h"` or `{ env = "NAME", unit = "h", default = "1h" }`.
pub(super) fn read_duration(item: Item<'_>, reader: &mut Reader<'_>) -> Option<Limit<Duration>> {
    read_limit(item, reader, duration_text).or_else(|| {
        reader.report(
            item.at,
            "expected a duration",
            "\"90s\", or { env = \"TTL_HOURS\", unit = \"h\", default = \"2h\" }",
        );
        None
    })
}

pub(super) fn duration_text(item: Item<'_>) -> Option<Duration> {
    item.as_text().and_then(parse_duration)
}

fn read_limit<T>(
    item: Item<'_>,
    reader: &mut Reader<'_>,
    read: impl Fn(Item<'_>) -> Option<T>,
) -> Option<Limit<T>> {
    let Some(table) = item.as_table("a limit") else {
        return read(item).map(Limit::fixed);
    };
    table.only(&LIMIT_KEYS, reader);
    let name = table.need("env", "\"MAX_LEN\"", reader)?.text(reader)?;
    let unit = table.get("unit").and_then(|item| {
        let unit = item.text(reader)?;
        if !UNITS.contains(&unit.as_str()) {
            reader.report(item.at, format!("unknown unit {unit:?}"), format!("one of {}", UNITS.join(", ")));
        }
        Some(unit)
    });
    let value = read(table.get("default")?)?;
    Some(Limit { value, env: Some(EnvVar { name, unit }) })
}
