//! Copies a whole database to any other: SQLite to PostgreSQL, and back.
//!
//! The source is read in one snapshot. At the target everything, tables and rows, is made in one transaction:
//! either there is a complete copy, or there is nothing.

use futures_util::TryStreamExt;
use sqlx::{AssertSqlSafe, SqlSafeStr};

use crate::address::{Address, Dialect};
use crate::connection::pools::Pools;
use crate::connection::{Connection, Isolation, Mode};
use crate::migration;
use crate::query::insert::Bulk;
use crate::query::{PerDialect, Query, Statement, sql};
use crate::value::row::{FromRow, Row};
use crate::{Database, Error, Kind, Options, from_row};

/// What a copy came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Copied {
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
    /// Whether the database counts it up by itself.
    counted: bool,
}

from_row!(TableColumn { name, declared, counted });

const TABLES: PerDialect = PerDialect {
    sqlite: "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'
             ORDER BY name",
    postgres: "SELECT CAST(table_name AS TEXT) FROM information_schema.tables
               WHERE table_schema = current_schema() AND table_type = 'BASE TABLE' ORDER BY 1",
};

const COLUMNS: PerDialect = PerDialect {
    sqlite: "SELECT name, type AS declared, FALSE AS counted FROM pragma_table_info($1) ORDER BY cid",
    postgres: "SELECT CAST(column_name AS TEXT) AS name, CAST(data_type AS TEXT) AS declared,
                      is_identity = 'YES' AS counted
               FROM information_schema.columns WHERE table_schema = current_schema() AND table_name = $1
               ORDER BY ordinal_position",
};

/// A copy takes as long as it takes; the limits are those of requests.
const POSTGRES_NO_LIMITS: &str =
    "SET LOCAL statement_timeout = 0; SET LOCAL idle_in_transaction_session_timeout = 0";

/// Rows come table by table, so what they refer to may come later.
const SQLITE_DEFER: &str = "PRAGMA defer_foreign_keys = ON";

const POSTGRES_FOREIGN_KEYS: &str = "SELECT CAST(CAST(conrelid AS regclass) AS TEXT), quote_ident(conname)
    FROM pg_constraint WHERE contype = 'f' AND connamespace = CAST(current_schema() AS regnamespace)";

impl Database {
    /// Copies everything to an empty database of either kind: all tables that the migrations have made, as
    /// they are now. The copy keeps the database' id, and goes on where this database were.
    pub async fn copy(&self, to: &Address) -> Result<Copied, Error> {
        let pools = Pools::new(to, &Options::default())?;
        let copied = copy_to(self, &pools).await;
        pools.close().await;
        copied
    }
}

async fn copy_to(from: &Database, to: &Pools) -> Result<Copied, Error> {
    let mut source = from.pools().lend(Mode::Snapshot).await?;
    source.begin(Mode::Snapshot).await?;
    let write = Mode::Write(Isolation::Committed);
    let mut target = to.lend(write).await?;
    let now = target.begin(write).await?;
    for connection in [&mut source, &mut target] {
        if connection.dialect() == Dialect::Postgres {
            connection.run_script(POSTGRES_NO_LIMITS).await?;
        }
    }
    if let Some(table) = tables(&mut target).await?.first() {
        let reason = format!("the target is not empty: it holds the table {table}");
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

async fn copy_tables(source: &mut Connection, target: &mut Connection) -> Result<Copied, Error> {
    let mut all = Vec::new();
    for name in tables(target).await? {
        // The target has been through its own migrations.
        if name != "hob_migrations" {
            let columns: Query<TableColumn> = sql(COLUMNS).bind(&name);
            let columns = fetch(target, columns).await?;
            all.push(Table { name, columns });
        }
    }
    let foreign_keys = defer_foreign_keys(target).await?;
    for table in &all {
        // What the migrations themselves put in comes from the source as well.
        run(target, format!("DELETE FROM {}", quoted(&table.name))).await?;
    }
    let mut copied = Copied::default();
    for table in &all {
        copied.rows += copy_rows(source, target, table).await?;
        copied.tables += 1;
    }
    restore_foreign_keys(target, &foreign_keys).await?;
    for table in &all {
        continue_counting(target, table).await?;
    }
    Ok(copied)
}

/// Rows are on their way in bounded numbers: those of one statement.
async fn copy_rows(source: &mut Connection, target: &mut Connection, table: &Table) -> Result<u64, Error> {
    let names: Vec<String> = table.columns.iter().map(|column| quoted(&column.name)).collect();
    let names = names.join(", ");
    let select = format!("SELECT {names} FROM {}", quoted(&table.name));
    let head = format!("INSERT INTO {} ({names})", quoted(&table.name));
    let kinds: Result<Vec<Kind>, Error> =
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

/// A row's values, of the kinds that the target's columns have.
fn bound(row: &Row, table: &Table, kinds: &[Kind]) -> Result<Vec<(Kind, Option<crate::Value>)>, Error> {
    let values = kinds.iter().enumerate().map(|(index, kind)| {
        let Some(value) = row.value(index)? else {
            return Ok((*kind, None));
        };
        let found = value.kind();
        let value = value.into_kind(*kind).map_err(|_| Error::Copy {
            reason: format!(
                "{}.{} should hold {kind:?}, but holds {found:?}",
                table.name, table.columns[index].name
            ),
        })?;
        Ok((*kind, Some(value)))
    });
    values.collect()
}

impl TableColumn {
    fn kind(&self, table: &str) -> Result<Kind, Error> {
        Ok(match self.declared.to_ascii_uppercase().as_str() {
            "INTEGER" | "INT" | "BIGINT" | "SMALLINT" => Kind::Int,
            "REAL" | "DOUBLE PRECISION" => Kind::Real,
            "BOOLEAN" => Kind::Bool,
            "TEXT" | "CHARACTER VARYING" => Kind::Text,
            "BLOB" | "BYTEA" => Kind::Bytes,
            other => {
                let reason = format!("{table}.{} is {other}, which not both databases have", self.name);
                return Err(Error::Copy { reason });
            }
        })
    }
}

/// Lets rows refer to others that are still to come, until the end of the transaction; answers with the
/// PostgreSQL constraints (table and name) that were changed for it.
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

/// Checks all references, and lets them be checked at once from now on.
async fn restore_foreign_keys(target: &mut Connection, keys: &[(String, String)]) -> Result<(), Error> {
    if target.dialect() == Dialect::Postgres {
        target.run_script("SET CONSTRAINTS ALL IMMEDIATE").await?;
    }
    for (table, name) in keys {
        run(target, format!("ALTER TABLE {table} ALTER CONSTRAINT {name} NOT DEFERRABLE")).await?;
    }
    Ok(())
}

/// Columns that count up by themselves go on after what was copied. SQLite sees to it by itself.
async fn continue_counting(target: &mut Connection, table: &Table) -> Result<(), Error> {
    for column in table.columns.iter().filter(|column| column.counted) {
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

/// Text made of names that migrations gave.
fn statement(text: String) -> Statement {
    Statement { sql: AssertSqlSafe(text).into_sql_str(), bound: Vec::new(), lasting: false }
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}
