//! Queries as values: SQL, bound values, and the type of the rows.

pub(crate) mod insert;
pub(crate) mod page;
pub(crate) mod read;

use std::borrow::Cow;
use std::marker::PhantomData;
use std::ops::Range;

use sqlx::SqlSafeStr;
use sqlx::SqlStr;

use crate::address::Dialect;
use crate::{Bind, Error, Value, ValueKind};

/// Makes a query from SQL that both databases understand, or from one text per dialect. Placeholders are `$1`, `$2`, …
///
/// Most SQL is the same for both: `INSERT … ON CONFLICT … DO UPDATE … RETURNING`, row values `(a, b) < ($1, $2)`,
/// `TRUE` and `FALSE`, `CAST(sum(n) AS BIGINT)`. Where it differs, write both with [`PerDialect`].
pub fn sql<T>(text: impl Into<Sql>) -> Query<T> {
    let untyped = Untyped { text: text.into(), bound: Vec::new(), list: None, refused: None };
    Query { untyped, row: PhantomData }
}

/// SQL that differs between the dialects.
#[derive(Clone, Copy, Debug)]
pub struct PerDialect {
    pub sqlite: &'static str,
    pub postgres: &'static str,
}

/// The SQL of a query. Always a literal of the program: values are bound, never interpolated.
#[derive(Clone, Debug)]
pub struct Sql {
    sqlite: Cow<'static, str>,
    postgres: Cow<'static, str>,
}

/// A query: SQL and bound values. Its rows become `T`.
#[must_use = "a query does nothing until it is run"]
pub struct Query<T> {
    untyped: Untyped,
    row: PhantomData<fn() -> T>,
}

/// A query without the type of its rows, so that the code that handles it is compiled once and not once per type.
pub(crate) struct Untyped {
    text: Sql,
    bound: Vec<Bound>,
    /// The bound values that are a list, if there is one.
    list: Option<Range<usize>>,
    refused: Option<Error>,
}

/// The value of a placeholder; `None` is a NULL of that kind.
pub(crate) type Bound = (ValueKind, Option<Value>);

/// A query for one dialect.
#[derive(Clone)]
pub struct Statement {
    pub(crate) sql: SqlStr,
    pub(crate) bound: Vec<Bound>,
    /// Whether the connection should cache the prepared statement.
    pub(crate) cached: bool,
}

impl Statement {
    /// With another statement before it, which has no values, as one call.
    pub(crate) fn preceded_by(self, first: &'static str) -> Self {
        let text = format!("{first}; {}", self.sql.as_str());
        Self { sql: sqlx::AssertSqlSafe(text).into_sql_str(), ..self }
    }

    /// With another statement after it, which has no values, as one call.
    pub(crate) fn followed_by(self, last: &'static str) -> Self {
        let text = format!("{}; {last}", self.sql.as_str());
        Self { sql: sqlx::AssertSqlSafe(text).into_sql_str(), ..self }
    }
}

impl From<&'static str> for Sql {
    fn from(text: &'static str) -> Self {
        Self { sqlite: text.into(), postgres: text.into() }
    }
}

impl From<PerDialect> for Sql {
    fn from(texts: PerDialect) -> Self {
        Self { sqlite: texts.sqlite.into(), postgres: texts.postgres.into() }
    }
}

impl Sql {
    /// Appends SQL.
    pub(crate) fn and(self, more: &str) -> Self {
        Self {
            sqlite: format!("{} {more}", self.sqlite).into(),
            postgres: format!("{} {more}", self.postgres).into(),
        }
    }
}

impl<T> Query<T> {
    /// Binds the next placeholder. A value that cannot be stored makes the query fail when it runs.
    pub fn bind<B: Bind>(mut self, value: B) -> Self {
        self.untyped.bind(B::KIND, value.store());
        self
    }

    /// Binds a list to the last placeholder, written with dots: `WHERE id IN ($2...)`. An empty list matches no row.
    pub fn bind_list<B: Bind>(mut self, values: impl IntoIterator<Item = B>) -> Self {
        let begin = self.untyped.bound.len();
        for value in values {
            self.untyped.bind(B::KIND, value.store());
        }
        self.untyped.end_list(begin, B::KIND);
        self
    }

    pub(crate) fn untyped(self) -> Untyped {
        self.untyped
    }

    pub(crate) fn statement(self, dialect: Dialect) -> Result<Statement, Error> {
        self.untyped.statement(dialect)
    }
}

impl Untyped {
    fn bind(&mut self, kind: ValueKind, value: Result<Option<Value>, Error>) {
        match value {
            Ok(value) => self.bound.push((kind, value)),
            Err(error) => _ = self.refused.get_or_insert(error),
        }
    }

