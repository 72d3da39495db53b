//! Many rows in few statements.

use std::fmt::Write as _;

use sqlx::{AssertSqlSafe, SqlSafeStr};

use crate::address::Dialect;
use crate::query::read::sealed::Source as _;
use crate::query::{Bound, Statement};
use crate::{Bind, Error, Kind, Transaction, Value};

/// The values of one row, in the order of its columns.
pub trait Binds {
    fn store(self) -> Result<Vec<(Kind, Option<Value>)>, Error>;
}

/// Well below the most values that either database takes in one statement.
const MOST_VALUES: usize = 8_000;
/// Rows may be long, and wait in memory.
const MOST_BYTES: usize = 4 << 20;

impl Transaction {
    /// Inserts rows, hundreds at a time: `insert_all("INSERT INTO note (id, title)", rows, "")`, with what
    /// follows the values at the end, such as `ON CONFLICT DO NOTHING`. Answers with how many were inserted
    /// or changed.
    pub async fn insert_all<R: Binds>(
        &self,
        head: &'static str,
        rows: impl IntoIterator<Item = R, IntoIter: Send> + Send,
        tail: &'static str,
    ) -> Result<u64, Error> {
        let mut bulk = Bulk::new(head, tail);
        let mut changed = 0;
        for row in rows {
            bulk.push(row.store()?);
            if bulk.is_full() {
                changed += self.run(bulk.take(self.dialect())).await?;
            }
        }
        if !bulk.is_empty() {
            changed += self.run(bulk.take(self.dialect())).await?;
        }
        Ok(changed)
    }
}

/// Rows on their way into a table.
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
        self.has_most_values() || self.bytes >= MOST_BYTES
    }

    fn has_most_values(&self) -> bool {
        self.bound.len() + self.columns > MOST_VALUES
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bound.is_empty()
    }

    /// The statement that inserts the rows so far.
    pub(crate) fn take(&mut self, dialect: Dialect) -> Statement {
        let mut text = format!("{} VALUES ", self.head);
        for index in 0..self.bound.len() {
            let before = match index % self.columns {
                0 if index == 0 => "(",
                0 => "), (",
                _ => ", ",
            };
            // SQLite goes through all names for each that is bound; without a name it does not.
            let _ = match dialect {
                Dialect::Sqlite => write!(text, "{before}?"),
                Dialect::Postgres => write!(text, "{before}${}", index + 1),
            };
        }
        let _ = write!(text, ") {}", self.tail);
        self.bytes = 0;
        Statement {
            // Made of text that was written in a program, and of numbers.
            sql: AssertSqlSafe(text).into_sql_str(),
            // Full ones are alike; others are as long as chance has it.
            lasting: self.has_most_values(),
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
}
