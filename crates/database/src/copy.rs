//! Copies a whole database to another one of either dialect.
//!
//! The source is read in one snapshot. Tables and rows are created at the target in one transaction, so the target
//! ends up with a complete copy or with nothing.

use futures_util::TryStreamExt;
use sqlx::{AssertSqlSafe, SqlSafeStr};

use crate::address::{Address, Dialect};
use crate::connection::pools::Pools;
use crate::connection::{Connection, Isolation, Mode};
use crate::migration;
use crate::query::insert::Bulk;
use crate::query::{PerDialect, Query, Statement, sql};
use crate::value::row::{FromRow, Row};
use crate::{Database, Error, Options, ValueKind, from_row};

/// What a copy contains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CopySummary {
    pub tables: u64,
    pub rows: u64,
}

struct Table {
    name: String,
    columns: Vec<TableColumn>,
}

struct TableColumn {
    name: String,
    declared: String,
    /// Whether PostgreSQL generates its values.
    is_identity: bool,
}

from_row!(TableColumn { name, declared, is_identity });

const TABLES: PerDialect = PerDialect {
    // Without virtual tables and the tables behind them: a full-text index is filled by triggers.
    sqlite: "SELECT name FROM pragma_table_list WHERE schema = 'main' AND type = 'table'
                 AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY name",
    postgres: "SELECT CAST(table_name AS TEXT) FROM information_schema.tables
               WHERE table_schema = current_schema() AND table_type = 'BASE TABLE' ORDER BY 1",
};

const COLUMNS: PerDialect = PerDialect {
    sqlite: "SELECT name, type AS declared, FALSE AS is_identity FROM pragma_table_info($1) ORDER BY cid",
    postgres: "SELECT CAST(column_name AS TEXT) AS name, CAST(data_type AS TEXT) AS declared,
                      is_identity = 'YES' AS is_identity
               FROM information_schema.columns WHERE table_schema = current_schema() AND table_name = $1
                   AND is_generated = 'NEVER'
               ORDER BY ordinal_position",
};

/// A copy may take longer than the time limits that requests have.
const POSTGRES_NO_LIMITS: &str =
    "SET LOCAL statement_timeout = 0; SET LOCAL idle_in_transaction_session_timeout = 0";

/// Tables are copied one by one, so a row may refer to another row that is not copied yet.
const SQLITE_DEFER: &str = "PRAGMA defer_foreign_keys = ON";

const POSTGRES_FOREIGN_KEYS: &str = "SELECT CAST(CAST(conrelid AS regclass) AS TEXT), quote_ident(conname)
    FROM pg_constraint WHERE contype = 'f' AND connamespace = CAST(current_schema() AS regnamespace)";

impl Database {
    /// Copies the current contents of all tables to an empty database of either dialect. The copy keeps the id
    /// of this database and can take its place.
    pub async fn copy(&self, to: &Address) -> Result<CopySummary, Error> {
        let pools = Pools::new(to, &Options::default())?;
        let copied = copy_to(self, &pools).await;
        pools.close().await;
        copied
    }
}

async fn copy_to(from: &Database, to: &Pools) -> Result<CopySummary, Error> {
    let mut source = from.pools().acquire(Mode::Snapshot).await?;
    source.begin(Mode::Snapshot).await?;
    let write = Mode::Write(Isolation::ReadCommitted);
    let mut target = to.acquire(write).await?;
    let now = target.begin(write).await?;
    for connection in [&mut source, &mut target] {
        if connection.dialect() == Dialect::Postgres {
            connection.run_script(POSTGRES_NO_LIMITS).await?;
        }
    }
    if let Some(table) = tables(&mut target).await?.first() {
        let reason =
            format!("the target database is not empty: it has a table {table}; copy to an empty database");
        return Err(Error::Copy { reason });
    }
    migration::apply_in(&mut target, from.sets(), now).await?;
    let copied = copy_tables(&mut source, &mut target).await?;
    target.run_script("COMMIT").await?;
    target.release();
    source.run_script("ROLLBACK").await?;
    source.release();
    Ok(copied)
}

async fn copy_tables(source: &mut Connection, target: &mut Connection) -> Result<CopySummary, Error> {
    let mut all = Vec::new();
    for name in tables(target).await? {
        // The target has applied its own migrations.
        if name != "hob_migrations" {
            let columns: Query<TableColumn> = sql(COLUMNS).bind(&name);
            let columns = fetch(target, columns).await?;
            all.push(Table { name, columns });
        }
    }
    let foreign_keys = defer_foreign_keys(target).await?;
    for table in &all {
        // Deletes rows that the migrations inserted, because they are copied from the source as well.
        run(target, format!("DELETE FROM {}", quoted(&table.name))).await?;
    }
    let mut copied = CopySummary::default();
    for table in &all {
        copied.rows += copy_rows(source, target, table).await?;
        copied.tables += 1;
    }
    restore_foreign_keys(target, &foreign_keys).await?;
    for table in &all {
        advance_sequences(target, table).await?;
    }
    Ok(copied)
}

