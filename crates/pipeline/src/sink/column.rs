//! Columns of a table: the types in the plan, or else those of the first results.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value};

/// The type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ColumnType {
    Text,
    Integer,
    Number,
    Boolean,
    Json,
}

/// A column to create.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Column {
    pub(crate) name: String,
    pub(crate) kind: ColumnType,
}

/// The columns of a table. A type that the plan does not declare is that of all values in `lines`; text, if there are
/// none or they differ.
pub(crate) fn columns(
    names: &[String],
    declared: &BTreeMap<String, ColumnType>,
    lines: &[&str],
) -> Vec<Column> {
    let rows: Vec<Map<String, Value>> =
        lines.iter().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let column = |name: &String| {
        let values = rows.iter().filter_map(|row| row.get(name));
        let kind = declared.get(name).copied().or_else(|| common_type(values));
        Column { name: name.clone(), kind: kind.unwrap_or(ColumnType::Text) }
    };
    names.iter().map(column).collect()
}

/// The type of all values; `None` if there is no value.
fn common_type<'a>(values: impl Iterator<Item = &'a Value>) -> Option<ColumnType> {
    use ColumnType::{Integer, Number, Text};
    values.filter_map(type_of).reduce(|one, other| match (one, other) {
        (one, other) if one == other => one,
        (Integer | Number, Integer | Number) => Number,
        _ => Text,
    })
}

fn type_of(value: &Value) -> Option<ColumnType> {
    match value {
        Value::Null => None,
        Value::Bool(_) => Some(ColumnType::Boolean),
        Value::Number(number) if number.is_i64() => Some(ColumnType::Integer),
        Value::Number(_) => Some(ColumnType::Number),
        Value::String(_) => Some(ColumnType::Text),
        Value::Array(_) | Value::Object(_) => Some(ColumnType::Json),
    }
}

impl ColumnType {
    pub(crate) fn in_sqlite(self) -> &'static str {
        match self {
            // SQLite stores JSON as text.
            ColumnType::Text | ColumnType::Json => "TEXT",
            ColumnType::Integer => "INTEGER",
            ColumnType::Number => "REAL",
            ColumnType::Boolean => "BOOLEAN",
        }
    }

    pub(crate) fn in_postgres(self) -> &'static str {
        match self {
            ColumnType::Text => "TEXT",
            ColumnType::Integer => "BIGINT",
            ColumnType::Number => "DOUBLE PRECISION",
            ColumnType::Boolean => "BOOLEAN",
            ColumnType::Json => "JSONB",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_come_from_the_plan_or_the_values() {
        let lines = [
            r#"{"id":1,"price":1,"open":true,"name":"a","tags":[],"mixed":1,"code":7,"none":null}"#,
            r#"{"id":2,"price":1.5,"open":null,"name":"b","tags":{},"mixed":"x","code":8}"#,
        ];
        let names = ["id", "price", "open", "name", "tags", "mixed", "code", "none"].map(str::to_owned);
        let declared = BTreeMap::from([("code".to_owned(), ColumnType::Text)]);
        let types: Vec<ColumnType> =
            columns(&names, &declared, &lines).into_iter().map(|column| column.kind).collect();
        use ColumnType::{Boolean, Integer, Json, Number, Text};
        assert_eq!(types, [Integer, Number, Boolean, Text, Json, Text, Text, Text]);
    }
}