    /// Ends the list that began at `begin`.
    fn end_list(&mut self, begin: usize, kind: ValueKind) {
        if self.bound.len() == begin {
            self.bound.push((kind, None));
        }
        // Lists are padded to a power of two, so that only a few statements are cached, not one per length. Repeating
        // the last value does not change the meaning of `IN`.
        let last = self.bound.last().cloned();
        let length = (self.bound.len() - begin).next_power_of_two();
        self.bound.extend(std::iter::repeat_n(last, begin + length - self.bound.len()).flatten());
        self.list = Some(begin..self.bound.len());
    }

    /// Appends SQL and values.
    pub(crate) fn and(mut self, more: &str, bound: Vec<Bound>) -> Self {
        self.text = self.text.and(more);
        self.bound.extend(bound);
        self
    }

    pub(crate) fn bound(&self) -> usize {
        self.bound.len()
    }

    pub(crate) fn statement(self, dialect: Dialect) -> Result<Statement, Error> {
        if let Some(error) = self.refused {
            return Err(error);
        }
        let text = match dialect {
            Dialect::Sqlite => self.text.sqlite,
            Dialect::Postgres => self.text.postgres,
        };
        let text = match self.list {
            Some(list) => Cow::Owned(expand_list(&text, list)?),
            None => text,
        };
        // SQLite would silently use NULL for a missing value.
        let placeholders = placeholders(&text);
        if placeholders != self.bound.len() {
            let reason = format!(
                "query has {placeholders} placeholders, but {} values are bound: {text}",
                self.bound.len()
            );
            return Err(Error::misuse(reason));
        }
        Ok(Statement {
            sql: match text {
                Cow::Borrowed(text) => text.into_sql_str(),
                Cow::Owned(text) => sqlx::AssertSqlSafe(text).into_sql_str(),
            },
            bound: self.bound,
            cached: true,
        })
    }
}

/// Replaces `$3...` with `$3, $4, …`.
fn expand_list(text: &str, list: Range<usize>) -> Result<String, Error> {
    let dotted = format!("${}...", list.start + 1);
    if !text.contains(&dotted) {
        return Err(Error::misuse(format!(
            "a list is bound, but the query has no placeholder {dotted}: {text}"
        )));
    }
    let all: Vec<String> = list.map(|n| format!("${}", n + 1)).collect();
    Ok(text.replace(&dotted, &all.join(", ")))
}

/// The largest placeholder number.
fn placeholders(text: &str) -> usize {
    let after_signs = text.split('$').skip(1);
    let numbers = after_signs.filter_map(|rest| {
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        rest[..digits].parse().ok()
    });
    numbers.max().unwrap_or(0)
}

impl std::fmt::Debug for Statement {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Statement").field(&self.sql.as_str()).finish()
    }
}

impl std::fmt::Debug for Untyped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Untyped").field(&self.text.sqlite).finish()
    }
}

impl<T> std::fmt::Debug for Query<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Omits the values, because they may be secret.
        f.debug_tuple("Query").field(&self.untyped.text.sqlite).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn statement(query: Query<()>) -> Result<(String, usize), String> {
        let statement = query.statement(Dialect::Postgres).map_err(|error| error.to_string())?;
        Ok((statement.sql.as_str().to_owned(), statement.bound.len()))
    }

    #[test]
    fn list_replaces_its_placeholder() {
        let query = sql("SELECT 1 FROM t WHERE a = $1 AND b IN ($2...)").bind(1).bind_list([7, 8, 9]);
        let expanded = "SELECT 1 FROM t WHERE a = $1 AND b IN ($2, $3, $4, $5)".to_owned();
        assert_eq!(statement(query), Ok((expanded, 5)));
    }

    #[test]
    fn empty_list_is_null() {
        let query = sql("SELECT 1 FROM t WHERE b IN ($1...)").bind_list([0; 0]);
        assert_eq!(statement(query), Ok(("SELECT 1 FROM t WHERE b IN ($1)".to_owned(), 1)));
    }

    #[test]
    fn wrong_number_of_values_is_refused() {
        assert!(statement(sql("SELECT $1, $2").bind(1)).is_err());
        assert!(statement(sql("SELECT $1").bind(1).bind(2)).is_err());
        assert!(statement(sql("SELECT $1").bind_list([1])).is_err());
        assert!(statement(sql("SELECT $1, $1").bind(1)).is_ok());
    }

    #[test]
    fn value_that_only_one_database_can_store_is_refused() {
        assert!(statement(sql("SELECT $1").bind("a\0b")).is_err());
        assert!(statement(sql("SELECT $1").bind(f64::NAN)).is_err());
        assert!(statement(sql("SELECT $1").bind(u64::MAX)).is_err());
        assert!(statement(sql("SELECT $1").bind(Some(f64::INFINITY))).is_ok());
    }
}
