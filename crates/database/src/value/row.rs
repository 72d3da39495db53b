//! Rows, and their conversion to Rust values.

use sqlx::error::BoxDynError;
use sqlx::postgres::{PgRow, PgValueRef};
use sqlx::sqlite::{SqliteRow, SqliteValueRef};
use sqlx::{Database, Decode, Postgres, Row as _, Sqlite, TypeInfo, ValueRef};

use crate::{Column, Error, Value};

/// A row of a result.
pub struct Row(pub(crate) Inner);

pub(crate) enum Inner {
    Sqlite(SqliteRow),
    Postgres(PgRow),
}

/// A type that is read from a row. Implemented for tuples, by column order, and with [`from_row!`](crate::from_row) for
/// structs, by column names.
pub trait FromRow: Sized {
    fn from_row(row: &Row) -> Result<Self, Error>;
}

impl Row {
    /// The column called `name`.
    pub fn get<T: Column>(&self, name: &str) -> Result<T, Error> {
        self.at(self.index(name)?)
    }

    /// The column at `index`, the first being 0.
    pub fn at<T: Column>(&self, index: usize) -> Result<T, Error> {
        T::load(self.value(index)?).map_err(|found| self.mismatch(index, T::EXPECTED, found))
    }

    pub(crate) fn len(&self) -> usize {
        match &self.0 {
            Inner::Sqlite(row) => row.len(),
            Inner::Postgres(row) => row.len(),
        }
    }

    pub(crate) fn value(&self, index: usize) -> Result<Option<Value>, Error> {
        let value = match &self.0 {
            Inner::Sqlite(row) => sqlite_value(row.try_get_raw(index)?),
            Inner::Postgres(row) => postgres_value(row.try_get_raw(index)?),
        };
        value.map_err(|found| Error::Column {
            column: self.name(index),
            expected: "a type that both databases support",
            found,
        })
    }

    fn index(&self, name: &str) -> Result<usize, Error> {
        let index = match &self.0 {
            Inner::Sqlite(row) => row.try_column(name).map(sqlx::Column::ordinal),
            Inner::Postgres(row) => row.try_column(name).map(sqlx::Column::ordinal),
        };
        Ok(index?)
    }

    fn mismatch(&self, index: usize, expected: &'static str, found: Option<Value>) -> Error {
        Error::Column {
            column: self.name(index),
            expected,
            // The error contains only the kind, because the value may be secret. The kind is enough to find the bug.
            found: found.map_or("NULL".to_owned(), |value| match value {
                Value::Int(n) => n.to_string(),
                value => format!("{:?}", value.kind()),
            }),
        }
    }

    fn name(&self, index: usize) -> String {
        let name = match &self.0 {
            Inner::Sqlite(row) => row.columns().get(index).map(sqlx::Column::name),
            Inner::Postgres(row) => row.columns().get(index).map(sqlx::Column::name),
        };
        name.unwrap_or_default().to_owned()
    }
}

fn sqlite_value(value: SqliteValueRef<'_>) -> Result<Option<Value>, String> {
    if value.is_null() {
        return Ok(None);
    }
    let kind = value.type_info().name().to_owned();
    let decoded = match kind.as_str() {
        "INTEGER" => decode::<Sqlite, i64>(value).map(Value::Int),
        "REAL" => decode::<Sqlite, f64>(value).map(Value::Real),
        "TEXT" => decode::<Sqlite, String>(value).map(Value::Text),
        "BLOB" => decode::<Sqlite, Vec<u8>>(value).map(Value::Bytes),
        other => return Err(other.to_owned()),
    };
    decoded.map(Some).map_err(|error| error.to_string())
}

fn postgres_value(value: PgValueRef<'_>) -> Result<Option<Value>, String> {
    if value.is_null() {
        return Ok(None);
    }
    let kind = value.type_info().name().to_owned();
    let decoded = match kind.as_str() {
        "INT8" => decode::<Postgres, i64>(value).map(Value::Int),
        "INT4" => decode::<Postgres, i32>(value).map(|n| Value::Int(n.into())),
        "INT2" => decode::<Postgres, i16>(value).map(|n| Value::Int(n.into())),
        "FLOAT8" => decode::<Postgres, f64>(value).map(Value::Real),
        "FLOAT4" => decode::<Postgres, f32>(value).map(|x| Value::Real(x.into())),
        "BOOL" => decode::<Postgres, bool>(value).map(Value::Bool),
        "TEXT" | "VARCHAR" | "NAME" => decode::<Postgres, String>(value).map(Value::Text),
        "BYTEA" => decode::<Postgres, Vec<u8>>(value).map(Value::Bytes),
        // Usually the sum of a BIGINT column.
        "NUMERIC" => return Err("NUMERIC; write CAST(… AS BIGINT) to get an integer".to_owned()),
        other => return Err(other.to_owned()),
    };
    decoded.map(Some).map_err(|error| error.to_string())
}

fn decode<'r, D: Database, T: Decode<'r, D>>(value: D::ValueRef<'r>) -> Result<T, BoxDynError> {
    T::decode(value)
}

impl FromRow for () {
    fn from_row(_: &Row) -> Result<Self, Error> {
        Ok(())
    }
}

macro_rules! tuples {
    ($(($($column:ident $index:literal),+))*) => {$(
        impl<$($column: Column),+> FromRow for ($($column,)+) {
            fn from_row(row: &Row) -> Result<Self, Error> {
                Ok(($(row.at::<$column>($index)?,)+))
            }
        }
    )*};
}

tuples! {
    (A 0)
    (A 0, B 1)
    (A 0, B 1, C 2)
    (A 0, B 1, C 2, D 3)
    (A 0, B 1, C 2, D 3, E 4)
    (A 0, B 1, C 2, D 3, E 4, F 5)
}

impl std::fmt::Debug for Row {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Omits the values, because they may be secret.
        f.debug_list().entries((0..self.len()).map(|index| self.name(index))).finish()
    }
}

/// Implements [`FromRow`] for a struct whose fields are named like the columns: `from_row!(Note { id, title })`.
#[macro_export]
macro_rules! from_row {
    ($type:ident { $($field:ident),+ $(,)? }) => {
        impl $crate::FromRow for $type {
            fn from_row(row: &$crate::Row) -> Result<Self, $crate::Error> {
                Ok($type { $($field: row.get(stringify!($field))?),+ })
            }
        }
    };
}