/// Holds the rows of one statement in memory at a time.
async fn copy_rows(source: &mut Connection, target: &mut Connection, table: &Table) -> Result<u64, Error> {
    let names: Vec<String> = table.columns.iter().map(|column| quoted(&column.name)).collect();
    let names = names.join(", ");
    let select = format!("SELECT {names} FROM {}", quoted(&table.name));
    let head = format!("INSERT INTO {} ({names})", quoted(&table.name));
    let kinds: Result<Vec<ValueKind>, Error> =
        table.columns.iter().map(|column| column.kind(&table.name)).collect();
    let kinds = kinds?;
    let mut bulk = Bulk::new(&head, "");
    let mut count = 0;
    let dialect = target.dialect();
    let mut rows = source.stream(statement(select));
    while let Some(row) = rows.try_next().await? {
        bulk.push(bound(&row, table, &kinds)?);
        if bulk.is_full() {
            count += target.execute(bulk.take(dialect)).await?;
        }
    }
    if !bulk.is_empty() {
        count += target.execute(bulk.take(dialect)).await?;
    }
    Ok(count)
}

/// A row's values, converted to the kinds of the target's columns.
fn bound(
    row: &Row,
    table: &Table,
    kinds: &[ValueKind],
) -> Result<Vec<(ValueKind, Option<crate::Value>)>, Error> {
    let values = kinds.iter().enumerate().map(|(index, kind)| {
        let Some(value) = row.value(index)? else {
            return Ok((*kind, None));
        };
        let found = value.kind();
        let value = value.into_kind(*kind).map_err(|_| Error::Copy {
            reason: format!(
                "cannot copy {}.{}: the target column is {kind:?}, the value is {found:?}",
                table.name, table.columns[index].name
            ),
        })?;
        Ok((*kind, Some(value)))
    });
    values.collect()
}

impl TableColumn {
    fn kind(&self, table: &str) -> Result<ValueKind, Error> {
        Ok(match self.declared.to_ascii_uppercase().as_str() {
            "INTEGER" | "INT" | "BIGINT" | "SMALLINT" => ValueKind::Int,
            "REAL" | "DOUBLE PRECISION" => ValueKind::Real,
            "BOOLEAN" => ValueKind::Bool,
            "TEXT" | "CHARACTER VARYING" => ValueKind::Text,
            "BLOB" | "BYTEA" => ValueKind::Bytes,
            other => {
                let reason =
                    format!("cannot copy {table}.{}: the other database has no type {other}", self.name);
                return Err(Error::Copy { reason });
            }
        })
    }
}

/// Defers foreign key checks to the end of the transaction, and returns the PostgreSQL constraints (table and name)
/// that were altered for it.
async fn defer_foreign_keys(target: &mut Connection) -> Result<Vec<(String, String)>, Error> {
    if target.dialect() == Dialect::Sqlite {
        target.run_script(SQLITE_DEFER).await?;
        return Ok(Vec::new());
    }
    let keys: Vec<(String, String)> = fetch(target, sql(POSTGRES_FOREIGN_KEYS)).await?;
    for (table, name) in &keys {
        let alter = format!("ALTER TABLE {table} ALTER CONSTRAINT {name} DEFERRABLE INITIALLY DEFERRED");
        run(target, alter).await?;
    }
    Ok(keys)
}

/// Checks all foreign keys, and undoes [`defer_foreign_keys`].
async fn restore_foreign_keys(target: &mut Connection, keys: &[(String, String)]) -> Result<(), Error> {
    if target.dialect() == Dialect::Postgres {
        target.run_script("SET CONSTRAINTS ALL IMMEDIATE").await?;
    }
    for (table, name) in keys {
        run(target, format!("ALTER TABLE {table} ALTER CONSTRAINT {name} NOT DEFERRABLE")).await?;
    }
    Ok(())
}

/// Moves the sequences of identity columns past the copied values. SQLite does this by itself.
async fn advance_sequences(target: &mut Connection, table: &Table) -> Result<(), Error> {
    for column in table.columns.iter().filter(|column| column.is_identity) {
        let (table, column) = (quoted(&table.name), &column.name);
        let largest = format!("(SELECT max({}) FROM {table})", quoted(column));
        run(
            target,
            format!(
                "SELECT setval(pg_get_serial_sequence('{table}', '{column}'), \
                 greatest({largest}, 1), {largest} IS NOT NULL)"
            ),
        )
        .await?;
    }
    Ok(())
}

async fn tables(connection: &mut Connection) -> Result<Vec<String>, Error> {
    let tables: Vec<(String,)> = fetch(connection, sql(TABLES)).await?;
    Ok(tables.into_iter().map(|(name,)| name).collect())
}

async fn fetch<T: FromRow>(connection: &mut Connection, query: Query<T>) -> Result<Vec<T>, Error> {
    let statement = query.statement(connection.dialect())?;
    let rows = connection.fetch(statement, usize::MAX).await?;
    rows.iter().map(T::from_row).collect()
}

async fn run(connection: &mut Connection, text: String) -> Result<(), Error> {
    Ok(connection.run_script(AssertSqlSafe(text)).await?)
}

/// A statement built from table and column names, which come from migrations.
fn statement(text: String) -> Statement {
    Statement { sql: AssertSqlSafe(text).into_sql_str(), bound: Vec::new(), cached: false }
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}
