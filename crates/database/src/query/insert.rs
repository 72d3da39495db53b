//! Bulk inserts: many rows in few statements.

use std::fmt::Write as _;

use sqlx::{AssertSqlSafe, SqlSafeStr};

use crate::address::Dialect;
use crate::query::read::sealed::Source as _;
use crate::query::{Bound, Statement};
use crate::{Bind, Error, Transaction, Value, ValueKind};

/// The values of one row, in the order of its columns.
pub trait Binds {
    fn store(self) -> Result<Vec<(ValueKind, Option<Value>)>, Error>;
}

/// Well below the limits of both databases for values per statement.
const MAX_VALUES: usize = 8_000;
/// Statements with up to this many rows are frequent.
const MAX_CACHED_ROWS: usize = 4;
/// Limits the memory of a statement with long rows.
const MAX_BYTES: usize = 4 << 20;

impl Transaction {
    /// Inserts rows in batches: `insert_all("INSERT INTO note (id, title)", rows, "")`. `tail` is the SQL after the
    /// values, such as `ON CONFLICT DO NOTHING`. Returns how many rows were inserted or changed.
    pub async fn insert_all<R: Binds>(
        &self,
        head: &'static str,
        rows: impl IntoIterator<Item = R, IntoIter: Send> + Send,
        tail: &'static str,
    ) -> Result<u64, Error> {
        Ok(match self.insert_full(head, rows, tail).await? {
            (changed, Some(last)) => changed + self.run(last).await?,
            (changed, None) => changed,
        })
    }

    /// Inserts all full batches of [`Transaction::insert_all`]. Returns the statement for the remaining rows.
    pub(crate) async fn insert_full<R: Binds>(
        &self,
        head: &'static str,
        rows: impl IntoIterator<Item = R, IntoIter: Send> + Send,
        tail: &'static str,
    ) -> Result<(u64, Option<Statement>), Error> {
        let mut bulk = Bulk::new(head, tail);
        let mut changed = 0;
        for row in rows {
            bulk.push(row.store()?);
            if bulk.is_full() {
                changed += self.run(bulk.take(self.dialect())).await?;
            }
        }
        let last = (!bulk.is_empty()).then(|| bulk.take(self.dialect()));
        Ok((changed, last))
    }
}

/// Collects rows for one `INSERT` statement.
pub(crate) struct Bulk<'a> {
    head: &'a str,
    tail: &'a str,
    columns: usize,
    bound: Vec<Bound>,
    bytes: usize,
}

impl<'a> Bulk<'a> {
    pub(crate) fn new(head: &'a str, tail: &'a str) -> Self {
        Self { head, tail, columns: 0, bound: Vec::new(), bytes: 0 }
    }

    pub(crate) fn push(&mut self, row: Vec<Bound>) {
        self.columns = row.len();
        self.bytes += row.iter().map(|(_, value)| value.as_ref().map_or(0, Value::bytes)).sum::<usize>();
        self.bound.extend(row);
    }

    pub(crate) fn is_full(&self) -> bool {
        self.has_max_values() || self.bytes >= MAX_BYTES
    }

    fn has_max_values(&self) -> bool {
        self.bound.len() + self.columns > MAX_VALUES
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bound.is_empty()
    }

    /// Takes the collected rows as one statement.
    pub(crate) fn take(&mut self, dialect: Dialect) -> Statement {
        let mut text = format!("{} VALUES ", self.head);
        for index in 0..self.bound.len() {
            let before = match index % self.columns {
                0 if index == 0 => "(",
                0 => "), (",
                _ => ", ",
            };
            // For each named placeholder, SQLite scans all names; anonymous placeholders avoid this cost.
            let _ = match dialect {
                Dialect::Sqlite => write!(text, "{before}?"),
                Dialect::Postgres => write!(text, "{before}${}", index + 1),
            };
        }
        let _ = write!(text, ") {}", self.tail);
        self.bytes = 0;
        Statement {
            // Safe: built only from literals of the program and from numbers.
            sql: AssertSqlSafe(text).into_sql_str(),
            // Full statements all have the same text, so they are cached, as are those with few rows; the length of other
            // statements varies.
            cached: self.has_max_values() || self.bound.len() <= MAX_CACHED_ROWS * self.columns,
            bound: std::mem::take(&mut self.bound),
        }
    }
}

macro_rules! tuples {
    ($(($($column:ident $index:tt),+))*) => {$(
        impl<$($column: Bind),+> Binds for ($($column,)+) {
            fn store(self) -> Result<Vec<Bound>, Error> {
                Ok(vec![$(($column::KIND, self.$index.store()?)),+])
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
    (A 0, B 1, C 2, D 3, E 4, F 5, G 6)
    (A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7)
    (A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8)
    (A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9)
    (A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9, K 10)
    (A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9, K 10, L 11)
    (A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9, K 10, L 11, M 12)
}
